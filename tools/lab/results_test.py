#!/usr/bin/env python3
"""What happens in a machine is counted: also when a program crashes, hangs, or tests nothing."""
import contextlib
import io
import unittest
import xml.etree.ElementTree

import interop_example
import perf_smoke
from gtest_lines import FAILED, PASSED, SKIPPED, Case, Follower, judge_program
from report import Report

GOOD = ["[==========] Running 2 tests", "[ RUN      ] A.One/verbs", "[       OK ] A.One/verbs (2 ms)"]


def follow(lines, status):
    follower = Follower()
    for line in lines:
        follower.add(line)
    return judge_program(follower.finish(status))


class Following(unittest.TestCase):

    def test_passed_failed_and_skipped_are_told_apart(self):
        cases = follow(GOOD + [
            "[ RUN      ] A.Two/verbs", "a.cc:7: Failure", "expected 1",
            "[  FAILED  ] A.Two/verbs, where GetParam() = 1 (3 ms)",
            "[ RUN      ] A.Three", "a.cc:9: Skipped", "no atomics", "[  SKIPPED ] A.Three (0 ms)",
            "[  FAILED  ] 1 test, listed below:", "[  FAILED  ] A.Two/verbs, where GetParam() = 1"], 1)
        self.assertEqual([(case.name, case.outcome) for case in cases],
                         [("A.One/verbs", PASSED), ("A.Two/verbs", FAILED), ("A.Three", SKIPPED)])
        self.assertIn("expected 1", cases[1].text)
        self.assertIn("no atomics", cases[2].text)

    def test_a_crash_fails_the_test_that_ran(self):
        cases = follow(GOOD + ["[ RUN      ] A.Two/verbs", "CHECK failed"], 134)
        self.assertEqual((cases[1].name, cases[1].outcome), ("A.Two/verbs", FAILED))
        self.assertIn("CHECK failed", cases[1].text)
        self.assertIn("status 134", cases[1].text)

    def test_a_hang_fails_the_test_that_ran(self):
        cases = follow(GOOD + ["[ RUN      ] A.Two/verbs"], None)
        self.assertIn("took too long", cases[1].text)

    def test_a_program_that_fails_outside_of_its_tests_fails(self):
        cases = follow(GOOD + ["leaked 5 bytes"], 1)
        self.assertEqual(cases[-1].outcome, FAILED)
        self.assertIn("leaked 5 bytes", cases[-1].text)

    def test_a_program_without_a_test_over_verbs_fails(self):
        self.assertEqual([case.outcome for case in follow(["[==========] 0 tests"], 0)], [FAILED])

    def test_a_program_that_skips_all_its_tests_fails(self):
        cases = follow(["[ RUN      ] A.One", "no RDMA", "[  SKIPPED ] A.One (0 ms)"], 0)
        self.assertEqual([case.outcome for case in cases], [SKIPPED, FAILED])
        self.assertIn("no RDMA", cases[1].text)


class InteropLines(unittest.TestCase):
    good = ["verbs  empty_unary                   ok", "verbs  ping_pong                     ok",
            "2 passed, 0 failed"]

    def outcomes(self, lines, status):
        return [(case.name, case.outcome)
                for case in interop_example.cases_of("verbs", lines, status)]

    def test_each_scenario_is_a_case(self):
        self.assertEqual(self.outcomes(self.good, 0), [("Interop.empty_unary", PASSED),
                                                       ("Interop.ping_pong", PASSED)])

    def test_one_that_failed_is_told_with_what_was_said(self):
        lines = [self.good[0], "verbs  ping_pong                     FAILED", "       wrong bytes",
                 "1 passed, 1 failed"]
        cases = interop_example.cases_of("verbs", lines, 1)
        self.assertEqual([case.outcome for case in cases], [PASSED, FAILED])
        self.assertIn("wrong bytes", cases[1].text)

    def test_a_client_that_does_not_count_all_of_them_fails(self):
        for lines, status in ((self.good[:2], 0), (self.good[1:], 0), (self.good, None),
                              (self.good, 134), ([], 0), (["0 passed, 0 failed"], 0)):
            self.assertEqual(self.outcomes(lines, status)[-1], ("Interop.RunsToItsEnd", FAILED))


class ATableOfPerf(unittest.TestCase):
    table = ["path                                                        raw     Weft        Weft / raw               goal"] + [
        "rxe   %-48s emulated emulated              1.75  holds        >= 0.95" % row for row in perf_smoke.ROWS]

    def test_every_row_has_a_ratio(self):
        self.assertEqual(perf_smoke.missing_rows("rxe", self.table), [])

    def test_rows_that_are_not_there_are_named(self):
        self.assertEqual(perf_smoke.missing_rows("rxe", self.table[:-1]), ["1 MiB bulk in calls, CRC32C (raw: no CRC)"])
        self.assertEqual(len(perf_smoke.missing_rows("siw", self.table)), len(perf_smoke.ROWS))

    def test_a_figure_in_place_of_emulated_is_no_row(self):
        lines = [line.replace("emulated", "   9.001", 1) for line in self.table]
        self.assertEqual(perf_smoke.missing_rows("rxe", lines), list(perf_smoke.ROWS))


class Reporting(unittest.TestCase):

    def setUp(self):
        self.report = Report()
        with contextlib.redirect_stdout(io.StringIO()):
            for case in (Case("A", PASSED, ""), Case("B", FAILED, "bad \x01 <byte>"),
                         Case("C", SKIPPED, "no card")):
                self.report.add("rxe.test", case)

    def test_the_last_line_counts(self):
        self.assertEqual(self.report.last_line(), "1 passed, 1 failed, 1 skipped")
        self.assertEqual(self.report.status(), 1)

    def test_bazel_reads_the_same(self):
        cases = list(xml.etree.ElementTree.fromstring(self.report.to_xml()).iter("testcase"))
        self.assertEqual([case.get("classname") + "." + case.get("name") for case in cases],
                         ["rxe.test.A", "rxe.test.B", "rxe.test.C"])
        self.assertIsNotNone(cases[1].find("failure"))
        self.assertEqual(cases[2].find("skipped").get("message"), "no card")


if __name__ == "__main__":
    unittest.main()
