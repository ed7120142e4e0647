#!/usr/bin/env python3
"""weft_scale runs each program over both paths, has the metrics that are documented and no others,
with values that can be: in the range of what they measure, and each ratio that of its two figures. It
ends with the goals, leaves nothing new in /dev/shm, and refuses a program that it does not know.

Whether goals are met says nothing of a run of a fiftieth of a second, and is not looked at.
"""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
PATHS = ("shm", "tcp")
ENGINES = (2, 4)  # beside one
LIMITS = ("unlimited", "fixed", "adaptive")
HAS_PROCESSORS = len(os.sched_getaffinity(0)) > 1

# What each figure can be on any machine, however busy: from, to.
TIME_US = (0.02, 1e8)
RATIO = (1e-7, 1e7)  # one of two round trips may have waited for the processor
DIFFERENCE = (-1e7, 1e7)  # a ratio of which one part is a difference
M_PER_S = (1e-5, 1e3)
KIB = (-1e5, 1e5)  # pages of others' may come and go


def expected():
    """{metric: (from, to)}"""
    ranges = {}

    def add(stem, names, bounds):
        ranges.update(("scale.%s%s" % (stem, name), bounds) for name in names.split())

    for path in PATHS:
        stem = path + "."
        add(stem, "one.p50_us many.p50_us active.p50_us", TIME_US)
        add(stem, "many.p50_ratio active.p50_ratio", RATIO)
        for side in ("server", "client"):
            add(stem + side, "_resident_KiB _mapped_KiB", KIB)
            add(stem + side, "_descriptors", (1, 10))
        add(stem + "idle.", "server_percent client_percent", (0, 100 * os.cpu_count()))
        add(stem + "wakeup.", "awake_us asleep_us both_asleep_us eventfd_us eventfd_round_trip_us",
            TIME_US)
        add(stem + "wakeup.", "ratio both_ratio", DIFFERENCE)
        for drive in ("caller", "own_thread"):
            for count in (1, 4, 16):
                add(stem + "threads.", "%s_%d.kper_s" % (drive, count), (1e-3, 1e6))
                if count > 1:
                    add(stem + "threads.", "%s_%d.ratio" % (drive, count), RATIO)
        add(stem + "transfers.", "alone.p50_us alone.p99_us", TIME_US)
        for way in ("read", "fetch", "write", "unordered_write"):
            add(stem + "transfers.", way + ".p99_ratio", RATIO)
            for beside in ("_x1", "_x8"):
                add(stem + "transfers." + way + beside, ".p50_us .p99_us", TIME_US)
                add(stem + "transfers." + way + beside, ".GBps", (1e-5, 1e3))
        add(stem + "server_engines_1.", "cpu_ns", (10, 1e9))
        add(stem + "server_engines_1.", "Mper_s", M_PER_S)
        for engines in ENGINES:
            of_server = stem + "server_engines_%d." % engines
            add(of_server, "cpu_ns", (10, 1e9))
            add(of_server, "cpu_ratio shared_ratio", RATIO)
            if HAS_PROCESSORS:
                add(of_server, "spread_cpu_ns", (10, 1e9))
                add(of_server, "spread_cpu_ratio spread_shared_ratio rate_ratio rate_shared_ratio",
                    RATIO)
                add(of_server, "Mper_s", M_PER_S)
        if HAS_PROCESSORS:
            add(stem + "server_engines_2.", "spread_word_ratio", RATIO)
            add(stem, "engines_1.Mper_s engines_2.Mper_s", M_PER_S)
            add(stem, "engines.scaling engines.cpu_scaling", RATIO)
        # Eight clients of two engines, after the looks at which they are asked to move: those of the
        # default are a second apart.
        add(stem + "uneven.", "fuller", (4, 8))
        add(stem + "uneven.", "even_ms", (1, 60e3))
        add(stem + "uneven.", "default_even_ms", (1000, 60e3))
        add(stem + "uneven.", "Mper_s even_Mper_s", M_PER_S)
        add(stem + "uneven.", "ratio", RATIO)
    add("sockets.", "one.p50_us many.p50_us", TIME_US)
    add("sockets.", "many.p50_ratio", RATIO)
    # Over the first path only. Four workers take 2 ms for a call: so long takes one at least, but for
    # the histogram's last digits; 2,000 there can be in a second, and some times as many whose end is
    # seen late, inside of a leg of 20 ms.
    add("shm.overload.", "peak_per_s", (1, 20e3))
    add("shm.overload.", "unloaded_p99_us", (1900, 1e8))
    for limit in LIMITS:
        for load in ("third", "full", "triple"):
            cell = "shm.overload.%s_%s." % (limit, load)
            add(cell, "goodput", (0, 1))
            add(cell, "p50_us p99_us", (1900, 1e8))
            add(cell, "p99_ratio", RATIO)
    return ranges


