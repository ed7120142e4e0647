#!/usr/bin/env python3
"""The block server and nbdkit's plugin, judged by programs that others wrote.

fio verifies what it has written, nbdcopy and qemu-img copy and compare, nbdkit's checkwrite filter
looks at each write; and the server is killed meanwhile. What is not installed is skipped.
"""
import json
import os
import subprocess
import sys
import time
import unittest

import blocks

sys.path.append("core/testing")
import told_skips  # pylint: disable=wrong-import-position

# Where the test is run, and not where its source is: Bazel links to that.
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
PLUGIN = os.path.join(HERE, "nbdkit-weft-plugin.so")
BLOCKD = os.path.join(HERE, "weft_blockd")
MIB = 1 << 20
# Of one program, on a busy machine.
PATIENCE_SECONDS = 200


def run(*command):
    """Status, and all that it said."""
    done = subprocess.run(blocks.ENDS_WITH_US + list(command), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_SECONDS)
    return done.returncode, done.stdout


def make_file(path, mib):
    """Data with holes and zeros in between."""
    with open(path, "wb") as file:
        for part in range(mib):
            if part % 4 == 1:
                file.seek(MIB, os.SEEK_CUR)
            else:
                file.write(bytes(MIB) if part % 4 == 2 else os.urandom(MIB))
        file.truncate(mib * MIB)


class Case(unittest.TestCase):
    """Servers and a folder that go with the test."""

    def setUp(self):
        why_not = blocks.lacking("nbdkit", "nbdinfo")
        if why_not:
            self.skipTest(why_not)
        self.folder = blocks.Folder()
        self.addCleanup(self.folder.close)
        self.image = self.folder.file("disk.img")

    def serve(self, *arguments, mib=16, path="shm"):
        if not os.path.exists(self.image):
            with open(self.image, "wb") as file:
                file.truncate(mib * MIB)
        server = blocks.Blockd(BLOCKD, self.image, "--paths=" + path, *arguments)
        self.addCleanup(server.close)
        return server

    def nbdkit(self, server, *arguments, name="nbdkit"):
        kit = blocks.Nbdkit(self.folder, name, [PLUGIN, "server=" + server.address] +
                            list(arguments))
        self.addCleanup(kit.close)
        return kit

    def done(self, *command):
        status, said = run(*command)
        self.assertEqual(status, 0, "%s: %s" % (" ".join(command), said))
        return said

    def need(self, *programs):
        why_not = blocks.lacking(*programs)
        if why_not:
            self.skipTest(why_not)

    def assertSame(self, one, other):
        self.assertEqual(run("cmp", one, other), (0, ""))


class Copies(Case):
    def copies(self, path):
        self.need("nbdcopy")
        kit = self.nbdkit(self.serve(path=path, mib=16))
        make_file(self.folder.file("in"), 16)
        self.done("nbdcopy", "--flush", self.folder.file("in"), kit.uri)
        self.assertSame(self.folder.file("in"), self.image)
        self.done("nbdcopy", kit.uri, self.folder.file("out"))
        self.assertSame(self.folder.file("in"), self.folder.file("out"))

    def test_nbdcopy_both_ways_over_shared_memory(self):
        self.copies("shm")

    def test_nbdcopy_both_ways_over_tcp(self):
        self.copies("tcp")

    def test_qemu_img_copies_and_compares(self):
        self.need("qemu-img")
        make_file(self.image, 16)
        kit = self.nbdkit(self.serve())
        self.done("qemu-img", "compare", "-f", "raw", "-F", "raw", self.image, kit.uri)
        make_file(self.folder.file("in"), 16)
        self.done("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", self.folder.file("in"),
                  kit.uri)
        self.done("qemu-img", "compare", "-f", "raw", "-F", "raw", self.folder.file("in"), kit.uri)
        self.assertSame(self.folder.file("in"), self.image)

    def test_checkwrite_finds_each_write_as_it_is(self):
        self.need("nbdcopy")
        make_file(self.image, 16)
        server = self.serve()
        self.done("nbdkit", "-U", "-", "--filter=checkwrite", PLUGIN, "server=" + server.address,
                  "--run", 'nbdcopy "$uri" "$uri"')

    def test_what_is_long_is_zeroed_and_trimmed_in_pieces(self):
        """From a place within the first piece to one within the last."""
        self.need("qemu-io")
        data = os.urandom(80 * MIB)
        with open(self.image, "wb") as file:
            file.write(data)
        kit = self.nbdkit(self.serve())
        first, end = MIB + 512, 70 * MIB + 512
        self.done("qemu-io", "-f", "raw", "-d", "unmap",
                  "-c", "write -z %d %d" % (first, end - first),
                  "-c", "discard %d %d" % (end, 5 * MIB), "-c", "flush", kit.uri)
        with open(self.image, "rb") as file:
            now = file.read()
        self.assertTrue(now[:first] == data[:first])
        self.assertTrue(now[first:end] == bytes(end - first))
        self.assertTrue(now[end + 5 * MIB:] == data[end + 5 * MIB:])

    def test_extents_are_those_of_the_file(self):
        with open(self.image, "wb") as file:
            file.truncate(16 * MIB)
            file.seek(4 * MIB)
            file.write(os.urandom(MIB))
        kit = self.nbdkit(self.serve())
        told = json.loads(self.done("nbdinfo", "--map", "--json", kit.uri))
        self.assertEqual(sum(extent["length"] for extent in told), 16 * MIB, told)
        if os.stat(self.image).st_blocks * 512 < 8 * MIB:  # this file system has holes
            self.assertIn((0, 4 * MIB, 3), [(e["offset"], e["length"], e["type"]) for e in told])


