#!/usr/bin/env python3
"""Runs dqlite's own benchmark over its own TCP and over Weft, in turns.

    compare.py LIBRARY [--seconds N] [--rounds N] [--workload kvwrite|kvreadwrite] [--paths LIST]
               [--folder DIR]

LIBRARY is libweft_dqlite.so. Each turn starts a cluster of three dqlite-benchmark processes, the
packaged program, with fresh data in DIR (/tmp), drives it for N seconds (3), and ends it. Every turn
has the library preloaded; WEFT_DQLITE=off leaves dqlite's own transport in. Prints a line for each
turn, then the medians of all rounds (5), and the medians of their ratios to dqlite's own turn of the
same round: a disk's pace changes from one round to the next by more than the network's part is. With
--folder /dev/shm there is no disk beside the network. Each round begins with another one. Status 1 if
a turn failed.
"""
import argparse
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

NODES = 3
# How far a node's Weft address is from its own, in ports.
PORT_OFFSET = 1000
# How long a cluster may take to come up and to leave, besides the run itself.
START_SECONDS = 60
STOP_SECONDS = 10

# Before a command: it ends with this process, also when nothing here can run any more.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


def free_ports(count=NODES):
    """Ports for each node, whose Weft ports are free as well (dqlite takes no port 0)."""
    while True:
        held = []
        try:
            for _ in range(count):
                first = socket.socket()
                first.bind(("127.0.0.1", 0))
                held.append(first)
                second = socket.socket()
                held.append(second)
                second.bind(("127.0.0.1", first.getsockname()[1] + PORT_OFFSET))
            return [s.getsockname()[1] for s in held[::2]]
        except (OSError, OverflowError):
            continue
        finally:
            for s in held:
                s.close()


class Cluster:
    """One turn's processes and their data."""

    def __init__(self, library, turn, seconds, workload, folder=None):
        self.folder = tempfile.mkdtemp(prefix="weft-dqlite-", dir=folder)
        self.processes = []
        self.addresses = ["127.0.0.1:%d" % port for port in free_ports()]
        self.seconds = seconds
        self.environment = dict(os.environ, LD_PRELOAD=library,
                                WEFT_DQLITE_PORT_OFFSET=str(PORT_OFFSET), **turn)
        first = ["--driver", "--cluster", ",".join(self.addresses), "--workload", workload]
        joins = ["--join", self.addresses[0]]
        for node in range(NODES):
            self.start(node, joins if node else first)

    def start(self, node, arguments):
        folder = os.path.join(self.folder, str(node))
        os.mkdir(folder)
        command = ["dqlite-benchmark", "--dir", folder, "--db", self.addresses[node],
                   "--duration", str(self.seconds)]
        with open(folder + ".log", "w") as log:
            self.processes.append(subprocess.Popen(
                ENDS_WITH_US + command + arguments, env=self.environment, stdout=log, stderr=log))

    def latencies_ms(self):
        """Of every operation that the driver has made; None if it failed."""
        try:
            if self.processes[0].wait(self.seconds + START_SECONDS) != 0:
                return None
        except subprocess.TimeoutExpired:
            return None
        values = []
        for folder, _, names in os.walk(os.path.join(self.folder, "0")):
            if os.path.basename(folder) != "results":
                continue
            for name in names:
                with open(os.path.join(folder, name)) as lines:
                    values += [float(line.split()[-1]) for line in lines
                               if line.split() and line.split()[-1].replace(".", "", 1).isdigit()]
        return sorted(values) or None

    def said(self):
        with open(os.path.join(self.folder, "0.log")) as log:
            return log.read().strip()

    def close(self):
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.processes:
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def quantile(values, part):
    return values[min(len(values) - 1, int(len(values) * part))]


def run_turn(library, name, turn, options, with_log=False):
    """(p50, p99, p99.9 in ms, operations a second), or None; with_log: and what the driver said."""
    cluster = Cluster(library, turn, options.seconds, options.workload, options.folder)
    try:
        values = cluster.latencies_ms()
        if values is None:
            print("%-12s failed:\n%s" % (name, cluster.said()), file=sys.stderr, flush=True)
            return (None, cluster.said()) if with_log else None
        said = cluster.said()
    finally:
        cluster.close()
    figures = (quantile(values, .5), quantile(values, .99), quantile(values, .999),
               len(values) / options.seconds)
    print("%-12s p50 %7.2f ms   p99 %7.2f ms   p99.9 %7.2f ms   %8.0f/s" % ((name,) + figures),
          flush=True)
    return (figures, said) if with_log else figures


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("library")
    # 15 turns, and less than as long again for their clusters to come up and to leave: within two
    # minutes.
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workload", choices=["kvwrite", "kvreadwrite"], default="kvwrite")
    parser.add_argument("--paths", default="shm,tcp")
    parser.add_argument("--folder")
    options = parser.parse_args()
    if shutil.which("dqlite-benchmark") is None:
        sys.exit("dqlite: there is no dqlite-benchmark: install the Debian package go-dqlite")

    library = os.path.abspath(options.library)
    turns = {"dqlite's TCP": {"WEFT_DQLITE": "off"}}
    for path in options.paths.split(","):
        turns["Weft " + path] = {"WEFT_DQLITE": "on", "WEFT_PATHS": path}
    rounds = []  # of each: name -> figures
    failed = False
    names = list(turns)
    for number in range(options.rounds):
        first = number % len(names)
        rounds.append({name: run_turn(library, name, turns[name], options)
                       for name in names[first:] + names[:first]})
        failed = failed or None in rounds[-1].values()

    print("\n%d rounds of %d s, %s, three nodes; medians, and medians of what part of dqlite's own they are"
          % (options.rounds, options.seconds, options.workload))
    for name in names:
        good = [each for each in rounds if each[name]]
        if not good:
            continue
        medians = [statistics.median(column) for column in zip(*(each[name] for each in good))]
        ratios = [[a / b for a, b in zip(each[name], each[names[0]])]
                  for each in good if each[names[0]]]
        parts = ([statistics.median(column) for column in zip(*ratios)]
                 if ratios else [float("nan")] * 4)
        print("%-12s p50 %7.2f ms %5.2f   p99 %7.2f ms %5.2f   p99.9 %7.2f ms %5.2f   %8.0f/s %5.2f"
              % ((name,) + tuple(x for pair in zip(medians, parts) for x in pair)))
    return int(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
