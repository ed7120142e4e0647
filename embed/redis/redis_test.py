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
import time
import unittest

sys.path.append("core/testing")
import told_skips  # pylint: disable=wrong-import-position

# Where the test is run, and not where its source is: Bazel links to that.
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
MODULE = os.path.join(HERE, "weft_redis_module.so")
CLIENT = os.path.join(HERE, "weft_redis")
# Of one program, on a busy machine.
PATIENCE_SECONDS = 60
# What a loop sleeps in: epoll_wait(2) and epoll_pwait(2), as x86-64 numbers them.
EPOLL_WAITS = ("232", "281")


class Redis:
    """A redis-server with the module, or without, in a folder of its own. It ends with this process."""

    def __init__(self, folder, *arguments, module=(MODULE, "127.0.0.1:0")):
        # Debian has the server in one file with what checks its files; the name says which it is.
        program = os.path.join(folder, "redis-server")
        if not os.path.exists(program):
            os.symlink(shutil.which("redis-check-rdb"), program)
        self.socket = os.path.join(folder, "redis.sock")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", program, "--port", "0", "--unixsocket", self.socket,
             "--dir", folder, "--save", "", *(("--loadmodule", *module) if module else ()), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.address = None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if "weft: listening on " in line:
                self.address = line.split()[-1]
            if "Ready to accept connections" in line or "accept connections at" in line:
                break
        if module and self.address is None:
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

    def threads(self):
        """Their names, without jemalloc's: it starts these when it needs them."""
        names = set()
        for thread in os.listdir("/proc/%d/task" % self.process.pid):
            with open("/proc/%d/task/%s/comm" % (self.process.pid, thread), encoding="utf-8") as name:
                names.add(name.read().strip())
        return names - {"jemalloc_bg_thd"}

    def is_asleep_in_its_loop(self):
        with open("/proc/%d/syscall" % self.process.pid, encoding="utf-8") as call:  # of its first thread
            return call.read().split()[0] in EPOLL_WAITS  # else a number, or "running"

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

    def start(self, *arguments, **module):
        redis = Redis(self.folder, *arguments, **module)
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

    # Commands run on Redis' own thread, which all of its data belongs to.
    def test_the_module_starts_no_thread(self):
        redis = self.start()
        for path in ("shm", "tcp"):
            self.assertEqual(redis.weft("PING", path=path, calls=100)[0], 0)
        threads = redis.threads()
        redis.end()
        plain = self.start(module=())
        self.assertEqual(plain.own("PING"), "PONG\n")
        self.assertEqual(threads, plain.threads())

    # Of a loop that looks again and again, the kernel says that it runs.
    def test_the_loop_sleeps_while_a_client_says_nothing(self):
        redis = self.start()
        for path in ("shm", "tcp"):
            client = subprocess.Popen([CLIENT, "--calls=10000000", "--", redis.address, "INCR", "n"],
                                      stdout=subprocess.DEVNULL, env={**os.environ, "WEFT_PATHS": path})
            self.addCleanup(client.wait)
            self.addCleanup(client.kill)
            until = time.monotonic() + PATIENCE_SECONDS
            redis.own("SET", "n", "0")
            while int(redis.own("GET", "n")) == 0:
                self.assertLess(time.monotonic(), until, "no command has arrived")
            client.send_signal(signal.SIGSTOP)
            try:
                while not redis.is_asleep_in_its_loop():
                    self.assertLess(time.monotonic(), until, "the loop does not sleep")
            except PermissionError as refused:
                self.skipTest("this machine does not tell what a process waits in: %s" % refused)
            client.kill()

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

    def test_what_a_user_was_answered_stands_in_the_log_when_redis_is_killed(self):
        log = ("uid:%d" % os.getuid(), "default", "--appendonly", "yes", "--appendfsync", "always")
        redis = self.start(*log)
        self.assertEqual(redis.weft("RPUSH", "kept", "x", calls=50)[0], 0)
        redis.end(signal.SIGKILL)
        redis = self.start(*log)
        self.assertEqual(redis.weft("LLEN", "kept"), (0, "50\n"))

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

    def assert_denied(self, said, words):
        denied = (said[0], "PERMISSION_DENIED" in said[1], words in said[1])
        self.assertEqual(denied, (1, True, True), said)

    # Redis' users come and go, and change, while a client is connected or not.
    def test_commands_run_as_the_user_that_is_for_their_client(self):
        redis = self.start("uid:%d" % os.getuid(), "app")
        self.assert_denied(redis.weft("GET", "app:1"), "user app is not there")
        redis.own("ACL", "SETUSER", "app", "on", "~app:*", "+get", "+set", "+sort",
                  "+publish", "resetchannels")
        self.assertEqual(redis.weft("SET", "app:1", "x"), (0, "OK\n"))
        self.assertEqual(redis.weft("GET", "app:1"), (0, "x\n"))
        self.assert_denied(redis.weft("SET", "other", "x"), "keys")
        self.assert_denied(redis.weft("DEL", "app:1"), "command")
        self.assert_denied(redis.weft("PUBLISH", "news", "x"), "channel")
        self.assertEqual(redis.own("EXISTS", "app:1", "other"), "1\n")
        # What cannot be a command is refused as ever, and ends nobody.
        for words in (("GET",), ("NOSUCHCOMMAND",), ("",), ("SET", "app:1"),
                      ("ACL", "DELUSER", "app")):
            self.assertEqual(redis.weft(*words)[0], 1, words)
        log = redis.own("ACL", "LOG")
        for denied in (("key", "other"), ("command", "DEL"), ("channel", "news")):
            self.assertIn("reason\n%s\ncontext\nmodule\nobject\n%s\nusername\napp\n" % denied, log)
        self.assertNotIn("username\ndefault\n", log)
        # What a command looks at besides its keys is the user's, too.
        redis.own("RPUSH", "app:list", "1")
        status, said = redis.weft("SORT", "app:list", "GET", "secret:*")
        self.assertEqual(status, 1, said)
        redis.own("ACL", "SETUSER", "app", "off")
        self.assert_denied(redis.weft("GET", "app:1"), "user app is off")
        redis.own("ACL", "DELUSER", "app")
        self.assert_denied(redis.weft("GET", "app:1"), "user app is not there")
        redis.own("ACL", "SETUSER", "app", "on", "allkeys", "allcommands")
        self.assertEqual(redis.weft("DEL", "app:1"), (0, "1\n"))

    def test_the_first_user_whose_clients_have_this_one_counts(self):
        redis = self.start("uid:%d" % (os.getuid() + 1), "nobody", "uid:%d" % os.getuid(),
                           "default", "anyone", "guest")
        redis.own("ACL", "SETUSER", "guest", "on", "~*", "+get")
        self.assertEqual(redis.weft("SET", "a", "x"), (0, "OK\n"))
        # Over tcp nobody vouches for a client.
        self.assertEqual(redis.weft("GET", "a", path="tcp"), (0, "x\n"))
        self.assert_denied(redis.weft("SET", "a", "y", path="tcp"), "command")

    def test_who_is_named_by_nobody_is_refused(self):
        redis = self.start("uid:%d" % os.getuid(), "default")
        self.assertEqual(redis.weft("PING"), (0, "PONG\n"))
        self.assert_denied(redis.weft("PING", path="tcp"), "nobody has proved who it is")

    def said_when_loaded_with(self, *words):
        """By a Redis that does not start, for its module is not loaded."""
        done = subprocess.run(["redis-server", "--port", "0", "--unixsocket", self.folder + "/s",
                               "--loadmodule", MODULE, *words],
                              executable=shutil.which("redis-check-rdb"), stdout=subprocess.PIPE,
                              text=True, timeout=PATIENCE_SECONDS)
        self.assertNotEqual(done.returncode, 0)
        return done.stdout

    def test_without_an_address_of_this_host_the_module_is_not_loaded_and_says_so(self):
        self.assertIn("weft: a word is missing, the address to serve at", self.said_when_loaded_with())
        self.assertIn("it must be one of this host", self.said_when_loaded_with("0.0.0.0:0"))

    def test_users_that_make_no_sense_are_refused_when_the_module_is_loaded(self):
        self.assertIn("behind uid:0 a user of Redis' is missing",
                      self.said_when_loaded_with("127.0.0.1:0", "uid:0"))
        self.assertIn("is no number of a user",
                      self.said_when_loaded_with("127.0.0.1:0", "uid:x", "app"))
        self.assertIn("names nobody", self.said_when_loaded_with("127.0.0.1:0", "app", "app"))


if __name__ == "__main__":
    told_skips.main()
