#!/usr/bin/env python3
"""RocksDB's own db_bench on files of this host, on Weft's, and on such over gRPC, in turns.

    compare.py BIN [--seconds N] [--rounds N] [--folder DIR] [--spin-us N] [--paths LIST] [--keys N]

BIN has libweft_rocksdb.so and weft_rocksd, and below over_grpc/ what goes by gRPC. The same
workloads on these file systems:

    local       RocksDB's own, in a folder of this host
    weft/shm    libweft_rocksdb.so preloaded; weft_rocksd serves such a folder, by shared memory
    weft/tcp    the same, by TCP; reads are carried out by the server's engine there
    weft/verbs  the same, by a card that is in this host, if --paths (shm,tcp) names it
    grpc/tcp    the same plugin and folder, by gRPC over TCP (over_grpc/), where it is built in

and `+cache`: the same by a secondary cache in weft_rocksd's memory, of which no code of the server's
runs by shared memory or verbs. The folder is in memory (/dev/shm), so that no disk stands beside the network:
what is compared is the way to the file. Blocks are 4 KiB, not compressed, and the block cache has
1 MiB: nearly all reads are the file system's. A turn of reads takes N seconds (2), after another one
that finds files and caches cold, and does not count; one of writes takes a number of them. With
several rounds (1) each figure is the median of its turns. Of reads the processor time of the server's
process stands beside it, for each key of the turn that counts: with heartbeats and renewals of leases,
which it takes whether anybody reads or not. Behind readrandom stands what is aimed at: a one-sided read
takes nothing of the server. Status 1 if a turn failed.
"""
import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

import rocks

# Name, db_bench's benchmark, its arguments, on a database that was filled before.
WORKLOADS = [
    ("fillseq, each synced", "fillseq", ["--num=1000", "--sync=1"], False),
    ("fillseq, not synced", "fillseq", ["--num=4000"], False),
    ("readrandom", "readrandom", [], True),
    ("multireadrandom of 16", "multireadrandom",
     ["--batch_size=16", "--multiread_batched=true"], True),
]
# Of readrandom's p50: who, of whom, at most.
GOALS = [("weft/shm", "local", 1.5), ("weft/tcp", "grpc/tcp", 0.5)]
# Whose reads are one-sided, without a part of the server's: 0. The server works for its clients all
# the same, by heartbeats and leases, so that a turn whose reads all find their block in the client's
# cache is beside the one whose reads do not: what the server has done more in the one is what the
# reads have cost.
NO_SERVER = ["weft/shm", "weft/verbs"]
CACHED_KEYS = 1000  # some 30 to a block of 4 KiB: an eighth of the block cache
COMMON = ["--compression_type=none", "--value_size=100", "--histogram=1", "--bloom_bits=10",
          "--cache_size=1048576", "--cache_numshardbits=0", "--threads=1", "--seed=7",
          "--write_buffer_size=8388608", "--target_file_size_base=8388608",
          "--verify_checksum=true"]
# Of one run, on a busy machine.
PATIENCE_SECONDS = 300


def run_bench(where, benchmark, arguments, on_result=lambda: None):
    """All that db_bench said; None: it failed. `on_result` is called with each benchmark's end."""
    command = rocks.ENDS_WITH_US + ["db_bench", "--benchmarks=" + benchmark] + where["arguments"]
    said = ""
    with tempfile.TemporaryFile("w+") as errors:
        bench = subprocess.Popen(command + COMMON + arguments, stdout=subprocess.PIPE, stderr=errors,
                                 text=True, env=where["environment"])
        guard = threading.Timer(PATIENCE_SECONDS, bench.kill)
        guard.start()
        try:
            for line in bench.stdout:
                said += line
                if re.match(r"(%s)\s*:" % benchmark.replace(",", "|"), line):
                    on_result()
            status = bench.wait()
        finally:
            guard.cancel()
            bench.kill()
            bench.wait()
        errors.seek(0)
        if status != 0 or not re.search(r"^%s\s*:" % benchmark.split(",")[-1], said, re.MULTILINE):
            print("db_bench failed: %s" % (errors.read() or said).strip(), file=sys.stderr)
            return None
    return said


def figures_of(said, benchmark):
    """[p50, p99, p99.9 in us, operations a second]."""
    rate = re.search(r"^%s\s*:.* (\d+) ops/sec" % benchmark, said, re.MULTILINE)
    found = re.search(r"P50: ([\d.]+) .*P99: ([\d.]+) P99\.9: ([\d.]+)", said)
    return [float(text) for text in found.groups()] + [float(rate.group(1))]


def run_turn(place, benchmark, arguments, filled, seconds, keys):
    """Its figures, and the server's processor time for each key in us, None where there is no server, it
    is not a turn of reads, or the time is not known; None: it failed."""
    used = []  # the server's processor time, when the cold turn has ended, and the one that counts
    if filled:
        said = run_bench(place, "%s,%s" % (benchmark, benchmark), arguments + [
            "--num=%d" % keys, "--use_existing_db=1", "--duration=%d" % seconds],
            lambda: used.append(place["server"].cpu_us() if place["server"] else None))
    else:
        said = run_bench(place["for_writes"], benchmark, arguments)
    if said is None:
        return None
    figures = figures_of(said[said.rindex("\n" + benchmark):], benchmark)
    is_known = filled and None not in used
    return figures + [(used[1] - used[0]) / max(1, figures[3] * seconds) if is_known else None]


