#!/usr/bin/env python3
"""Runs a test that takes --first and --seeds with many seeds, on all processors.

    tools/run_seeds.py PROGRAM SEEDS [FIRST] [--processes N]

Each process of PROGRAM gets a part of the seeds, and a new one when it has ended. A line tells how far
it has come, once a part; the last one adds up what the parts' lines "N seeds: N this, N that" have said.
The first failure ends it: what that process has written is shown, with the seed, and the status is 1.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

# Of one process, seeds: what a test expects of many seeds together holds of so many, a part is
# soon over, and another process costs nothing beside it.
PART = 250


def parts_of(first, seeds, processes):
    """(first, count) of each, in order."""
    size = max(1, min(PART, -(-seeds // processes)))
    return [(at, min(size, first + seeds - at)) for at in range(first, first + seeds, size)]


class Totals:
    """The sum of lines that differ in their numbers alone."""

    def __init__(self):
        self.words = None
        self.numbers = []

    def add(self, output):
        for line in re.findall(r"^\d+ seeds: .*$", output, re.MULTILINE):
            numbers = [int(number) for number in re.findall(r"\d+", line)]
            if self.words is None:
                self.words = re.split(r"\d+", line)
                self.numbers = [0] * len(numbers)
            self.numbers = [a + b for a, b in zip(self.numbers, numbers)]

    def line(self):
        if self.words is None:
            return ""
        numbers = [str(number) for number in self.numbers] + [""]
        return "".join(word + number for word, number in zip(self.words, numbers))


class Part:
    """One process."""

    def __init__(self, program, first, count):
        self.first, self.count = first, count
        self.file = tempfile.TemporaryFile()  # a pipe could become full
        self.process = subprocess.Popen([program, f"--first={first}", f"--seeds={count}"],
                                        stdout=self.file, stderr=subprocess.STDOUT)

    def end(self):
        """Waits for it, and returns whether all was well."""
        self.process.wait()
        with self.file:
            self.file.seek(0)
            self.output = self.file.read().decode(errors="replace")
        return self.process.returncode == 0


def seed_of(program, part):
    """The one that has failed: as the test says, or, where it has crashed, by trying one by one."""
    said = re.search(r"\bseed (\d+) failed|--seed=(\d+)", part.output)
    if said:
        return said.group(1) or said.group(2)
    for seed in range(part.first, part.first + part.count):
        one = Part(program, seed, 1)
        if not one.end():
            return seed
    return None


def clock(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"


def run(program, seeds, first, processes):
    waiting = parts_of(first, seeds, processes)
    begin = time.monotonic()
    running, totals, done = [], Totals(), 0
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                running.append(Part(program, *waiting.pop(0)))
            part = ended(running)
            running.remove(part)
            if not part.end():
                seed = seed_of(program, part)
                print(part.output)
                print(f"FAILED after {done} good seeds of {seeds}: "
                      f"{program} --first={seed or part.first} --seeds={1 if seed else part.count}",
                      flush=True)
                return 1
            totals.add(part.output)
            done += part.count
            seconds = time.monotonic() - begin
            print(f"{done} of {seeds} seeds after {clock(seconds)}, "
                  f"{clock(seconds / done * (seeds - done))} left", flush=True)
    finally:
        for part in running:
            part.process.kill()
            part.end()
    print(totals.line(), flush=True)
    return 0


def ended(running):
    """The first one that has."""
    while True:
        for part in running:
            if part.process.poll() is not None:
                return part
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("seeds", type=int)
    parser.add_argument("first", type=int, nargs="?", default=1)
    parser.add_argument("--processes", type=int, default=0, help="0: as many as processors")
    given = parser.parse_args()
    processes = given.processes or len(os.sched_getaffinity(0))
    return run(given.program, given.seeds, given.first, processes)


if __name__ == "__main__":
    sys.exit(main())
