"""How many times as large one sample is as another, and how sure that is.

The estimate is Hodges and Lehmann's: the median of all ratios of a value of one sample to a value
of the other. Its interval is the one that belongs to the Mann-Whitney test, from the k-th smallest
to the k-th largest of these ratios, with the exact distribution of U for small samples. Both assume
nothing about how values are distributed, only that the two samples differ by a factor.

 - H. B. Mann, D. R. Whitney: On a Test of Whether one of Two Random Variables is Stochastically
   Larger than the Other. Annals of Mathematical Statistics 18 (1947).
 - J. L. Hodges, E. L. Lehmann: Estimates of Location Based on Rank Tests. Annals of Mathematical
   Statistics 34 (1963).
 - M. Hollander, D. A. Wolfe, E. Chicken: Nonparametric Statistical Methods, 3rd ed., section 4.3
   (the interval).
"""
import collections
import functools
import math
import statistics

# low..high covers the true ratio with a probability of at least `coverage`.
Ratio = collections.namedtuple("Ratio", "estimate low high coverage")


@functools.lru_cache(maxsize=None)
def _orders(first, second, u):
    """In how many orders of so many values of both samples U, the number of pairs in which the
    first one is larger, is u."""
    if u < 0:
        return 0
    if first == 0 or second == 0:
        return int(u == 0)
    # The largest of all is the first's, and larger than all of the second, or it is the second's.
    return _orders(first - 1, second, u - second) + _orders(first, second - 1, u)


def _below(first, second, k):
    """P(U < k) if the samples do not differ."""
    return sum(_orders(first, second, u) for u in range(k)) / math.comb(first + second, first)


def best_coverage(first, second):
    """Of the widest interval that samples of such sizes can have."""
    return 1 - 2 * _below(first, second, 1) if first and second else 0.0


def ratio(numerators, denominators, confidence, at_least=None):
    """The Ratio with that confidence; with the best that there is, where so few values cannot give it;
    None where even that is below `at_least` (by default: the same).
    REQUIRES: positive values."""
    first, second = len(numerators), len(denominators)
    if best_coverage(first, second) < (confidence if at_least is None else at_least):
        return None
    # As narrow as the confidence allows.
    k = 1
    while k < first * second // 2 and 1 - 2 * _below(first, second, k + 1) >= confidence:
        k += 1
    ratios = sorted(n / d for n in numerators for d in denominators)
    return Ratio(statistics.median(ratios), ratios[k - 1], ratios[-k], 1 - 2 * _below(first, second, k))