def cost_of_a_read(reads, cached):
    """The server's processor time for each read, by the figures of a turn, beside those of one that has
    read nothing of the server; None: it is not known."""
    if reads[4] is None or cached is None or cached[4] is None:
        return None
    return reads[4] - cached[3] * cached[4] / reads[3]


def median(column):
    """None if a part of it is not known."""
    return None if None in column else statistics.median(column)


def microseconds(figure):
    return "not known" if figure is None else "%.3f" % figure


def compare(places, options):
    """False: a turn failed."""
    good = True
    for name, place in places.items():
        print("filling %s ..." % name, file=sys.stderr)
        if run_bench(place, "fillrandom,compact",
                     ["--num=%d" % options.keys, "--disable_wal=true"]) is None:
            return False
    print("%-22s %-16s %9s %9s %9s %11s %9s  %s" % (
        "", "", "p50 us", "p99 us", "p99.9 us", "keys/s", "server us",
        "p50, p99 and rate: x of local"))
    for workload, benchmark, arguments, filled in WORKLOADS:
        turns = {name: [] for name in places if filled or "+cache" not in name}
        for _ in range(options.rounds):
            for name in turns:
                figures = run_turn(places[name], benchmark, arguments, filled, options.seconds,
                                   options.keys)
                good = good and figures is not None
                turns[name] += [figures] if figures else []
        medians = {name: [median(column) for column in zip(*figures)]
                   for name, figures in turns.items() if figures}
        own = medians.get("local")
        for name, figures in medians.items():
            server = microseconds(figures[4]) if filled and name != "local" else "-"
            print("%-22s %-16s %9.1f %9.1f %9.1f %11.0f %9s  %s" % (
                (workload, name) + tuple(figures[:4]) + (server,) +
                (" ".join("%5.2f" % (figures[i] / own[i]) for i in (0, 1, 3)) if own else "",)),
                  flush=True)
        for who, of_whom, goal in GOALS if benchmark == "readrandom" else ():
            if who in medians and of_whom in medians:
                print("%-22s p50 of %s: %.2f x of %s (goal: at most %s)" % (
                    "", who, medians[who][0] / medians[of_whom][0], of_whom, goal))
        for who in NO_SERVER if benchmark == "readrandom" else ():
            if who in medians:
                cached = run_turn(places[who], benchmark, arguments, filled, options.seconds,
                                  CACHED_KEYS)
                good = good and cached is not None
                print("%-22s processor time of the server for a read of %s, in us: %s (goal: 0); with "
                      "its heartbeats and leases: %s" % (
                          "", who, microseconds(cost_of_a_read(medians[who], cached)),
                          microseconds(medians[who][4])), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", default="/dev/shm", help="where the files are")
    parser.add_argument("--spin-us", type=int, default=50, help="the servers' --spin_us")
    parser.add_argument("--paths", default="shm,tcp", help="Weft's: of shm, tcp, verbs")
    parser.add_argument("--keys", type=int, default=200000, help="in each database")
    options = parser.parse_args()
    why_not = rocks.lacking("db_bench")
    if why_not:
        sys.exit("rocksdb: " + why_not)

    folder = rocks.Folder(options.folder)
    running = []

    def place(arguments, environment, more, server=None):
        return {"arguments": arguments + ["--db=" + more], "environment": environment,
                "server": server}

    try:
        local = dict(os.environ)
        places = {"local": place([], local, folder.file("local"))}
        places["local"]["for_writes"] = place([], local, folder.file("local-writes"))
        weft = rocks.preloaded(os.path.join(options.bin, "libweft_rocksdb.so"))
        for path in options.paths.split(","):
            server = rocks.Rocksd(os.path.join(options.bin, "weft_rocksd"),
                                  folder.file("served-" + path), "--paths=" + path,
                                  "--cache_mib=64", "--spin_us=%d" % options.spin_us)
            running.append(server)
            files = ["--fs_uri=" + server.uri("", "?paths:" + path)]
            places["weft/" + path] = place(files, weft, "/db", server)
            places["weft/" + path]["for_writes"] = place(files, weft, "/writes")
            cached = files + ["--secondary_cache_uri=weft-cache://%s?mib:64&paths:%s" %
                              (server.address, path)]
            places["weft/%s+cache" % path] = place(cached, weft, "/cached", server)
        (grpc_rocksd, grpc_plugin), why_not = rocks.over_grpc(options.bin)
        if why_not:
            print("grpc/tcp: left out: " + why_not)
        else:
            server = rocks.Rocksd(grpc_rocksd, folder.file("served-grpc"),
                                  "--spin_us=%d" % options.spin_us)
            running.append(server)
            files = ["--fs_uri=" + server.uri(scheme="grpc")]
            grpc = rocks.preloaded(grpc_plugin)
            places["grpc/tcp"] = place(files, grpc, "/db", server)
            places["grpc/tcp"]["for_writes"] = place(files, grpc, "/writes")
        return 0 if compare(places, options) else 1
    finally:
        for server in running:
            server.close()
        folder.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