class Facts(Case):
    def test_what_clients_are_told(self):
        info = json.loads(self.done("nbdinfo", "--json", self.nbdkit(self.serve()).uri))
        export = info["exports"][0]
        self.assertEqual(export["export-size"], 16 * MIB)
        for fact in ("can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero",
                     "can_fast_zero", "can_df"):
            self.assertTrue(export[fact], fact)
        self.assertFalse(export["is_read_only"])

    def test_a_server_for_reading_only(self):
        kit = self.nbdkit(self.serve("--read_only"))
        info = json.loads(self.done("nbdinfo", "--json", kit.uri))
        self.assertTrue(info["exports"][0]["is_read_only"])

    def test_nbdkit_in_the_background_serves_after_its_fork(self):
        server = self.serve()
        pid_file = self.folder.file("pid")
        socket = self.folder.file("background.sock")
        self.done("nbdkit", "-P", pid_file, "-U", socket, PLUGIN, "server=" + server.address)
        while not (os.path.exists(pid_file) and os.path.getsize(pid_file)):
            time.sleep(0.01)  # there is nothing else to wait for
        with open(pid_file) as file:
            pid = int(file.read())
        self.addCleanup(os.kill, pid, 15)
        self.done("nbdinfo", "nbd+unix:///?socket=" + socket)

    def test_mistakes_are_told_before_it_goes_to_the_background(self):
        for arguments, words in (([], "server=ADDRESS is needed"),
                                 (["server=x", "nonsense=1"], 'unknown parameter "nonsense"'),
                                 (["server=x", "paths=pigeons"], "pigeons"),
                                 (["server=x", "patience=0"], "must be 1 to 3600"),
                                 (["server=x", "tls-nonsense=1"], "tls-nonsense")):
            status, said = run("nbdkit", "-U", "-", PLUGIN, *arguments, "--run", "true")
            self.assertNotEqual(status, 0, arguments)
            self.assertIn(words, said)

    def test_a_server_that_is_not_there(self):
        server = self.serve()
        server.kill()
        with self.assertRaisesRegex(RuntimeError, "weft: no server at " + server.address):
            self.nbdkit(server)

    def test_one_client_cannot_be_given_more_connections_than_there_are(self):
        with self.assertRaisesRegex(RuntimeError, "max_connections_of_one is 5; 0 to 4"):
            self.serve("--max_connections=4", "--max_connections_of_one=5")

    def test_a_server_that_is_stopped_says_what_it_has_served(self):
        server = self.serve()
        self.done("nbdinfo", self.nbdkit(server).uri)
        status, said = server.stop()
        self.assertEqual(status, 0, said)
        self.assertIn("0 broken connections", said)


