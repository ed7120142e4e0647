"""What a plot shows, apart from how it is drawn: drawn by svg_chart.py and text_chart.py alike."""
import collections
import math

import kinds
import units

# `low` and `high`: the smallest and largest of the rounds; equal to y where there is but one value.
Point = collections.namedtuple("Point", "x y low high")


class Series:
    """One line: points in the order of x."""

    def __init__(self, kind, points, variant=""):
        self.kind = kind
        self.variant = variant  # of the same kind, drawn dashed: "CRC32C"
        self.points = sorted(points)

    @property
    def label(self):
        return kinds.label(self.kind) + (", " + self.variant if self.variant else "")


class Axis:
    """From values to 0..1, with marks: (value, text). All are logarithmic in some way."""

    def __init__(self, title, place, marks, text):
        self.title = title
        self._place = place
        self.marks = marks
        self.text = text  # of a value, with its unit
        self._low = place(marks[0][0])
        self._span = (place(marks[-1][0]) - self._low) or 1.0

    def at(self, value):
        return (self._place(value) - self._low) / self._span


class Chart:

    def __init__(self, title, x, y, series, reference=None):
        self.title = title
        self.x = x
        self.y = y
        self.series = series
        self.reference = reference  # a value of y to which all others are compared

    def description(self):
        """The same in words."""
        return "; ".join("%s: %s" % (series.label, ", ".join(
            "%s %s" % (self.x.text(point.x), self.y.text(point.y)) for point in series.points))
                         for series in self.series)


def size_axis(sizes):
    """Base 2. Nothing stands where a quarter of the smallest something would."""
    some = [size for size in sizes if size > 0]
    zero = math.log2(min(some)) - 2 if some else 0.0
    return Axis("bytes (log)", lambda size: math.log2(size) if size > 0 else zero,
                [(size, units.short_size(size)) for size in sorted(sizes)], units.size)


def outstanding_axis(numbers):
    return Axis("outstanding (log)", math.log2, [(n, str(n)) for n in sorted(numbers)],
                lambda n: "%d outstanding" % n)


def _tail(percent):
    """How far out: 1 for 90 %, 2 for 99 %, 3 for 99.9 %."""
    return -math.log10(1 - percent / 100)


def percentile_axis():
    """From the median on."""
    return Axis("percentile (log of what is left)", _tail,
                [(p, "%g %%" % p) for p in (50, 90, 99, 99.9, 99.99)], lambda p: "p%g" % p)


# At most so many marks, lest their texts touch.
_MOST_MARKS = 7


def value_axis(title, values, text, mark_text=None):
    """Base 10, from a mark below all values to one above: 1, 2, 5, 10, or 1, 10, 100."""
    low, high = min(values), max(values)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        ladder = [step * 10.0 ** decade for decade in decades for step in steps]
        below = max(i for i, mark in enumerate(ladder) if mark <= low * (1 + 1e-9))
        above = min(i for i, mark in enumerate(ladder) if mark >= high * (1 - 1e-9))
        marks = ladder[below:max(above, below + 1) + 1]
        if len(marks) <= _MOST_MARKS:
            break
    return Axis(title + " (log)", math.log10, [(mark, (mark_text or text)(mark)) for mark in marks], text)
