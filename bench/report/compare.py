"""./dev perf compare A.json B.json: what is faster or slower in B than in A, and how surely.

Cell by cell, over the rounds that count: the leading figure of the cell (median latency with one
outstanding, else the rate) as speed, so that 1.10 is 10 % faster. A difference is called one only
if the whole interval of confidence is on one side of 1 and the estimate is further from it than
`at_least`. (statistics_of_ratios.py says where the interval is from.)

Two runs are two moments of one machine, at best. What moved all of it moved raw libfabric as well:
`relative` compares each kind's figures to raw's of the same turn.
"""
import collections

import statistics_of_ratios
import units
from document import is_latency

FASTER = "faster"
SLOWER = "slower"
SAME = "no difference seen"
TOO_FEW = "too few rounds to tell"

# What five rounds and three can give. With less nothing is said.
LEAST_CONFIDENCE = 0.95

Settings = collections.namedtuple("Settings", "confidence at_least relative")
DEFAULTS = Settings(confidence=0.99, at_least=0.03, relative=False)

# `ratio`: None with TOO_FEW. `fit`: on both sides some round was on a fit machine.
Difference = collections.namedtuple("Difference", "key figure before after ratio verdict fit")


def _speeds(document, key, settings):
    """More is better; one value per round."""
    cell = document.cells[key]
    values = cell.values(cell.leading)
    if settings.relative:
        raw = document.cells[key._replace(kind="raw")].values(cell.leading)
        values = {number: value / raw[number] for number, value in values.items() if number in raw}
    lower_is_better = is_latency(cell.leading)
    return [1 / value if lower_is_better else value for value in values.values()]


def verdict_of(ratio, settings):
    if ratio is None:
        return TOO_FEW
    if ratio.low > 1 and ratio.estimate >= 1 + settings.at_least:
        return FASTER
    if ratio.high < 1 and ratio.estimate <= 1 / (1 + settings.at_least):
        return SLOWER
    return SAME


def _keys(before, after, settings):
    for key in before.cells:
        if key not in after.cells:
            continue
        raw = key._replace(kind="raw")
        if settings.relative and (key == raw or raw not in before.cells or raw not in after.cells):
            continue
        yield key


def compare(before, after, settings=DEFAULTS):
    """A Difference for each cell that both have."""
    differences = []
    for key in _keys(before, after, settings):
        ratio = statistics_of_ratios.ratio(
            _speeds(after, key, settings), _speeds(before, key, settings), settings.confidence,
            min(settings.confidence, LEAST_CONFIDENCE))
        cells = before.cells[key], after.cells[key]
        figure = cells[0].leading
        differences.append(Difference(key, figure, cells[0].median(figure), cells[1].median(figure),
                                      ratio, verdict_of(ratio, settings),
                                      all(cell.was_fit() for cell in cells)))
    return differences


def _line(difference):
    key = difference.key
    name = "%-6s%-13s%9s  x%-4d%-8s" % (key.path, key.pattern, units.size(key.bytes),
                                        key.outstanding, key.kind)
    figures = "%10s %10s" % tuple(units.figure(difference.figure, value) if value else "-"
                                  for value in (difference.before, difference.after))
    ratio = difference.ratio
    interval = "%6.2f  %.2f..%.2f" % (ratio.estimate, ratio.low, ratio.high) if ratio else ""
    verdict = difference.verdict + ("" if difference.fit else " (machine unfit)")
    return "%s%s  %-18s  %s" % (name, figures, interval, verdict)


def _count(differences, verdict):
    return sum(difference.verdict == verdict for difference in differences)


def _machines(before, after):
    """What of the two machines differs."""
    facts = ("cpu", "processors", "kernel", "distribution", "compiler", "libfabric", "governor",
             "congestion_control")
    known = [fact for fact in facts if fact in before.machine and fact in after.machine]
    return ["%s: %s, then %s" % (fact, before.machine[fact], after.machine[fact])
            for fact in known if before.machine[fact] != after.machine[fact]]


def _remarks(before, after, differences, settings):
    yield from ("the machines differ: " + line for line in _machines(before, after))
    raw = [d for d in differences if d.key.kind == "raw"]
    moved = len(raw) - _count(raw, SAME) - _count(raw, TOO_FEW)
    if moved:
        yield ("raw libfabric itself differs in %d of %d cells: the machine was not the same; "
               "--relative compares to raw" % (moved, len(raw)))
    told = [d.ratio.coverage for d in differences if d.ratio]
    if told:
        chance = len(told) * (1 - sum(told) / len(told))
        yield ("intervals of %.0f %% to %.0f %% confidence: of %d, about %.1f miss the truth by chance; "
               "differences below %.0f %% are not called any" % (
                   min(told) * 100, max(told) * 100, len(told), chance, settings.at_least * 100))
    if _count(differences, TOO_FEW):
        yield ("more rounds (--repeat), a machine that is fit more often, or a --confidence below %.2f "
               "would tell more" % LEAST_CONFIDENCE)


def report(before, after, settings=DEFAULTS, show_all=False):
    """(lines, exit status): 0 nothing is slower, 1 something is, 2 there is nothing to compare."""
    differences = compare(before, after, settings)
    if not differences:
        return ["%s and %s have no cell in common" % (before.name, after.name)], 2
    shown = [d for d in differences if show_all or d.verdict in (FASTER, SLOWER)]
    lines = []
    if shown:
        lines.append("%-6s%-13s%9s  %-5s%-8s%10s %10s  %6s  %-10s" % (
            "path", "pattern", "bytes", "out", "kind", "before", "after", "speed", "interval"))
        lines += [_line(difference).rstrip() for difference in shown]
    lines.append("%d cells: " % len(differences) + ", ".join(
        "%d %s" % (_count(differences, verdict), verdict)
        for verdict in (FASTER, SLOWER, SAME, TOO_FEW) if _count(differences, verdict)))
    lines += _remarks(before, after, differences, settings)
    return lines, int(_count(differences, SLOWER) > 0)