class Security(Case):
    def secret(self, name):
        file = self.folder.file(name)
        with open(file, "w") as to:
            to.write(os.urandom(32).hex())
        return file

    def test_clients_prove_who_they_are_and_a_policy_says_what_they_may(self):
        self.need("nbdcopy")
        secret = self.secret("secret")
        rules = self.folder.file("policy")
        with open(rules, "w") as to:
            to.write("allow psk:reader weft.embed.wire.Block/Attach\n"
                     "allow psk:reader weft.embed.wire.Block/Read\n"
                     "allow psk:reader weft.embed.wire.Block/Extents\n")
        server = self.serve("--policy=" + rules, "--tls-psk-name=reader", "--tls-psk-file=" + secret,
                            path="tcp")
        psk = ["tls-psk-name=reader", "tls-psk-file=" + secret]
        kit = self.nbdkit(server, *psk)
        self.done("nbdcopy", kit.uri, self.folder.file("out"))
        self.assertSame(self.image, self.folder.file("out"))
        make_file(self.folder.file("in"), 16)
        status, said = run("nbdcopy", self.folder.file("in"), kit.uri)
        self.assertNotEqual(status, 0)
        self.assertIn("Operation not permitted", said)
        self.assertSame(self.image, self.folder.file("out"))

        another = ["tls-psk-name=reader", "tls-psk-file=" + self.secret("another")]
        for name, wrong in (("nobody", []), ("another", another)):
            with self.assertRaisesRegex(RuntimeError, "nbdkit did not start: nbdkit: error: weft: "):
                self.nbdkit(server, *wrong, name=name)


class Kills(Case):
    def fio(self, uri, *arguments):
        return ["fio", "--name=verified", "--ioengine=nbd", "--uri=" + uri, "--thread",
                "--rw=randwrite", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0",
                "--output-format=terse"] + list(arguments)

    def verified(self, path):
        self.need("fio")
        kit = self.nbdkit(self.serve(path=path, mib=32))
        self.done(*self.fio(kit.uri, "--bs=4k", "--iodepth=16", "--size=8M", "--fsync=64"))
        self.done(*self.fio(kit.uri, "--bsrange=4k-256k", "--iodepth=16", "--size=32M"))

    def test_fio_verifies_over_shared_memory(self):
        self.verified("shm")

    def test_fio_verifies_over_tcp(self):
        self.verified("tcp")

    def killed(self, path):
        """The server dies three times, while fio writes all of the device and flushes; what is
        written is seen by the blocks that the file takes."""
        self.need("fio")
        server = self.serve(path=path, mib=32)
        kit = self.nbdkit(server)
        with open(self.folder.file("fio.log"), "w") as log:
            fio = subprocess.Popen(blocks.ENDS_WITH_US + self.fio(
                kit.uri, "--bs=16k", "--iodepth=16", "--size=32M", "--fsync=16"),
                stdout=log, stderr=log)
        self.addCleanup(fio.kill)
        for part in (1, 2, 3):
            while os.stat(self.image).st_blocks * 512 < part * 7 * MIB:
                self.assertIsNone(fio.poll(), "fio has ended before kill %d" % part)
                time.sleep(0.001)  # there is nothing else to wait for
            server.kill()
            server.start()
        status = fio.wait(PATIENCE_SECONDS)
        with open(self.folder.file("fio.log")) as log:
            self.assertEqual(status, 0, log.read() + kit.said())
        self.assertNotIn("error: weft: ", kit.said())

    def test_what_was_flushed_survives_kills_over_shared_memory(self):
        self.killed("shm")

    def test_what_was_flushed_survives_kills_over_tcp(self):
        self.killed("tcp")

    def test_without_a_server_an_operation_ends_with_an_error_that_says_why(self):
        self.need("nbdcopy")
        server = self.serve()
        kit = self.nbdkit(server, "patience=1")
        server.kill()
        status, said = run("nbdcopy", kit.uri, self.folder.file("out"))
        self.assertNotEqual(status, 0)
        self.assertIn("Input/output error", said)
        self.assertIn("given up after", kit.said())


if __name__ == "__main__":
    told_skips.main()
