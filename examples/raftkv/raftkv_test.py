#!/usr/bin/env python3
"""A group of real processes: what was acknowledged stays, and every history is linearizable, whoever is
killed or frozen, joins or leaves, or has a full disk."""
import os
import re
import subprocess
import time
import unittest

from group import ENDS_WITH_US, Folder, Group, free_ports
from raftkv import programs_in

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
PROGRAMS = programs_in(os.path.normpath(ROOT))
WEFT = os.path.join(ROOT, "tools/weft/weft")
# Snapshots come often, and elections do not on a busy machine.
FLAGS = ("--election_ms=1000", "--heartbeat_ms=100", "--snapshot_entries=100")
# In a mount namespace of its own: DIR has so many bytes.
SMALL_DISK = ["unshare", "-rm", "sh", "-c",
              'mount -t tmpfs -o size=32m tmpfs "$0" && exec "$@"']


def write_lines(path, lines, value_bytes=100):
    with open(path, "w") as to:
        for i in range(lines):
            to.write("key-%06d\t%s\n" % (i, ("%d-" % i) * (value_bytes // len("%d-" % i))))


class RaftKv(unittest.TestCase):
    def group(self, flags=(), **arguments):
        group = Group(PROGRAMS, flags=(*FLAGS, *flags), **arguments)
        self.addCleanup(group.close)
        return group

    def start_check(self, group, seconds):
        return group.client("--seconds=%d" % seconds, "--outstanding=8", "--timeout_ms=30000", "check")

    def expect_linearizable(self, check):
        said, _ = check.communicate(timeout=120)
        self.assertEqual(check.returncode, 0, said)
        self.assertIn("0 errors", said)
        self.assertIn("linearizable:", said)

    def start_load(self, group, lines):
        write_lines(group.path("lines"), lines)
        return group.client("--outstanding=8", "--timeout_ms=30000", "load", group.path("lines"))

    def expect_loaded(self, group, load):
        said, _ = load.communicate(timeout=120)
        self.assertEqual(load.returncode, 0, said)
        self.expect_all_there(group)

    def expect_all_there(self, group):
        status, said = group.run_client("--timeout_ms=30000", "verify", group.path("lines"))
        self.assertEqual(status, 0, said)

    def test_killed_leaders_and_followers_lose_nothing(self):
        group = self.group()
        leader = group.leader()
        check, load = self.start_check(group, 8), self.start_load(group, 1500)
        time.sleep(1)
        group.kill(leader)
        follower = next(each for each in (1, 2, 3) if each not in (leader, group.leader(but=leader)))
        group.start(leader)
        self.assertTrue(group.wait_caught_up(leader))
        group.kill(follower)
        time.sleep(1)
        group.start(follower)
        self.assertTrue(group.wait_caught_up(follower))
        self.expect_linearizable(check)
        self.expect_loaded(group, load)
        leader = group.leader()
        told = group.status(leader, timeout_ms=5000, restart_latency=True)
        self.assertGreater(told["committed"], 0)
        self.assertLess(0, told["commit p50"])
        self.assertLessEqual(told["commit p50"], told["commit p99"])
        self.assertLessEqual(told["commit p99"], told["commit p99.9"])
        anew = group.status(leader, timeout_ms=5000)
        self.assertLess(anew["committed"], told["committed"])
        # And when all of them are killed at once.
        for number in (1, 2, 3):
            group.kill(number)
        for number in (1, 2, 3):
            group.start(number)
        self.expect_all_there(group)

    def expect_to_go_on_without(self, group, frozen):
        """Of three members one is frozen, and the others commit; it goes on, and catches up."""
        group.freeze(frozen)
        group.leader(but=frozen)
        others = [each for each in (1, 2, 3) if each != frozen]
        code, said = group.ask("measure", 1, 1, 100, members=others, timeout_ms=60000)
        self.assertEqual(code, 0, said)
        # Committed, so a state that was frozen before lacks it: also that of a leader that was.
        reached = max(self.applied(group, each) for each in others)
        group.thaw(frozen)
        self.assertTrue(group.wait_until(lambda: self.applied(group, frozen) >= reached))

    def applied(self, group, number):
        status = group.status(number, timeout_ms=5000)
        return status["state of entry"] if status else 0

    def test_frozen_followers_and_leaders_are_done_without_and_answer_nothing_old(self):
        group = self.group()
        leader = group.leader()
        check = self.start_check(group, 5)
        self.assertTrue(group.wait_until(lambda: self.applied(group, leader) > 50))
        self.expect_to_go_on_without(group, leader % 3 + 1)
        self.expect_to_go_on_without(group, group.leader())
        self.expect_linearizable(check)

    def test_members_join_by_a_snapshot_are_promoted_and_leave(self):
        group = self.group()
        write_lines(group.path("lines"), 600, value_bytes=8000)  # more than one message holds
        status, said = group.run_client("--timeout_ms=30000", "load", group.path("lines"))
        self.assertEqual(status, 0, said)
        check = self.start_check(group, 6)
        group.join(4)
        self.assertGreaterEqual(group.status(4, timeout_ms=5000)["restored"], 1)
        group.admin("transfer", 4)
        self.assertEqual(group.leader(), 4)
        group.admin("remove", 1)
        group.processes[1].terminate()
        self.assertEqual(group.processes[1].wait(timeout=60), 0, group.said(1))
        self.expect_linearizable(check)
        self.expect_all_there(group)

    def test_a_leader_whose_disk_is_full_ends_and_the_others_go_on(self):
        if subprocess.run([*SMALL_DISK, "/tmp", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no file system can be mounted here")
        group = self.group()
        os.mkdir(group.path("4"))
        group.join(4, before=[*SMALL_DISK, group.path("4")])
        group.admin("transfer", 4)
        write_lines(group.path("lines"), 600, value_bytes=100_000)  # more than the disk has
        status, said = group.run_client("--timeout_ms=60000", "--outstanding=8", "load",
                                        group.path("lines"))
        self.assertEqual(status, 0, said)
        self.assertEqual(group.processes[4].wait(timeout=60), 1, group.said(4))
        self.assertIn("the log cannot be written", group.said(4))
        self.expect_all_there(group)
        # It comes back as another one: what it had promised is gone with its disk.
        group.client_addresses.pop(4)
        group.admin("remove", 4)
        group.join(5)
        self.expect_all_there(group)

    def test_entries_that_are_written_into_rings_survive_the_same(self):
        for path in ("shm", "tcp"):
            with self.subTest(path=path):
                group = Group(PROGRAMS, paths=path, flags=(*FLAGS, "--replication=ring"))
                try:
                    leader = group.leader()
                    check = self.start_check(group, 4)
                    time.sleep(1)
                    if path == "shm":
                        self.expect_to_go_on_without(group, leader)
                        leader = group.leader()
                    group.kill(leader)
                    second = group.leader(but=leader)
                    group.start(leader)
                    self.expect_linearizable(check)
                    self.assertTrue(group.wait_caught_up(leader))
                    told = group.status(second, timeout_ms=5000)
                    self.assertGreater(told["written into rings"] + told["taken from rings"], 0)
                finally:
                    group.close()

    def test_writes_alone_are_a_quorum_that_survives_a_minority(self):
        group = Group(PROGRAMS, paths="shm", flags=(*FLAGS, "--replication=remote-writes"))
        self.addCleanup(group.close)
        check = self.start_check(group, 5)
        self.assertTrue(group.wait_until(lambda: self.by_writes(group, group.leader()) > 0))
        leader = group.leader()
        self.expect_to_go_on_without(group, leader % 3 + 1)
        self.expect_to_go_on_without(group, group.leader())
        leader = group.leader()
        group.kill(leader)
        second = group.leader(but=leader)
        group.start(leader)
        self.expect_made_up_for(group, leader)
        follower = next(each for each in (1, 2, 3) if each not in (leader, second))
        group.kill(follower)
        group.start(follower)
        self.expect_linearizable(check)
        self.expect_made_up_for(group, follower)

    def test_over_shared_memory_the_only_follower_need_not_run_for_a_commit(self):
        self.expect_commits_without_the_only_follower("shm")

    @unittest.skipUnless("WEFT_LAB_IP" in os.environ, "it needs a card: ./dev lab (docs/lab.md)")
    def test_over_verbs_the_only_follower_need_not_run_for_a_commit(self):
        self.expect_commits_without_the_only_follower("verbs")

    def expect_commits_without_the_only_follower(self, path):
        # One voter elects itself, and for a minute none is elected because the other one is silent.
        # Two of two are the majority: without the follower's memory nothing is committed.
        group = Group(PROGRAMS, members=1, paths=path,
                      flags=(*FLAGS, "--replication=remote-writes", "--election_ms=60000"))
        self.addCleanup(group.close)
        group.join(2)
        self.assertTrue(group.wait_until(
            lambda: group.measure(1, 1, 100) and self.by_writes(group, 1) > 0))
        said = ""

        def commits_while_it_is_frozen():
            # A lease of its memory ends five seconds later at the soonest: on a machine where the
            # question takes longer, it is asked again.
            nonlocal said
            group.freeze(2)
            code, said = group.ask("measure", 1, 20, 100, members=[1], timeout_ms=5000)
            reached = self.applied(group, 1)
            group.thaw(2)
            self.assertTrue(group.wait_until(lambda: self.applied(group, 2) >= reached))
            return code == 0
        self.assertTrue(group.wait_until(commits_while_it_is_frozen), said)
        group.kill(1)  # it would wait for the follower, which ends as well, to take over

    # A member that does not answer in time has none, and has not made up for it.
    def by_writes(self, group, number):
        return (group.status(number, timeout_ms=5000) or {}).get("acknowledged by writes", 0)

    def expect_made_up_for(self, group, number):
        self.assertTrue(group.wait_until(
            lambda: not (group.status(number, timeout_ms=5000) or {}).get("recovering", True)))

    def test_with_tls_a_client_s_certificate_is_none_of_a_member(self):
        folder = Folder()
        self.addCleanup(folder.close)
        certificates, uri = os.path.join(folder.path, "certificates"), "spiffe://example.org/raftkv"
        subprocess.run([WEFT, "cert", certificates, "member=" + uri, "client"], check=True,
                       stdout=subprocess.DEVNULL)

        def tls(name):
            file = os.path.join(certificates, name)
            return ("--tls-certificate=%s.pem" % file, "--tls-key=%s.key" % file,
                    "--tls-roots=%s/ca.pem" % certificates)

        group = self.group(flags=(*tls("member"), "--member_uri=" + uri),
                           client_flags=tls("client"))
        leader = group.leader()
        check = self.start_check(group, 2)
        time.sleep(0.5)
        group.kill(leader)
        group.start(leader)
        self.expect_linearizable(check)
        for name, gets_in in (("member", True), ("client", False)):
            asked = subprocess.run([WEFT, "explain", group.member_addresses[leader], *tls(name)],
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   timeout=120)
            self.assertEqual(asked.returncode == 0, gets_in, asked.stdout)
        group.client_flags = ()
        self.assertIsNone(group.status(leader, timeout_ms=5000))

    def test_one_client_cannot_be_given_more_connections_than_there_are(self):
        folder = Folder()
        self.addCleanup(folder.close)
        done = subprocess.run(
            [*ENDS_WITH_US, PROGRAMS["raftkv_server"], "--id=1", "--dir=" + os.path.join(folder.path, "1"),
             "--member_address=127.0.0.1:%d" % free_ports(1)[0], "--listen=127.0.0.1:0",
             "--max_connections=4", "--max_connections_of_one=5"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("max_connections_of_one is 5; 0 to 4", done.stdout)

    def test_the_leader_proposes_by_itself_to_measure(self):
        group = self.group(members=1)
        rate, p50, p99, p999, cpu, follower = group.measure(8, 100, 100)
        for figure in (rate, p50, p99, p999):
            self.assertGreater(figure, 0)
        self.assertGreaterEqual(cpu, 0)
        self.assertEqual(follower, 0)  # there is none
        self.assertLessEqual(p50, p99)
        self.assertLessEqual(p99, p999)
        status = group.status(group.leader(), timeout_ms=5000)
        self.assertGreaterEqual(status["commands"], 8)
        for words, why in (((0, 1, 1), "outstanding is 0"), ((1, 60001, 1), "milliseconds 60001"),
                           ((1, 1, 65537), "value_bytes 65537"), ((1, "x", 1), "not a number")):
            code, said = group.ask("measure", *words)
            self.assertNotEqual(code, 0)
            self.assertIn(why, said)

    def test_scans_and_ycsb_find_what_the_group_has(self):
        group = self.group(members=2)
        write_lines(group.path("lines"), 20)
        status, said = group.run_client("--timeout_ms=30000", "load", group.path("lines"))
        self.assertEqual(status, 0, said)
        for words, keys, end in ((("--limit=3", "scan", "key-000005"), range(5, 8),
                                  "3 records, and there are more\n"),
                                 (("--limit=0", "scan"), range(20), "20 records\n")):
            status, said = group.run_client("--timeout_ms=30000", *words)
            self.assertEqual(status, 0, said)
            self.assertEqual(re.findall(r"^(key-\d+)\t", said, re.MULTILINE),
                             ["key-%06d" % i for i in keys])
            self.assertIn(end, said)
        # A: gets and updates; E: scans and inserts.
        status, said = group.run_client(
            "--timeout_ms=30000", "--workload=A,E", "--records=50", "--fields=1", "--operations=100",
            "--results=" + group.path("results"), "ycsb")
        self.assertEqual(status, 0, said)
        with open(group.path("results")) as lines:
            results = [line.split("\t") for line in lines]
        self.assertEqual([(each[1], each[8]) for each in results], [("A", "0"), ("E", "0")])

    def test_over_libraft_s_own_tcp(self):
        group = self.group(network="uv")
        leader = group.leader()
        check = self.start_check(group, 5)
        time.sleep(1)
        group.kill(leader)
        group.leader(but=leader)
        group.start(leader)
        self.expect_linearizable(check)


if __name__ == "__main__":
    unittest.main()
