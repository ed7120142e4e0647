#!/usr/bin/env python3
"""Tests of how tools/run_tests.py takes several runs of one command line."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

import run_tests  # noqa: E402  (it lies in the folder above)


class RunsTest(unittest.TestCase):

    def test_one_run_has_all_words(self):
        self.assertEqual(run_tests.runs_of(["--config=asan", "//core/...", "-//core:x"]),
                         [(["--config=asan"], ["//core/...", "-//core:x"])])
        self.assertEqual(run_tests.runs_of([]), [([], ["//..."])])

    # Once, the options of the first run were the second's as well: half of ./dev sanitizers was
    # to run with ThreadSanitizer and AddressSanitizer at once, which no compiler does.
    def test_options_of_one_run_are_not_those_of_the_next(self):
        self.assertEqual(
            run_tests.runs_of(["--keep_going", "--run", "--config=fuzz", "//a:t", "--run",
                               "--config=tsan", "//b:t", "--run"]),
            [(["--keep_going", "--config=fuzz"], ["//a:t"]),
             (["--keep_going", "--config=tsan"], ["//b:t"]),
             (["--keep_going"], ["//..."])])

    def test_a_target_of_no_run_is_refused(self):
        with self.assertRaises(SystemExit):
            run_tests.runs_of(["//a:t", "--run", "//b:t"])


if __name__ == "__main__":
    unittest.main()
