#!/usr/bin/env python3
"""A replicated key-value store of three processes: what it does, and what it survives.

    raftkv.py FOLDER [--seconds N] [--outstanding N] [--logs disk,ram] [--paths tcp,shm,verbs]
              [--election_ms N] [--no_spin] [--only figures|commits|faults]

FOLDER has the built programs: examples/raftkv/raftkv_server, raftkv_admin, examples/kv/kv_client.

Figures: YCSB A (half gets, half updates; both wait for the log) for N seconds, with one call
under way and with as many as --outstanding (64), over libraft's own TCP, Weft's tcp and shared
memory, by messages, by rings and by the leader's writes alone (--replication), the log on a disk and
in memory, in turns. p50, p99 and p99.9 are a client's round trip; of commits they are the leader's own, from
raft_apply() to its callback; the last figure is the processor time of a follower for each commit, on
the commits' path or not: with remote-writes a follower takes entries at its ticks. Commits: the leader
proposes commands by itself, with no client beside it, the log on a disk and in memory: one member
alone, which is what libraft takes without a network; two that do not sleep, each bound to a processor
of its own; and, in memory (figures have them on a disk), three that sleep; with the processor time of
all. Faults: clients put, get and delete, and note what they see; the leader
is killed (SIGKILL) and started again, the next one is frozen; the history of all calls is checked for
linearizability. Status 1 if anything of it failed.

All of it starts 38 groups, and ends within two minutes on two processors, as does each part with
--only: N is 0.4 for all, and 1 for a part; commits take half as long. With --seconds 5 figures vary
less, and p99.9 and processor times, which are counted in steps of 10 ms, mean more.

--paths: figures and commits over these, tcp and shm if it is not given; faults over any of these, or what
Weft chooses. verbs takes an RDMA card, or a machine of the lab (docs/lab.md). A leader that says that it
reaches the others by another path fails the run. --no_spin leaves out members that do not sleep.
"""
import argparse
import os
import signal
import subprocess
import sys
import time

from group import Group

RECORDS = 1000
# --seconds, where it is not said: of all parts and of one. There are 28 turns of figures and 46 of
# commits, of half that; the rest of two minutes is elections.
ALL_SECONDS = 0.4
PART_SECONDS = 1
COMMAND_BYTES = 100  # of a command that the leader proposes by itself
RING = ("--replication=ring",)
WRITES = ("--replication=remote-writes",)
# Name, --network, path, further flags of the servers: as networks() has them. The others are beside
# the first.
LIBRAFT = ("libraft tcp", "uv", "tcp", ())
PATHS = "tcp,shm"
# Where files are in memory.
RAM = "/dev/shm"
# The first election begins one to two of these after a group's start, 0.5 to 1 s, and there are 38
# groups in two minutes: so it is not longer. With a shorter one a busy machine, whose leader is not
# run for as long, begins elections by itself.
ELECTION_MS = 500


