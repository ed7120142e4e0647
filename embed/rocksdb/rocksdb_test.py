#!/usr/bin/env python3
"""The file server and the plugin, judged by RocksDB and its own programs, unmodified.

db_bench fills, ldb and sst_dump look at what is there; and server and client are killed meanwhile.
"""
import os
import re
import select
import subprocess
import sys
import time
import unittest

import rocks

sys.path.append("core/testing")
import told_skips  # pylint: disable=wrong-import-position

# Where the test is run, and not where its source is: Bazel links to that.
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
PLUGIN = os.path.join(HERE, "libweft_rocksdb.so")
ROCKSD = os.path.join(HERE, "weft_rocksd")
COMPACTORD = os.path.join(HERE, "weft_compactord")
WRITER = os.path.join(HERE, "rocks_writer")


def value_of(number):
    value = ""
    while len(value) < 1000:
        value += "%012d" % number
    return value


class Case(unittest.TestCase):
    """A server, and programs with the plugin, that go with the test."""

    plugin = PLUGIN

    def setUp(self):
        why_not = rocks.lacking("db_bench", "ldb", "sst_dump")
        if why_not:
            self.skipTest(why_not)
        self.folder = rocks.Folder(os.environ.get("TEST_TMPDIR"))
        self.addCleanup(self.folder.close)

    def serve(self, *arguments, path="shm"):
        server = rocks.Rocksd(ROCKSD, self.folder.file("served"), "--paths=" + path, *arguments)
        self.addCleanup(server.close)
        return server

    def run_one(self, *command):
        """Status, and all that it said."""
        done = subprocess.run(rocks.ENDS_WITH_US + list(command), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=rocks.preloaded(self.plugin),
                              timeout=rocks.PATIENCE_SECONDS)
        return done.returncode, done.stdout

    def done(self, *command):
        status, said = self.run_one(*command)
        self.assertEqual(status, 0, "%s: %s" % (" ".join(command), said))
        return said

    def start(self, *command):
        # The writer has the plugin linked in.
        environment = None if command[0] == WRITER else rocks.preloaded(PLUGIN)
        process = subprocess.Popen(rocks.ENDS_WITH_US + list(command), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def read_until(self, writer, number):
        """Of what it prints; the last number."""
        last = -1
        while last < number:
            ready, _, _ = select.select([writer.stdout], [], [], rocks.PATIENCE_SECONDS)
            line = writer.stdout.readline() if ready else ""
            self.assertTrue(line, "the writer has ended after %d, or stands still" % last)
            last = int(line)
        return last

    def is_sound(self, uri):
        """By RocksDB's own judgement."""
        self.assertIn("OK", self.done("ldb", "--fs_uri=" + uri, "--db=/db", "checkconsistency"))
        said = self.done("sst_dump", "--fs_uri=" + uri, "--file=/db", "--command=verify",
                         "--verify_checksum")
        self.assertNotIn("orrupt", said)

    def numbers(self, uri):
        """The keys that rocks_writer has written, whose values are looked at, too."""
        said = self.done("ldb", "--fs_uri=" + uri, "--db=/db", "scan")
        numbers = []
        for line in said.splitlines():
            if " : " not in line:
                continue
            key, value = line.split(" : ")
            numbers.append(int(key))
            self.assertEqual(value, value_of(numbers[-1]))
        return numbers


class Tools(Case):
    def tools(self, path):
        uri = self.serve(path=path).uri("orders")
        ldb = ["ldb", "--fs_uri=" + uri, "--db=/db"]
        self.done(*ldb, "--create_if_missing", "put", "key", "value")
        self.assertEqual(self.done(*ldb, "get", "key").strip(), "value")
        self.done(*ldb, "compact")
        self.is_sound(uri)
        self.assertTrue(os.path.exists(self.folder.file("served/orders/db/CURRENT")))
        # What RocksDB finds by its own file system is the same.
        self.assertEqual(self.done("ldb", "--db=" + self.folder.file("served/orders/db"), "get",
                                   "key").strip(), "value")

    def test_ldb_and_sst_dump_over_shared_memory(self):
        self.tools("shm")

    def test_ldb_and_sst_dump_over_tcp(self):
        self.tools("tcp")

    def test_mistakes_are_told(self):
        address = self.serve().address
        for uri, words in (("weft://" + address + "/x?nonsense:1", "there is no such key"),
                           ("weft://nowhere", "HOST:PORT"),
                           ("weft://" + address + "?paths:pigeons", "pigeons"),
                           ("weft://127.0.0.1:1/x", "weft: ")):
            status, said = self.run_one("ldb", "--fs_uri=" + uri, "--db=/db", "scan")
            self.assertNotEqual(status, 0, uri)
            self.assertIn(words, said)

    def test_one_client_cannot_be_given_more_connections_than_there_are(self):
        with self.assertRaisesRegex(RuntimeError, "max_connections_of_one is 5; 0 to 4"):
            self.serve("--max_connections=4", "--max_connections_of_one=5")

    def test_a_server_for_reading_only(self):
        server = self.serve()
        ldb = ["ldb", "--fs_uri=" + server.uri(), "--db=/db"]
        self.done(*ldb, "--create_if_missing", "put", "key", "value")
        self.done(*ldb, "compact")
        server.close()
        uri = self.serve("--read_only").uri()
        self.is_sound(uri)
        status, said = self.run_one("ldb", "--fs_uri=" + uri, "--db=/db", "put", "key", "other")
        self.assertNotEqual(status, 0)
        self.assertIn("reading only", said)


class Locks(Case):
    def test_one_database_has_one_writer(self):
        uri = self.serve().uri()
        writer = self.start(WRITER, uri, "/db")
        self.assertEqual(writer.stdout.readline(), "0\n")
        status, said = self.run_one("ldb", "--fs_uri=" + uri, "--db=/db", "put", "key", "value")
        self.assertNotEqual(status, 0)
        self.assertIn("has the lock", said)
        # RocksDB's own file system, on the server's host.
        status, said = self.run_one("ldb", "--db=" + self.folder.file("served/db"), "put", "key",
                                    "value")
        self.assertNotEqual(status, 0)
        self.assertIn("lock", said.lower())
        self.assertIsNone(writer.poll())


class Kills(Case):
    def killed_server(self, path):
        server = self.serve(path=path)
        writer = self.start(WRITER, server.uri(), "/db")
        for kill in range(1, 6):
            self.read_until(writer, kill * 400)
            server.kill()
            server.start()
        self.read_until(writer, 2400)
        writer.kill()
        said, errors = writer.communicate()
        self.assertNotIn("rocks_writer:", errors)
        last = int(said.split()[-1]) if said.split() else 2400
        numbers = self.numbers(server.uri())
        self.assertGreater(len(os.listdir(self.folder.file("served/db"))), 8)
        self.assertEqual(numbers, list(range(len(numbers))), "without a gap")
        self.assertGreater(len(numbers), last, "all that RocksDB has answered")
        self.is_sound(server.uri())

    def test_what_was_synced_survives_kills_of_the_server_over_shared_memory(self):
        self.killed_server("shm")

    def test_what_was_synced_survives_kills_of_the_server_over_tcp(self):
        self.killed_server("tcp")

    def test_what_was_synced_survives_kills_of_the_client(self):
        uri = self.serve().uri()
        least = 0
        for _ in range(4):
            writer = self.start(WRITER, uri, "/db")
            self.read_until(writer, least % 700 + 300)
            writer.kill()
            said, errors = writer.communicate()
            self.assertNotIn("rocks_writer:", errors)
            numbers = self.numbers(uri)  # the lock is free, or soon is; RocksDB replays its log
            least = max(least, int(said.split()[-1]) if said.split() else 0)
            self.assertEqual(numbers, list(range(len(numbers))))
            self.assertGreater(len(numbers), least)
            self.is_sound(uri)

    def test_db_bench_does_not_notice_a_killed_server(self):
        server = self.serve()
        bench = self.start("db_bench", "--fs_uri=" + server.uri(), "--db=/db",
                           "--benchmarks=fillrandom,overwrite,readrandom,multireadrandom",
                           "--num=20000", "--write_buffer_size=262144", "--compression_type=none",
                           "--disable_wal=true", "--verify_checksum=1")
        tables = self.folder.file("served/db")
        for _ in range(4):
            seen = set(os.listdir(tables)) if os.path.isdir(tables) else set()
            # Until a table more is there: a flush or a compaction has ended, and others run.
            while bench.poll() is None and not any(
                    name.endswith(".sst") and name not in seen
                    for name in (os.listdir(tables) if os.path.isdir(tables) else ())):
                time.sleep(0.005)  # there is nothing else to wait for
            server.kill()
            server.start()
        said, errors = bench.communicate(timeout=rocks.PATIENCE_SECONDS)
        self.assertEqual(bench.returncode, 0, errors)
        self.assertTrue(re.search(r"multireadrandom\s*:", said), said + errors)
        self.is_sound(server.uri())


class Compactions(Case):
    """In another process, which has the files from the same server."""

    def test_a_worker_compacts_and_is_not_missed_when_it_is_killed(self):
        server = self.serve()
        first = rocks.Compactord(COMPACTORD, server.uri())
        self.addCleanup(first.close)
        writer = self.start(WRITER, server.uri(), "/db", first.uri)
        self.read_until(writer, 1500)
        first.process.kill()
        self.read_until(writer, 2500)  # with compactions of its own
        writer.kill()
        _, errors = writer.communicate()
        self.assertNotIn("rocks_writer:", errors)
        numbers = self.numbers(server.uri())
        self.assertEqual(numbers, list(range(len(numbers))), "without a gap")
        self.assertGreater(len(numbers), 2500)
        self.is_sound(server.uri())
        with open(self.folder.file("served/db/LOG"), encoding="utf-8", errors="replace") as log:
            self.assertIn("fallback to local", log.read())

        # Another writer, another worker: the folders of the first one's jobs go.
        folders = [name for name in os.listdir(self.folder.file("served/db"))
                   if name.startswith("compaction-")]
        self.assertTrue(folders)
        second = rocks.Compactord(COMPACTORD, server.uri())
        self.addCleanup(second.close)
        writer = self.start(WRITER, server.uri(), "/db", second.uri)
        self.read_until(writer, 1500)
        writer.kill()
        writer.communicate()
        for name in folders:
            self.assertFalse(os.path.exists(self.folder.file("served/db/" + name)), name)
        self.assertGreater(second.stop(), 3)
        self.is_sound(server.uri())

    def test_mistakes_are_told(self):
        server = self.serve()
        for uri, words in (("weft-compactor://127.0.0.1:1/x", "a worker has no folders"),
                           ("weft-compactor://127.0.0.1:1?deadline:0", "1 to 86400 seconds"),
                           ("weft://127.0.0.1:1", "it begins with weft-compactor://")):
            writer = self.start(WRITER, server.uri(), "/db", uri)
            _, errors = writer.communicate(timeout=rocks.PATIENCE_SECONDS)
            self.assertEqual(writer.returncode, 1)
            self.assertIn(words, errors)


class OverGrpc(Case):
    """What ./dev rocksdb compares with."""

    def test_the_same_plugin_over_grpc(self):
        (grpc_rocksd, self.plugin), why_not = rocks.over_grpc(HERE)
        if why_not:
            self.skipTest(why_not)
        server = rocks.Rocksd(grpc_rocksd, self.folder.file("served"))
        self.addCleanup(server.close)
        uri = server.uri("orders", scheme="grpc")
        said = self.done("db_bench", "--fs_uri=" + uri, "--db=/db", "--num=20000", "--reads=2000",
                         "--benchmarks=fillrandom,compact,readrandom,multireadrandom",
                         "--multiread_batched=true", "--batch_size=16", "--cache_size=262144",
                         "--compression_type=none", "--verify_checksum=1")
        found = re.findall(r"\((\d+) of (\d+) found\)", said)
        self.assertEqual(len(found), 2, said)
        self.assertGreater(min(int(count) for count, _ in found), 1000)
        self.is_sound(uri)
        ldb = ["ldb", "--fs_uri=" + uri, "--db=/db"]
        self.done(*ldb, "put", "key", "value")
        self.assertEqual(self.done(*ldb, "get", "key").strip(), "value")
        # What RocksDB finds by its own file system is the same.
        self.assertEqual(self.done("ldb", "--db=" + self.folder.file("served/orders/db"), "get",
                                   "key").strip(), "value")
        status, said = server.stop()
        self.assertEqual(status, 0, said)


class Cache(Case):
    """Of a database in a folder of this host, whose blocks do not fit into the block cache."""

    def reads(self, server, path, *arguments):
        return ["db_bench", "--db=" + self.folder.file("db"), "--use_existing_db=1", "--num=20000",
                "--benchmarks=readrandom", "--cache_size=262144", "--cache_numshardbits=0",
                "--statistics=1", "--verify_checksum=1", "--compression_type=none",
                "--secondary_cache_uri=weft-cache://%s?mib:16&paths:%s" % (server.address, path)
                ] + list(arguments)

    def all_found(self, said):
        found = re.search(r"\((\d+) of (\d+) found\)", said)
        self.assertIsNotNone(found, said)
        self.assertEqual(found.group(1), found.group(2))

    def hits_and_kill(self, path):
        server = self.serve("--cache_mib=16", path=path)
        self.done("db_bench", "--db=" + self.folder.file("db"), "--benchmarks=fillseq,compact",
                  "--num=20000", "--compression_type=none", "--disable_wal=true")
        said = self.done(*self.reads(server, path, "--reads=20000"))
        self.all_found(said)
        hits = int(re.search(r"rocksdb\.secondary\.cache\.hits COUNT : (\d+)", said).group(1))
        self.assertGreater(hits, 1000)

        bench = self.start(*self.reads(server, path, "--duration=5"))
        ready, _, _ = select.select([bench.stderr], [], [], rocks.PATIENCE_SECONDS)
        self.assertTrue(ready)  # it tells how far it is
        server.kill()
        said, errors = bench.communicate(timeout=rocks.PATIENCE_SECONDS)
        self.assertEqual(bench.returncode, 0, errors)
        self.all_found(said)

    def test_a_secondary_cache_has_hits_and_is_not_missed_over_shared_memory(self):
        self.hits_and_kill("shm")

    def test_a_secondary_cache_has_hits_and_is_not_missed_over_tcp(self):
        self.hits_and_kill("tcp")


if __name__ == "__main__":
    told_skips.main()
