#!/usr/bin/env python3
"""Attacks a server, with honest clients beside, and judges what became of both.

    hostile.py PROGRAM [SECONDS] [--rounds N] [--paths shm,tcp] [--attack NAME]... [--tls] [--no-figures]
    hostile.py PROGRAM [SECONDS] --short [--rounds N] [--no-figures]

PROGRAM is weft_hostile. For each path (and with --tls once more under TLS) it starts a server and the honest
clients, in processes of their own, and then the attacks, one after the other and at last all together, each
for SECONDS (5) in each of N rounds (3), with a quiet time before each. The server has the first processor, attackers
the second, honest clients the last, which of two is the attackers' too. Attackers on other machines would not take the
honest clients' processors from them: for the figures, server and honest clients are real-time processes where that is
allowed, whom the kernel prefers to all others of this machine; strangers come right behind them; where it is not
allowed, attackers have the lowest priority.

An attack is withstood if, of the server and the four clients that were there before,
  - the server lives, and no call has failed,
  - the server's descriptors are as many as before all attacks, soon after this one,
  - so is its memory, but for what SLACK_MIB names: what it has in use, what its pools have, and what is
    resident once malloc has given back to the system what it had free,
  - nothing new is left in /dev/shm,
  - it has written at most LOG_LINES to its log: nobody fills a disk by knocking,
  - the p99 of small calls, the median of the rounds', is at most RATIO times what it was in the quiet times
    before (not with --no-figures).
Clients that come during the attack, a new connection for each call, are counted and not judged: on one host
nothing tells them from who attacks. When it is over, every one of them has to be served.

With --short: over shm, tcp, and tcp with TLS, each attack where it meets other code than before (SHORT).

The last line is PASS or FAIL with all reasons; exit status 0 or 1.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

# The goal: a p99 during an attack of so many times the p99 before it.
RATIO = 3.0
# What a server may have more of in MiB than before all attacks, at rest; each is bounded by what it keeps, of which
# there is as much as was used at one time, when all attack at once. Then they have 33 connections over tcp: 4 of
# `offers`, 4 of `readers`, 8 of `bulk`, 2 of `streams`, 8 of `frames`, 2 of each of 3 children, 1 that is tampered
# with.
#
# in_use: all that is not in a pool, exactly: a leak of bytes or objects is seen here. Kept are
#   34  ServerCalls::kMaxSpare, 1,024 calls for the next ones, of 1.3 KiB, and 32 KiB that each may keep of its
#       messages and their arena (twice ServerCall::kKeepBytes); 8 to 20 were seen
#    2  a chunk for connections (HugePageArena) that is there for the newcomer of the moment
#    2  what threads keep by them (tcache: 7 blocks of each of 64 sizes, 0.25 MiB for each of two), and lists and
#       hash tables as large as they ever were
# pools: what Weft counts of buffers, shared memory and slots; a leak there is one of the next attack's as well, so
# that it grows until it is seen. NetworkOptions::max_large_bytes and max_pool_bytes bound it, of which are needed
#   88  replies that are not taken, of the 11 connections that ask for large ones (`readers`, the children's, the
#       tampered one): of each 16 of 256 KiB and a header, in buffers of 512 KiB, for these are powers of two
#   55  requests that are fetched: 2 MiB (TransferTable::fetched_bytes, tcp) for each of those 11, which is 7 of 256 KiB
#       and a header, in buffers of 512 KiB; and 4 MiB for each of the 4 connections of `offers`
#   25  places to send from, of 33 connections over tcp: 64 of 8 KiB (LinkOptions::window_slots) and 4 of 64 KiB
# resident: both together, and
#   16  pages that malloc cannot give back, because something on them is in use: a third of the at most 43 MiB that it
#       held of an attack before it was asked to
SLACK_MIB = {"in_use": 34 + 2 + 2, "pools": 88 + 55 + 25}
SLACK_MIB["resident"] = sum(SLACK_MIB.values()) + 16
MEMORY_NAMES = {"in_use": "in use", "pools": "in pools", "resident": "resident"}
# Of warnings that nobody has asked for a place in the source has ten lines at once, and then one in a minute
# (core/log.h); strangers and broken clients reach some eight of them.
LOG_LINES = 100
# How long memory and descriptors may take to return: connections that are put out say goodbye for a second.
SETTLE_SECONDS = 15
# What takes longer than this hangs. For machines that do much else.
PATIENCE_SECONDS = 60
WARM_UP_SECONDS = 2.0
# Some newcomers' calls, of which there are ten a second.
MIN_AFTER_SECONDS = 0.5

# In this order. "all" comes last, and is all of the path's at once.
STRANGERS = ["strangers", "half-open", "garbage", "replay", "hellos"]
MEMBERS = ["offers", "readers", "bulk", "streams", "frames", "killed"]
# The wire can be touched on tcp, the memory on shm.
BY_PATH = {"shm": ["scribblers"], "tcp": ["tampered"]}

# For tests, which have two minutes: (path, with TLS, attacks; None: all of the path's). Strangers come to the same
# sockets whatever the path of the others, so they attack once without TLS and once with it.
SHORT = [
    ("shm", False, None),
    ("tcp", False, MEMBERS + BY_PATH["tcp"] + ["all"]),
    ("tcp", True, None),
]

# What attackers count of what they are for: one of these at least.
DEEDS = ("connections", "offers", "rounds", "frames", "joined")

# Before a command: it ends with this process, also when nothing here can run any more.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
LOWEST_PRIORITY = ["nice", "-n", "19"]
BEFORE_ALL_OTHERS = ["chrt", "--rr", "2"]
# Of strangers alone, who are to come 10,000 times a second whatever else the machine does: they go behind those.
BEFORE_OTHER_PROGRAMS = ["chrt", "--rr", "1"]


def attacks_on(path):
    return STRANGERS + MEMBERS + BY_PATH[path]


def attackers_cpu():
    """The second, if there are two."""
    return sorted(os.sched_getaffinity(0))[:2][-1]


class Process:
    """One of weft_hostile's roles, which answers lines."""

    def __init__(self, command, log=None):
        self.process = subprocess.Popen(ENDS_WITH_US + command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=log, text=True)
        self.ready = self.process.stdout.readline().split()
        if not self.ready:
            self.process.kill()
            raise RuntimeError("%s did not start" % " ".join(command[:2]))

    def ask(self, what=""):
        """What it says now; None: it is gone."""
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            return None
        return json.loads(line) if line else None

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        """Its exit status."""
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def resident_mib(pid):
    with open("/proc/%d/status" % pid) as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def shm_files():
    return set(os.listdir("/dev/shm"))


