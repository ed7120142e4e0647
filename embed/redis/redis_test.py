#!/usr/bin/env python3
"""Debian's Redis with Weft's module: commands come over Weft and by Redis' own protocol, in one
process and one event loop, and see the same data."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

# Where the test is run, and not where its source is: Bazel links to that.
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
MODULE = os.path.join(HERE, "weft_redis_module.so")
CLIENT = os.path.join(HERE, "weft_redis")
# Of one program, on a busy machine.
PATIENCE_SECONDS = 60


class Redis:
    """A redis-server with the module, in a folder of its own. It ends with this process."""

    def __init__(self, folder, *arguments):
        # Debian has the server in one file with what checks its files; the name says which it is.
        program = os.path.join(folder, "redis-server")
        if not os.path.exists(program):
            os.symlink(shutil.which("redis-check-rdb"), program)
        self.socket = os.path.join(folder, "redis.sock")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", program, "--port", "0", "--unixsocket", self.socket,
             "--dir", folder, "--save", "", "--loadmodule", MODULE, "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.address = None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if "weft: listening on " in line:
                self.address = line.split()[-1]
            if "Ready to accept connections" in line or "accept connections at" in line:
                break
        if self.address is None:
            raise RuntimeError("redis-server did not start:\n" + "".join(said))
        # Nobody else reads what it says, and a full pipe would stop it.
        threading.Thread(target=self.process.communicate, daemon=True).start()

    def weft(self, *words, path="shm", calls=0):
        """A command over Weft: exit status, and what it printed."""
        done = subprocess.run([CLIENT, "--calls=%d" % calls, "--", self.address, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="surrogateescape", timeout=PATIENCE_SECONDS,
                              env={**os.environ, "WEFT_PATHS": path})
        return done.returncode, done.stdout

    def own(self, *words):
        """The same by Redis' own protocol."""
        return subprocess.run(["redis-cli", "-s", self.socket, *words], stdout=subprocess.PIPE, text=True,
                              timeout=PATIENCE_SECONDS, check=True).stdout

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_SECONDS)


class RedisTest(unittest.TestCase):

    def setUp(self):
        for program in ("redis-check-rdb", "redis-cli"):
            if shutil.which(program) is None:
                self.skipTest(program + " is not installed")
        self.folder = tempfile.mkdtemp(prefix="weft-redis-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, *arguments):
        redis = Redis(self.folder, *arguments)
        self.addCleanup(redis.process.wait)
        self.addCleanup(redis.process.kill)
        return redis

    def test_both_protocols_see_the_same_data(self):
        redis = self.start()
        for path in ("shm", "tcp"):
            self.assertEqual(redis.weft("SET", "by", "Weft over " + path, path=path), (0, "OK\n"))
            self.assertEqual(redis.own("GET", "by"), "Weft over %s\n" % path)
            self.assertEqual(redis.own("SET", "by", "Redis"), "OK\n")
            self.assertEqual(redis.weft("GET", "by", path=path), (0, "Redis\n"))
        self.assertEqual(redis.end(), 0)

    def test_every_kind_of_reply_arrives(self):
        redis = self.start()
        self.assertEqual(redis.weft("INCRBY", "n", "41"), (0, "41\n"))
        self.assertEqual(redis.weft("GET", "nothing"), (0, "\n"))
        self.assertEqual(redis.weft("RPUSH", "list", "a", "b"), (0, "2\n"))
        self.assertEqual(redis.weft("LRANGE", "list", "0", "-1"), (0, "a\nb\n"))
        status, said = redis.weft("INCR", "list")
        self.assertEqual(status, 1)
        self.assertIn("WRONGTYPE", said)

    # A refusal quotes the command, which need be no text.
    def test_what_is_no_text_is_refused_as_well(self):
        redis = self.start()
        status, said = redis.weft(b"\xff\xfe")
        self.assertEqual((status, b"ERR" in said.encode(errors="surrogateescape")), (1, True), said)

    def test_what_belongs_to_a_clients_connection_is_refused_and_the_server_goes_on(self):
        redis = self.start()
        for words in (("SUBSCRIBE", "news"), ("MULTI",), ("SHUTDOWN",), ("BLPOP", "empty", "0"),
                      ("NOSUCHCOMMAND",), ("GET",), ("",)):
            status, said = redis.weft(*words)
            self.assertEqual((status, "ERR" in said), (1, True), (words, said))
        self.assertEqual(redis.weft("PING"), (0, "PONG\n"))

    def test_a_megabyte_passes(self):
        redis = self.start()
        redis.own("EVAL", "redis.call('SET', 'large', string.rep('x', 1000000))", "0")
        self.assertEqual(redis.weft("GET", "large", path="tcp"), (0, "x" * 1000000 + "\n"))

    # A reply that left before Redis had written its log would promise what a kill can take back.
    def test_what_was_answered_stands_in_the_log_when_redis_is_killed(self):
        log = ("--appendonly", "yes", "--appendfsync", "always")
        redis = self.start(*log)
        self.assertEqual(redis.weft("RPUSH", "kept", "x", calls=200)[0], 0)
        redis.end(signal.SIGKILL)
        redis = self.start(*log)
        self.assertEqual(redis.weft("LLEN", "kept"), (0, "200\n"))

    # A write while Redis had paused them ended the process, by a check of its own.
    def test_a_command_is_refused_while_redis_pauses_its_clients(self):
        redis = self.start("--appendonly", "yes")
        redis.own("CLIENT", "PAUSE", "100000", "WRITE")
        status, said = redis.weft("SET", "paused", "no")
        self.assertEqual((status, "paused its clients" in said), (1, True), said)
        redis.own("CLIENT", "UNPAUSE")
        self.assertEqual(redis.weft("SET", "paused", "no"), (0, "OK\n"))

    # Redis saves in a child that it forks, while clients of both kinds go on.
    def test_a_save_in_the_background_disturbs_nobody(self):
        redis = self.start()
        redis.weft("SET", "saved", "yes")
        self.assertIn("started", redis.own("BGSAVE"))
        self.assertEqual(redis.weft("GET", "saved", calls=200)[0], 0)
        self.assertEqual(redis.weft("GET", "saved"), (0, "yes\n"))

    def said_when_loaded_with(self, *words):
        """By a Redis that does not start, for its module is not loaded."""
        done = subprocess.run(["redis-server", "--port", "0", "--unixsocket", self.folder + "/s",
                               "--loadmodule", MODULE, *words],
                              executable=shutil.which("redis-check-rdb"), stdout=subprocess.PIPE,
                              text=True, timeout=PATIENCE_SECONDS)
        self.assertNotEqual(done.returncode, 0)
        return done.stdout

    def test_without_an_address_of_this_host_the_module_is_not_loaded_and_says_so(self):
        self.assertIn("weft: one word is needed, the address to serve at", self.said_when_loaded_with())
        self.assertIn("it must be one of this host", self.said_when_loaded_with("0.0.0.0:0"))


if __name__ == "__main__":
    unittest.main()