def shared_memory_files():
    return set(glob.glob("/dev/shm/weft*"))


class WeftScale(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # In Bazel's sandbox nobody else has files there; outside of it others may have some.
        before = shared_memory_files()
        with tempfile.TemporaryDirectory() as scratch:
            figures = os.path.join(scratch, "scale.json")
            done = subprocess.run(
                [PROGRAM, "--connections", "20", "--repeat", "1", "--seconds", "0.02",
                 "--transfer-mib", "4", "--json", figures], stdout=subprocess.PIPE, text=True)
            cls.left_behind = shared_memory_files() - before
            cls.status = done.returncode
            cls.table = done.stdout
            with open(figures) as lines:
                cls.entries = [json.loads(line) for line in lines]
        cls.values = {entry["metric"]: entry["value"] for entry in cls.entries}

    def test_everything_could_be_measured(self):
        self.assertEqual(self.status, 0, self.table)

    def test_metrics_are_those_that_are_documented_each_once(self):
        self.assertEqual(sorted(entry["metric"] for entry in self.entries), sorted(expected()))

    def test_values_are_in_the_range_of_what_they_measure(self):
        for metric, (low, high) in expected().items():
            with self.subTest(metric):
                value = self.values[metric]
                self.assertTrue(math.isfinite(value) and low <= value <= high, value)

    def test_percentiles_are_in_order(self):
        for metric, p50 in self.values.items():
            if metric.endswith(".p50_us") and metric.replace("p50", "p99") in self.values:
                self.assertLessEqual(p50, self.values[metric.replace("p50", "p99")], metric)

    def expect_ratio(self, ratio, of, to, times=1):
        """One round: there it is the ratio of the two medians, but for what is printed of them."""
        one, other = self.values["scale." + of], self.values["scale." + to]
        with self.subTest(ratio):
            self.assertAlmostEqual(self.values["scale." + ratio] * other * times / one, 1, places=3)

    def test_ratios_are_those_of_their_figures(self):
        self.expect_ratio("sockets.many.p50_ratio", "sockets.many.p50_us", "sockets.one.p50_us")
        for limit in LIMITS:
            cell = "shm.overload.%s_triple." % limit
            self.expect_ratio(cell + "p99_ratio", cell + "p99_us", "shm.overload.unloaded_p99_us")
        for path in PATHS:
            stem = path + "."
            self.expect_ratio(stem + "many.p50_ratio", stem + "many.p50_us", stem + "one.p50_us")
            self.expect_ratio(stem + "active.p50_ratio", stem + "active.p50_us", stem + "one.p50_us")
            for way in ("read", "fetch", "write", "unordered_write"):
                way = stem + "transfers." + way
                self.expect_ratio(way + ".p99_ratio", way + "_x8.p99_us", way + "_x1.p99_us")
            for drive in ("caller", "own_thread"):
                threads = stem + "threads." + drive
                self.expect_ratio(threads + "_16.ratio", threads + "_16.kper_s",
                                  threads + "_1.kper_s")
            self.expect_ratio(stem + "uneven.ratio", stem + "uneven.even_Mper_s",
                              stem + "uneven.Mper_s")
            one = stem + "server_engines_1."
            for engines in ENGINES:
                several = stem + "server_engines_%d." % engines
                self.expect_ratio(several + "cpu_ratio", several + "cpu_ns", one + "cpu_ns")
                if HAS_PROCESSORS:
                    self.expect_ratio(several + "spread_cpu_ratio", several + "spread_cpu_ns",
                                      one + "cpu_ns")
                    self.expect_ratio(several + "rate_ratio", several + "Mper_s", one + "Mper_s",
                                      times=engines)
            if HAS_PROCESSORS:
                self.expect_ratio(stem + "engines.scaling", stem + "engines_2.Mper_s",
                                  stem + "engines_1.Mper_s", times=2)

    def test_goodput_is_in_parts_of_the_most(self):
        goodputs = [value for metric, value in self.values.items() if metric.endswith(".goodput")]
        self.assertEqual(max(goodputs), 1)

    def test_the_last_line_says_which_goals_were_missed(self):
        last = self.table.splitlines()[-1]
        self.assertRegex(last, r"^goals: (all \d+ met|\d+ of \d+ missed: scale\.\S+(, scale\.\S+)*)$")

    def test_rows_say_where_there_are_too_few_processors(self):
        if not HAS_PROCESSORS:
            self.assertNotIn("4 engines on 4 processors", self.table)
        elif len(os.sched_getaffinity(0)) < 4:
            self.assertIn("too few", self.table)
        else:
            self.assertNotIn("too few", self.table)

    def test_nothing_is_left_behind(self):
        self.assertEqual(self.left_behind, set())

    def test_an_unknown_program_is_refused(self):
        done = subprocess.run([PROGRAM, "sideways"], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown argument sideways", done.stderr)


if __name__ == "__main__":
    unittest.main()