def may_run_before_all_others():
    return subprocess.run(BEFORE_ALL_OTHERS + ["true"], check=False, stderr=subprocess.DEVNULL).returncode == 0


def all_rounds(phases):
    """What honest processes said in a phase of each round as one: sums, and the medians of the figures."""
    if None in phases:
        return None
    whole = {}
    for who in ("clients", "newcomers"):
        failed = [phase[who] for phase in phases if phase[who]["failed"]]
        small = [phase[who]["small_us"] for phase in phases]
        whole[who] = {
            "failed": sum(phase["failed"] for phase in failed),
            "error": failed[0]["error"] if failed else "",
            "small_us": {figure: statistics.median(each[figure] for each in small) for figure in small[0]},
        }
        whole[who]["small_us"]["count"] = sum(each["count"] for each in small)
    return whole


def make_certificates(folder):
    """roots.pem, and NAME.pem and NAME.key of a server at 127.0.0.1 and of a client."""
    def openssl(*words):
        subprocess.run(["openssl"] + list(words), cwd=folder, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    openssl("req", "-x509", *curve, "-keyout", "roots.key", "-out", "roots.pem", "-subj", "/CN=hostile roots")
    for name in ("server", "client"):
        openssl("req", *curve[:-2], "-keyout", name + ".key", "-out", name + ".csr", "-subj", "/CN=" + name)
        with open(os.path.join(folder, name + ".ext"), "w") as extensions:
            extensions.write("subjectAltName=IP:127.0.0.1,URI:spiffe://hostile/%s\n" % name)
        openssl("x509", "-req", "-in", name + ".csr", "-CA", "roots.pem", "-CAkey", "roots.key", "-CAcreateserial",
                "-days", "2", "-extfile", name + ".ext", "-out", name + ".pem")


class Field:
    """A server and its honest clients, and who attacks them, over one path."""

    def __init__(self, options, path, tls_folder):
        self.options = options
        self.path = path
        self.name = path + ("+tls" if tls_folder else "")
        cpus = sorted(os.sched_getaffinity(0))
        self.common = ["--path=" + path, "--tls=" + tls_folder]
        self.log = tempfile.TemporaryFile(mode="w+")
        self.log_read = 0
        real_time = options.figures and may_run_before_all_others()
        first = BEFORE_ALL_OTHERS if real_time else []
        self.attackers_priority = [] if real_time else LOWEST_PRIORITY
        self.strangers_priority = BEFORE_OTHER_PROGRAMS if real_time else LOWEST_PRIORITY
        self.server = Process(first + [options.program, "serve", "--cpu=%d" % cpus[0]] + self.common, self.log)
        self.common.append("--address=" + self.server.ready[1])
        self.honest = Process(first + [options.program, "honest", "--cpu=%d" % cpus[-1]] + self.common)
        time.sleep(WARM_UP_SECONDS)
        self.first = self.usage()
        if self.first is None:
            raise RuntimeError("the server has ended")

    def usage(self):
        """The server's memory, in MiB, and descriptors: the least within half a second, for one client comes and
        goes, and the others have calls under way. None: it is gone."""
        pid = self.server.process.pid
        least = {}
        for what in ["trim"] + ["memory"] * 10:
            said = self.server.ask(what)
            if said is None:
                return None
            now = {name: said[name] / 2 ** 20 for name in ("in_use", "pools")}
            now["resident"] = resident_mib(pid)
            now["descriptors"] = descriptors(pid)
            for name, amount in now.items():
                least[name] = min(amount, least.get(name, amount))
            time.sleep(0.05)
        return least

    def new_log_lines(self):
        """What the server has said since this was asked last."""
        self.log.seek(self.log_read)
        lines = self.log.read().splitlines()
        self.log_read = self.log.tell()
        return lines

    def attack(self, names):
        """Runs these for their time; what they say of themselves, and what is wrong with them."""
        said, wrong = {}, []
        running = []
        alone = len(names) == 1 and names[0] in STRANGERS
        priority = self.strangers_priority if alone else self.attackers_priority
        for seed, name in enumerate(names, self.options.seed):
            command = ENDS_WITH_US + priority + [
                self.options.program, "attack", "--name=" + name, "--seed=%d" % seed,
                "--seconds=%g" % self.options.seconds, "--cpu=%d" % attackers_cpu()] + self.common
            running.append((name, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
        for name, process in running:
            try:
                line, _ = process.communicate(timeout=self.options.seconds + PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                line, _ = process.communicate()
            said[name] = json.loads(line) if process.returncode == 0 and line else {}
            # Together they are in each other's way: some may not even come in.
            if len(names) == 1 and not any(said[name].get(what, 0) for what in DEEDS):
                wrong.append("the attacker %s did nothing, and ended with status %d" % (name, process.returncode))
        return said, wrong

    def settle(self):
        """Waits until the server is as it was at first; what it uses then."""
        give_up = time.monotonic() + SETTLE_SECONDS
        while True:
            now = self.usage()
            if now is None or time.monotonic() > give_up:
                return now
            if now["descriptors"] <= self.first["descriptors"] and not self.grown(now):
                return now

    def grown(self, now):
        """Of which kinds of memory there is more than may be."""
        return [name for name, slack in SLACK_MIB.items() if now[name] > self.first[name] + slack]

    def run(self, name):
        """One attack: a row, with the reasons why it was not withstood."""
        # Strangers are the quickest to start.
        names = attacks_on(self.path)[::-1] if name == "all" else [name]
        row = {"path": self.name, "attack": name, "reasons": [], "said": {}}
        reasons = row["reasons"]
        files_before = shm_files()
        before, during, took = [], [], 0
        for _ in range(self.options.rounds):
            self.honest.ask()  # what had begun before
            time.sleep(self.options.quiet)
            before.append(self.honest.ask())
            start = time.monotonic()
            said, wrong = self.attack(names)
            took += time.monotonic() - start
            during.append(self.honest.ask())
            for attacker, counts in said.items():
                sums = row["said"].setdefault(attacker, {})
                for what, count in counts.items():
                    sums[what] = sums.get(what, 0) + count
            reasons += wrong
            used = self.settle() if self.server.alive() else None
            if used is None:
                reasons.append("the server has ended with status %d: %s" % (
                    self.server.process.wait(), " | ".join(self.new_log_lines()[-5:])))
                return row
        self.honest.ask()  # what had begun before it was over
        time.sleep(max(self.options.quiet, MIN_AFTER_SECONDS))
        row["before"] = all_rounds(before)
        row["during"] = all_rounds(during)
        row["after"] = all_rounds([self.honest.ask()])
        row["first"], row["used"] = self.first, used
        row["server"] = self.server.ask()
        row["log"] = self.new_log_lines()
        row["connections_per_s"] = sum(per_second(said, took) for said in row["said"].values())
        self.judge(row, files_before)
        return row

    def judge(self, row, files_before):
        reasons = row["reasons"]
        for when in ("before", "during", "after"):
            if row[when] is None:
                reasons.append("the honest clients have ended")
                return
            clients = row[when]["clients"]
            if clients["failed"]:
                reasons.append("%d honest calls failed %s: %s" % (clients["failed"], when, clients["error"]))
            newcomers = row[when]["newcomers"]
            if when == "after" and newcomers["failed"]:
                reasons.append("%d newcomers failed when it was over: %s" % (newcomers["failed"], newcomers["error"]))
            if when == "during" and clients["small_us"]["count"] == 0:
                reasons.append("no honest call ended during it")
        before, after = self.first["descriptors"], row["used"]["descriptors"]
        if after > before:
            reasons.append("%d descriptors before, %d after" % (before, after))
        for name in self.grown(row["used"]):
            reasons.append("%.1f MiB %s before, %.1f after, where %d more may be" % (
                self.first[name], MEMORY_NAMES[name], row["used"][name], SLACK_MIB[name]))
        left = sorted(shm_files() - files_before)
        # Other programs of the machine use the same folder; Weft leaves nothing in it at all.
        left = [name for name in left if "weft" in name]
        if left:
            reasons.append("left in /dev/shm: " + ", ".join(left))
        if len(row["log"]) > LOG_LINES:
            reasons.append("%d lines in the server's log, the last: %s" % (len(row["log"]), row["log"][-1]))
        ratio = row["during"]["clients"]["small_us"]["p99"] / max(row["before"]["clients"]["small_us"]["p99"], 0.1)
        row["ratio"] = ratio
        if self.options.figures and ratio > RATIO:
            reasons.append("a p99 of %.1f times the one before" % ratio)

    def stop(self):
        reasons = []
        for name, process in (("honest clients", self.honest), ("server", self.server)):
            status = process.stop()
            if status != 0:
                reasons.append("the %s ended with status %d" % (name, status))
        return reasons


def per_second(said, took):
    """The connections that an attacker has made, in a second of its own time if it says how long that was."""
    seconds = said["ms"] / 1000 if said.get("ms") else took
    return said.get("connections", 0) / seconds


def bare_rate(options):
    """Connections a second that these processors allow: strangers, as many as they can, at the server's place a
    process that accepts and closes, and no clients. None: it could not be measured."""
    cpus = sorted(os.sched_getaffinity(0))
    first = BEFORE_OTHER_PROGRAMS if may_run_before_all_others() else []
    bare = Process(first + [options.program, "bare", "--cpu=%d" % cpus[0]])
    try:
        done = subprocess.run(
            ENDS_WITH_US + first + [options.program, "attack", "--name=strangers", "--path=tcp", "--per_second=1000000",
                            "--address=" + bare.ready[1], "--seconds=%g" % min(options.seconds, 2),
                            "--cpu=%d" % attackers_cpu()],
            stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS)
        return per_second(json.loads(done.stdout), options.seconds) if done.returncode == 0 else None
    finally:
        bare.process.kill()
        bare.process.wait()


def said_shortly(said):
    return "; ".join("%s: %s" % (name, ", ".join("%d %s" % (count, what.replace("_", " ")) for what, count in
                                                 counts.items()))
                     for name, counts in said.items())


TABLE_HEAD = ("%-8s %-10s %22s %22s %22s %6s %7s %9s %14s %12s %12s %9s" % (
    "path", "attack", "before p50/p99/p99.9", "during", "after", "ratio", "conn/s", "newcomers", "MiB in use",
    "in pools", "resident", "fds"))


def table_line(row):
    def times(when):
        small = row[when]["clients"]["small_us"]
        return "%.0f/%.0f/%.0f us" % (small["p50"], small["p99"], small["p99.9"])

    def change(name, figure="%.0f"):
        return "%s -> %s" % (figure % row["first"][name], figure % row["used"][name])

    newcomers = row["during"]["newcomers"]
    served = newcomers["small_us"]["count"]
    return "%-8s %-10s %22s %22s %22s %6.1f %7.0f %9s %14s %12s %12s %9s" % (
        row["path"], row["attack"], times("before"), times("during"), times("after"), row["ratio"],
        row["connections_per_s"], "%d/%d" % (served, served + newcomers["failed"]),
        change("in_use", "%.1f"), change("pools"), change("resident"), change("descriptors"))


def memory_line(name, rows):
    """How much more of each kind of memory there was at the most, and how much may be."""
    def most(kind):
        return max(row["used"][kind] - row["first"][kind] for row in rows)

    return "%s: MiB more than before all attacks, at the most: %s" % (name, ", ".join(
        "%.1f %s of %d" % (most(kind), MEMORY_NAMES[kind], slack) for kind, slack in SLACK_MIB.items()))


def run_field(options, path, tls_folder, attacks):
    """The rows of one path, and what is wrong besides."""
    try:
        field = Field(options, path, tls_folder)
    except RuntimeError as error:
        return [], ["%s%s: %s" % (path, "+tls" if tls_folder else "", error)]
    rows = []
    for name in attacks or attacks_on(path) + ["all"]:
        if name != "all" and name not in attacks_on(path):
            continue
        print("%s: %s ..." % (field.name, name), flush=True)
        row = field.run(name)
        rows.append(row)
        print("  " + said_shortly(row["said"]))
        if "server" in row:
            print("  the server: %s; %d lines of its log" % (
                ", ".join("%d %s" % (count, what.replace("_", " ")) for what, count in row["server"].items()),
                len(row["log"])))
        for reason in row["reasons"]:
            print("  NOT WITHSTOOD: " + reason, flush=True)
        if not field.server.alive():
            break
    return rows, ["%s: %s" % (field.name, reason) for reason in field.stop()]


def parse(arguments):
    known = STRANGERS + MEMBERS + sorted(sum(BY_PATH.values(), [])) + ["all"]
    parser = argparse.ArgumentParser(prog="./dev hostile", description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("seconds", nargs="?", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="of each attack")
    parser.add_argument("--quiet", type=float, default=2, help="seconds before each attack")
    parser.add_argument("--paths", default="shm,tcp")
    parser.add_argument("--attack", action="append", choices=known, help="these alone")
    parser.add_argument("--tls", action="store_true", help="under TLS besides")
    parser.add_argument("--short", action="store_true", help="of paths and attacks what tests have the time for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-figures", dest="figures", action="store_false",
                        help="do not judge by how long calls take")
    options = parser.parse_args(arguments)
    if options.short and (options.tls or options.attack or options.paths != parser.get_default("paths")):
        parser.error("--short says itself which paths and attacks, and what of it under TLS")
    options.paths = options.paths.split(",")
    if options.rounds < 1:
        parser.error("--rounds %d: at least 1 is needed" % options.rounds)
    for path in options.paths:
        if path not in BY_PATH:
            parser.error("no path '%s': %s" % (path, ", ".join(BY_PATH)))
    options.fields = SHORT if options.short else [(path, tls, options.attack) for path in options.paths
                                                  for tls in ([False, True] if options.tls else [False])]
    return options


def main(arguments):
    # Ctrl-C and SIGTERM alike: everything that was started ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = parse(arguments)
    with_tls = any(tls for _, tls, _ in options.fields)
    folder = tempfile.mkdtemp(prefix="weft_hostile.") if with_tls else ""
    rows, wrong, bare = [], [], None
    try:
        if folder:
            make_certificates(folder)
        if options.figures and any("strangers" in (attacks or STRANGERS) for _, _, attacks in options.fields):
            bare = bare_rate(options)
        for path, tls, attacks in options.fields:
            more_rows, more_wrong = run_field(options, path, folder if tls else "", attacks)
            rows += more_rows
            wrong += more_wrong
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n" + TABLE_HEAD)
    for row in rows:
        if "ratio" in row:
            print(table_line(row))
    if bare is not None:
        print("conn/s of strangers against a bare loop of accept and close, without honest clients: %.0f" % bare)
    for name in dict.fromkeys(row["path"] for row in rows):
        judged = [row for row in rows if row["path"] == name and "ratio" in row]
        if judged:
            print(memory_line(name, judged))
    for row in rows:
        wrong += ["%s, %s: %s" % (row["path"], row["attack"], reason) for reason in row["reasons"]]
    print("FAIL: " + "; ".join(wrong) if wrong else "PASS: %d attacks withstood" % len(rows))
    return int(bool(wrong))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
