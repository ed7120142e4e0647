#!/usr/bin/env python3
"""Tests of fuzz.py's reading of what llvm-cov and libFuzzer print."""
import contextlib
import io
import unittest

import fuzz


class FuzzTest(unittest.TestCase):

    def test_a_line_is_reached_if_one_instance_of_its_template_is(self):
        report = "\n".join([
            "SF:/sandbox/1/execroot/weft/transport/tcp/tcp_link.cc", "DA:3,0", "DA:4,7", "DA:3,1",
            "end_of_record", "SF:%s/core/bytes.h" % fuzz.TREE, "DA:9,0", "end_of_record",
            "SF:/usr/include/c++/12/vector", "DA:1,1"
        ])
        files = fuzz.lines_of(report)
        self.assertEqual(files["transport/tcp/tcp_link.cc"], {3: True, 4: True})
        self.assertEqual(files["core/bytes.h"], {9: False})

    def test_ranges_are_short(self):
        self.assertEqual(fuzz.ranges([1, 2, 3, 7, 9, 10]), "1-3 7 9-10")
        self.assertEqual(fuzz.ranges([]), "")

    def test_the_last_count_is_the_total(self):
        self.assertEqual(fuzz.number("#1 cov: 5 \n#2 cov: 17 ft: 9", r"cov: (\d+)"), 17)
        self.assertEqual(fuzz.number("nothing", r"cov: (\d+)"), 0)

    def test_what_faces_peers_is_there(self):
        self.assertTrue(fuzz.facing_peers())

    def test_a_file_below_its_least_percentage_is_named(self):
        files = {"a": {1: True, 2: False}, "b": {1: True, 2: False}, "c": {1: True}}
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(fuzz.print_coverage(files, {"a": 50, "b": 51, "c": 100}), ["b"])


if __name__ == "__main__":
    unittest.main()
