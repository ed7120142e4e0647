#!/usr/bin/env python3
"""What differs is said to, what does not is not, and what cannot be told is not guessed."""
import json
import random
import unittest

import compare
import document
import fixture
from compare import FASTER, SAME, SLOWER, TOO_FEW
from document import Key

CALLS = Key("shm", "unary", 64, 64, "weft")
ALONE = Key("shm", "unary", 64, 1, "weft")


def run(*cells):
    """A document of (key, values of its leading figure, one per round)."""
    value = fixture.value(only=lambda key: False)
    for key, values in cells:
        value["cells"].append(fixture.entry(key, [
            (True, fixture.figures(key.bytes, 1e6, v) if key.outstanding == 1
             else fixture.figures(key.bytes, v)) for v in values]))
    return document.parse(json.dumps(value), "run")


def noisy(draw, center, rounds=5, noise=0.02):
    return [center * draw.lognormvariate(0, noise) for _ in range(rounds)]


def verdict(before, after, settings=compare.DEFAULTS):
    (difference,) = compare.compare(before, after, settings)
    return difference.verdict


class AVerdict(unittest.TestCase):

    def setUp(self):
        self.draw = random.Random(2026)

    def test_of_a_run_with_itself_is_no_difference(self):
        same = fixture.make()
        self.assertEqual({d.verdict for d in compare.compare(same, same)}, {SAME})

    def test_of_two_runs_of_the_same_is_no_difference_in_any_of_many_cells(self):
        keys = [CALLS._replace(bytes=size) for size in range(1, 200)]
        before = run(*((key, noisy(self.draw, 1e6, noise=0.01)) for key in keys))
        after = run(*((key, noisy(self.draw, 1e6, noise=0.01)) for key in keys))
        self.assertEqual({d.verdict for d in compare.compare(before, after)}, {SAME})

    def test_sees_a_tenth_more_with_five_rounds(self):
        self.assertEqual(verdict(run((CALLS, noisy(self.draw, 1e6))),
                                 run((CALLS, noisy(self.draw, 1.1e6)))), FASTER)

    def test_sees_a_tenth_less_with_five_rounds(self):
        self.assertEqual(verdict(run((CALLS, noisy(self.draw, 1e6))),
                                 run((CALLS, noisy(self.draw, 0.9e6)))), SLOWER)

    def test_of_a_longer_latency_is_slower(self):
        self.assertEqual(verdict(run((ALONE, noisy(self.draw, 0.5))),
                                 run((ALONE, noisy(self.draw, 0.6)))), SLOWER)

    def test_does_not_take_noise_for_a_difference(self):
        wild = run((CALLS, [0.5e6, 2e6, 1e6, 0.7e6, 1.5e6]))
        self.assertEqual(verdict(wild, run((CALLS, [1.1e6, 0.6e6, 2.1e6, 0.8e6, 1.6e6]))), SAME)

    def test_is_not_given_with_three_rounds(self):
        self.assertEqual(verdict(run((CALLS, noisy(self.draw, 1e6, rounds=3))),
                                 run((CALLS, noisy(self.draw, 2e6, rounds=3)))), TOO_FEW)

    def test_with_less_confidence_is_given_with_three_rounds(self):
        settings = compare.DEFAULTS._replace(confidence=0.9)
        self.assertEqual(verdict(run((CALLS, noisy(self.draw, 1e6, rounds=3))),
                                 run((CALLS, noisy(self.draw, 2e6, rounds=3))), settings), FASTER)

    def test_leaves_out_what_is_too_small_to_matter(self):
        before, after = run((CALLS, [1e6] * 5)), run((CALLS, [1.02e6] * 5))
        self.assertEqual(verdict(before, after), SAME)
        self.assertEqual(verdict(before, after, compare.DEFAULTS._replace(at_least=0.01)), FASTER)

    def test_in_relation_to_raw_ignores_what_moved_both(self):
        raw = CALLS._replace(kind="raw")
        before = run((CALLS, [5e6] * 5), (raw, [1e6] * 5))
        after = run((CALLS, [2.5e6] * 5), (raw, [0.5e6] * 5))
        (difference,) = compare.compare(before, after, compare.DEFAULTS._replace(relative=True))
        self.assertEqual((difference.key, difference.verdict), (CALLS, SAME))
        self.assertEqual({d.verdict for d in compare.compare(before, after)}, {SLOWER})

    def test_counts_only_rounds_on_a_fit_machine(self):
        value = fixture.value(only=lambda key: key == CALLS)
        for of_round in value["cells"][0]["rounds"][:3]:
            of_round["fit"] = False
        few = document.parse(json.dumps(value), "few")
        self.assertEqual(verdict(few, few), TOO_FEW)


class TheReport(unittest.TestCase):

    def test_ends_with_status_0_when_nothing_is_slower(self):
        self.assertEqual(compare.report(run((CALLS, [1e6] * 5)), run((CALLS, [2e6] * 5)))[1], 0)

    def test_ends_with_status_1_when_something_is_slower(self):
        lines, status = compare.report(run((CALLS, [2e6] * 5), (ALONE, [1.0] * 5)),
                                       run((CALLS, [1e6] * 5), (ALONE, [0.5] * 5)))
        self.assertEqual(status, 1)
        self.assertTrue(any("0.50" in line and line.endswith("slower") for line in lines), lines)
        self.assertIn("2 cells: 1 faster, 1 slower", lines)

    def test_ends_with_status_2_when_there_is_nothing_in_common(self):
        lines, status = compare.report(run((CALLS, [1e6] * 5)), run((ALONE, [1.0] * 5)))
        self.assertEqual(status, 2)
        self.assertIn("no cell in common", lines[0])

    def test_says_that_the_machine_was_another_one(self):
        other = run((CALLS, [1e6] * 5))
        other.machine["cpu"] = "B processor"
        lines, _ = compare.report(run((CALLS, [1e6] * 5)), other)
        self.assertTrue(any("A processor, then B processor" in line for line in lines), lines)

    def test_does_not_take_what_an_older_run_did_not_write_down_for_a_difference(self):
        older = run((CALLS, [1e6] * 5))
        del older.machine["congestion_control"]
        lines, _ = compare.report(older, run((CALLS, [1e6] * 5)))
        self.assertFalse(any("machines differ" in line for line in lines), lines)

    def test_says_that_raw_moved_as_well(self):
        raw = CALLS._replace(kind="raw")
        lines, _ = compare.report(run((raw, [1e6] * 5)), run((raw, [2e6] * 5)))
        self.assertTrue(any("differs in 1 of 1 cells" in line for line in lines), lines)

    def test_shows_only_differences_unless_asked(self):
        same = run((CALLS, [1e6] * 5))
        self.assertFalse(any("unary" in line for line in compare.report(same, same)[0]))
        self.assertTrue(any("unary" in line for line in compare.report(same, same, show_all=True)[0]))


if __name__ == "__main__":
    unittest.main()
