"""A chart for a terminal: the same points on the same axes, in characters.

Each kind has a mark of its own, so that nothing is lost without colours or without UTF-8.
"""
import collections

import kinds

Look = collections.namedtuple("Look", "marks others line corner up across colours")

_PLAIN = "\033[0m"

ASCII = Look({kind: look.ascii for kind, look in kinds.KNOWN.items()}, "+%@", ".", "+", "|", "-", False)
UTF8 = Look({kind: look.mark for kind, look in kinds.KNOWN.items()}, "◇△▽", "·", "└", "│", "─", False)

WIDTH, HEIGHT = 62, 14
_MARGIN = 11  # for the marks of the vertical axis


def look_for(encoding, is_terminal):
    """What the other side can show."""
    utf8 = (encoding or "").lower().replace("-", "") == "utf8"
    return (UTF8 if utf8 else ASCII)._replace(colours=is_terminal)


class _Canvas:

    def __init__(self, colours):
        self._colours = colours
        self._cells = {}  # (column, row): (character, kind)

    def put(self, column, row, character, kind, over=True):
        if over or (column, row) not in self._cells:
            self._cells[column, row] = character, kind

    def row(self, row):
        text = ""
        for column in range(WIDTH + 1):
            character, kind = self._cells.get((column, row), (" ", None))
            colour = kinds.KNOWN[kind].colour if self._colours and kind in kinds.KNOWN else None
            text += colour + character + _PLAIN if colour else character
        return text.rstrip(" ")


def _where(chart, point):
    return round(chart.x.at(point.x) * WIDTH), round((1 - chart.y.at(point.y)) * HEIGHT)


def _draw_line(canvas, first, last, character, kind):
    steps = max(abs(last[0] - first[0]), abs(last[1] - first[1]), 1)
    for step in range(1, steps):
        canvas.put(*(round(a + (b - a) * step / steps) for a, b in zip(first, last)), character, kind,
                   over=False)


def _plain(text, look):
    return text if look.marks is not ASCII.marks else text.replace("µ", "u").replace("×", "x")


def _mark(series, chart, look):
    """A variant has the mark of its place among those that have none of their own."""
    if series.kind in look.marks and not series.variant:
        return look.marks[series.kind]
    others = [s.label for s in chart.series if s.kind not in look.marks or s.variant]
    return look.others[others.index(series.label) % len(look.others)]


def _x_axis(chart, look):
    marks = [" "] * (_MARGIN + WIDTH + 12)
    end = 0
    for value, text in chart.x.marks:
        start = _MARGIN + 1 + round(chart.x.at(value) * WIDTH) - len(text) // 2
        if start <= end and end:
            continue  # no room for this one
        marks[start:start + len(text)] = text
        end = start + len(text)
    yield " " * _MARGIN + look.corner + look.across * (WIDTH + 1)
    yield "".join(marks).rstrip()
    yield " " * (_MARGIN + 1 + (WIDTH - len(chart.x.title)) // 2) + chart.x.title


def to_lines(chart, heading, look):
    canvas = _Canvas(look.colours)
    for series in chart.series:
        places = [_where(chart, point) for point in series.points]
        for first, last in zip(places, places[1:]):
            _draw_line(canvas, first, last, look.line, series.kind)
    for series in chart.series:
        for point in series.points:
            canvas.put(*_where(chart, point), _mark(series, chart, look), series.kind)
    labels = {round((1 - chart.y.at(value)) * HEIGHT): text for value, text in chart.y.marks}
    legend = "   ".join("%s %s" % (_mark(series, chart, look), series.label) for series in chart.series)
    yield "%s   %s" % (heading, legend)
    for row in range(HEIGHT + 1):
        label = _plain(labels.get(row, ""), look)
        yield "%*s %s%s" % (_MARGIN - 1, label, look.up, canvas.row(row))
    yield from _x_axis(chart, look)