def election(options):
    return ("--election_ms=%d" % options.election_ms,
            "--heartbeat_ms=%d" % max(options.election_ms // 10, 1))


def networks(options):
    rows = [LIBRAFT]
    for path in (options.paths or PATHS).split(","):
        rows += [("Weft " + path, "weft", path, ()), ("Weft %s ring" % path, "weft", path, RING),
                 ("Weft %s writes" % path, "weft", path, WRITES)]
    return rows


def programs_in(folder):
    return {"raftkv_server": os.path.join(folder, "examples/raftkv/raftkv_server"),
            "raftkv_admin": os.path.join(folder, "examples/raftkv/raftkv_admin"),
            "kv_client": os.path.join(folder, "examples/kv/kv_client")}


def say(text):
    print(text, flush=True)


def check_paths(group, network, path):
    """Raises RuntimeError if a member reaches another by another path than this one."""
    if network != "weft":
        return
    leader = group.leader()
    said = group.status(leader, timeout_ms=5000)
    paths = said["paths"]
    if any(each != path for each in paths.values()) or len(paths) + 1 < len(group.processes):
        raise RuntimeError("member %d reaches the others by %s, not by %s" % (leader, paths, path))


def measure(group, outstanding, seconds, load):
    """One run of YCSB A: p50, p99, p99.9 in microseconds, operations/s, commits/s; p50, p99 and p99.9
    of the leader's commits; and a follower's processor time for each of them."""
    results = group.path("results")
    if os.path.exists(results):
        os.remove(results)
    leader = group.leader()
    before = group.status(leader, timeout_ms=5000, restart_latency=True)
    followers = [each for each in group.processes if each != leader]
    used = -sum(group.cpu_us(each) for each in followers)
    status, said = group.run_client(
        "--records=%d" % RECORDS, "--fields=1", "--load=%s" % str(load).lower(),
        "--seconds=%s" % seconds, "--outstanding=%d" % outstanding, "--results=" + results, "ycsb")
    if status != 0:
        raise RuntimeError(said)
    used += sum(group.cpu_us(each) for each in followers)
    after = group.status(group.leader())
    commits = (after["commands"] - before["commands"] - (RECORDS if load else 0)) / seconds
    with open(results) as lines:
        columns = lines.read().split("\t")
    return [float(columns[i]) for i in (5, 6, 7, 3)] + [
        commits, after["commit p50"], after["commit p99"], after["commit p99.9"],
        used / len(followers) / max(after["committed"], 1)]


def figures(programs, options):
    """Prints a line for each network and number of calls; true if all ran."""
    good = True
    for log in options.logs.split(","):
        baseline = {}
        for name, network, paths, flags in networks(options):
            group = Group(programs, network=network, paths=paths, flags=(*election(options), *flags),
                          parent=RAM if log == "ram" else None)
            try:
                measure(group, 64, 0.2, load=True)
                check_paths(group, network, paths)
                for outstanding in (1, options.outstanding):
                    (p50, p99, p999, rate, commits, commit_p50, commit_p99, commit_p999,
                     cpu) = measure(group, outstanding, options.seconds, load=False)
                    first = baseline.setdefault(outstanding, (p50, rate, commit_p50))
                    say("log on %-4s  %-15s  %3d under way: p50 %7.0f us (%.2f)  p99 %7.0f  p99.9 "
                        "%7.0f  %6.0f calls/s (%.2f)  %5.0f commits/s: p50 %7.0f us (%.2f)  p99 "
                        "%7.0f  p99.9 %7.0f  follower %4.0f us"
                        % (log, name, outstanding, p50, p50 / first[0], p99, p999, rate,
                           rate / first[1], commits, commit_p50, commit_p50 / first[2], commit_p99,
                           commit_p999, cpu))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                good = False
                say("log on %-4s  %-15s  failed: %s" % (log, name, error))
            finally:
                group.close(at_once=True)
    return good


def commits(programs, options):
    """Prints a line for each log, kind of group, network and number of commands; true if all ran."""
    good = True
    cpus = sorted(os.sched_getaffinity(0))
    spin = ("--spin_us=1000000",)
    # Name, members, flags, processors, networks, logs.
    kinds = [("3 members that sleep", 3, (), (), networks(options), ("ram",))]
    if len(cpus) > 1 and not options.no_spin:
        # What libraft takes for its own log and state, which no network can save.
        kinds = [("1 member that spins", 1, spin, cpus[:1], [LIBRAFT], ("disk", "ram")),
                 ("2 members that spin", 2, spin, cpus[:2], networks(options),
                  ("disk", "ram"))] + kinds
    for log in options.logs.split(","):
        for kind, members, more, where, rows, logs in kinds:
            if log in logs:
                good = commits_of(programs, options, log, "%s, log on %s" % (kind, log), rows,
                                  members=members, flags=more, cpus=where) and good
    return good


def commits_of(programs, options, log, kind, rows, flags=(), **arguments):
    """Of one kind of group; true if all ran."""
    good = True
    baseline = {}
    for name, network, paths, more in rows:
        group = Group(programs, network=network, paths=paths,
                      flags=(*election(options), *more, *flags),
                      parent=RAM if log == "ram" else None, **arguments)
        try:
            group.leader()
            group.measure(1, 100, COMMAND_BYTES)
            check_paths(group, network, paths)
            for outstanding in (1, options.outstanding):
                rate, p50, p99, p999, cpu, follower = group.measure(
                    outstanding, max(1, int(options.seconds * 500)), COMMAND_BYTES)
                first = baseline.setdefault(outstanding, (rate, p50, cpu))
                say("%s  %-15s  %3d under way: p50 %7.1f us (%.2f)  p99 %8.1f  p99.9 %8.1f  %7.0f "
                    "commits/s (%.2f)  processors %6.1f us each (%.2f), a follower's %6.1f"
                    % (kind, name, outstanding, p50, p50 / first[1], p99, p999, rate,
                       rate / first[0], cpu, cpu / max(first[2], 0.001), follower))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            good = False
            say("%s  %-15s  failed: %s" % (kind, name, error))
        finally:
            group.close(at_once=True)
    return good


def faults(programs, options):
    """A leader that is killed and one that is frozen under load; true if nothing was lost."""
    group = Group(programs, paths=options.paths, flags=election(options))
    try:
        first = group.leader()
        say("three members, member %d leads; clients put, get and delete, 8 calls at a time" % first)
        check = group.client("--seconds=7", "--outstanding=8", "--timeout_ms=20000", "check")
        time.sleep(1)
        start = time.monotonic()
        group.kill(first)
        second = group.leader(but=first)
        say("member %d was killed (SIGKILL); member %d leads after %.2f s"
            % (first, second, time.monotonic() - start))
        group.start(first)
        if not group.wait_caught_up(first):
            say("member %d did not catch up" % first)
            return False
        say("member %d was started again, and has caught up" % first)
        group.signal(second, signal.SIGSTOP)
        start = time.monotonic()
        third = group.leader(but=second)
        say("member %d was frozen (SIGSTOP); member %d leads after %.2f s"
            % (second, third, time.monotonic() - start))
        group.signal(second, signal.SIGCONT)
        said, _ = check.communicate(timeout=120)
        say(said.strip())
        return check.returncode == 0
    finally:
        group.close()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--outstanding", type=int, default=64)
    parser.add_argument("--logs", default="disk,ram")
    parser.add_argument("--paths", default="")
    parser.add_argument("--election_ms", type=int, default=ELECTION_MS)
    parser.add_argument("--no_spin", action="store_true")
    parser.add_argument("--only", choices=["figures", "commits", "faults"])
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = PART_SECONDS if options.only else ALL_SECONDS
    programs = programs_in(options.folder)
    good = options.only not in (None, "faults") or faults(programs, options)
    if options.only in (None, "commits"):
        say("\nCommands that the leader proposes by itself; in brackets: beside libraft's own TCP")
        good = commits(programs, options) and good
    if options.only in (None, "figures"):
        say("\nYCSB A, %d records, three members; in brackets: beside libraft's own TCP" % RECORDS)
        good = figures(programs, options) and good
    return 0 if good else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
