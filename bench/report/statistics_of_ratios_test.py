#!/usr/bin/env python3
"""The interval is the Mann-Whitney one, to the letter of the tables."""
import itertools
import random
import unittest

from statistics_of_ratios import best_coverage, ratio


class Coverage(unittest.TestCase):

    def test_of_five_and_five_is_what_the_tables_say(self):
        # Two of the 252 orders are more extreme than what the widest interval leaves.
        self.assertAlmostEqual(best_coverage(5, 5), 1 - 2 / 252)

    def test_of_three_and_three_is_low(self):
        self.assertAlmostEqual(best_coverage(3, 3), 0.9)

    def test_of_nothing_is_nothing(self):
        self.assertEqual(best_coverage(0, 5), 0.0)

    def test_is_counted_right(self):
        """Against all orders of four and three values, one by one."""
        orders = list(itertools.combinations(range(7), 4))
        below = sum(sum(b < a for a in first for b in set(range(7)) - set(first)) < 2
                    for first in orders)
        found = ratio([1, 2, 3, 4], [1, 2, 3], 1 - 2 * below / len(orders) - 1e-9)
        self.assertAlmostEqual(found.coverage, 1 - 2 * below / len(orders))
        ratios = sorted(a / b for a in (1, 2, 3, 4) for b in (1, 2, 3))
        self.assertEqual((found.low, found.high), (ratios[1], ratios[-2]))


class TheRatio(unittest.TestCase):

    def test_of_what_is_twice_as_large_is_two(self):
        found = ratio([2.0, 4.0, 6.0, 8.0, 10.0], [1.0, 2.0, 3.0, 4.0, 5.0], 0.99)
        self.assertEqual(found.estimate, 2.0)
        self.assertEqual((found.low, found.high), (0.4, 10.0))

    def test_is_narrower_with_less_confidence(self):
        values = [1.0, 1.1, 1.2, 1.3, 1.4]
        sure, less = ratio(values, values, 0.99), ratio(values, values, 0.9)
        self.assertLess(sure.low, less.low)
        self.assertLess(less.high, sure.high)
        self.assertGreaterEqual(less.coverage, 0.9)

    def test_is_not_told_by_too_few(self):
        self.assertIsNone(ratio([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.99))
        self.assertIsNone(ratio([], [1.0], 0.5))

    def test_is_told_with_less_confidence_where_that_is_allowed(self):
        found = ratio([4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0], 0.99, at_least=0.95)
        self.assertAlmostEqual(found.coverage, 1 - 2 / 56)
        self.assertEqual((found.low, found.high), (4 / 3, 8.0))
        self.assertIsNone(ratio([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], 0.99, at_least=0.95))

    def test_is_inside_of_its_interval_as_often_as_promised(self):
        draw = random.Random(7)
        inside, runs = 0, 1000
        for _ in range(runs):
            numerators = [1.5 * draw.lognormvariate(0, 0.1) for _ in range(5)]
            denominators = [draw.lognormvariate(0, 0.1) for _ in range(5)]
            found = ratio(numerators, denominators, 0.95)
            inside += found.low <= 1.5 <= found.high
        self.assertGreaterEqual(inside / runs, 0.94)


if __name__ == "__main__":
    unittest.main()
