"""A chart as SVG: lines through marks, a mark of its own shape for each kind, a thin bar from the
smallest to the largest round.

Colours come from the page: everything of a kind has its class (kinds.py) and is drawn in
currentColor.
"""
import kinds
from markup import node

WIDTH, HEIGHT = 380, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 30, 44
_INSET = 9   # between the vertical axis and the first mark
_MARK = 3.6  # half the width of a mark


def to_pixels(chart, x, y):
    """Where a value stands."""
    return (_LEFT + _INSET + chart.x.at(x) * (WIDTH - _LEFT - _RIGHT - 2 * _INSET),
            HEIGHT - _BOTTOM - chart.y.at(y) * (HEIGHT - _TOP - _BOTTOM))


def _number(value):
    return ("%.1f" % value).rstrip("0").rstrip(".")


def _line(x1, y1, x2, y2, **attributes):
    return node("line", dict(x1=_number(x1), y1=_number(y1), x2=_number(x2), y2=_number(y2),
                             **attributes))


def _text(x, y, text, anchor, **attributes):
    return node("text", {"x": _number(x), "y": _number(y), "text-anchor": anchor, **attributes}, text)


def _polygon(x, y, corners):
    return {"points": " ".join("%s,%s" % (_number(x + dx * _MARK), _number(y + dy * _MARK))
                               for dx, dy in corners)}


def mark(kind, x, y, *children):
    corners = kinds.corners(kind)
    if corners:
        return node("polygon", {"class": "mark", **_polygon(x, y, corners)}, *children)
    return node("circle", {"class": "mark", "cx": _number(x), "cy": _number(y), "r": _MARK}, *children)


def _axes(chart):
    bottom = HEIGHT - _BOTTOM
    for value, text in chart.y.marks:
        _, y = to_pixels(chart, chart.x.marks[0][0], value)
        yield _line(_LEFT, y, WIDTH - _RIGHT, y, **{"class": "grid"})
        yield _text(_LEFT - 7, y + 4, text, "end", **{"class": "tick"})
    if chart.reference is not None:
        _, y = to_pixels(chart, chart.x.marks[0][0], chart.reference)
        yield _line(_LEFT, y, WIDTH - _RIGHT, y, **{"class": "reference"})
    for value, text in chart.x.marks:
        x, _ = to_pixels(chart, value, chart.y.marks[0][0])
        yield _line(x, bottom, x, bottom + 4, **{"class": "axis"})
        yield _text(x, bottom + 17, text, "middle", **{"class": "tick"})
    yield _line(_LEFT, bottom, WIDTH - _RIGHT, bottom, **{"class": "axis"})
    yield _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 7, chart.x.title, "middle", **{"class": "title"})
    yield _text(4, 14, chart.y.title, "start", **{"class": "title"})


def _series(chart, series):
    group = node("g", {"class": "series " + kinds.css_class(series.kind)
                                + (" variant" if series.variant else "")})
    pixels = [to_pixels(chart, point.x, point.y) for point in series.points]
    if len(pixels) > 1:
        path = "M" + " L".join("%s %s" % (_number(x), _number(y)) for x, y in pixels)
        group.append(node("path", {"class": "line", "d": path}))
    for point, (x, y) in zip(series.points, pixels):
        (_, low), (_, high) = (to_pixels(chart, point.x, value) for value in (point.low, point.high))
        if low - high >= 1:
            group.append(_line(x, low, x, high, **{"class": "spread"}))
        words = "%s, %s: %s" % (series.label, chart.x.text(point.x), chart.y.text(point.y))
        group.append(mark(series.kind, x, y, node("title", None, words)))
    return group


def to_svg(chart, identity):
    """`identity`: unique in the page."""
    title, description = identity + "-title", identity + "-description"
    return node(
        "svg", {"viewBox": "0 0 %d %d" % (WIDTH, HEIGHT), "role": "img",
                "aria-labelledby": title + " " + description, "class": "chart"},
        node("title", {"id": title}, chart.title),
        node("desc", {"id": description}, chart.description()),
        node("g", {"aria-hidden": "true"}, *_axes(chart)),
        # Weft over the others.
        *(_series(chart, series) for series in sorted(chart.series, key=lambda s: s.kind == "weft")))


def legend_mark(kind, is_variant):
    return node("svg", {"viewBox": "0 0 26 12", "class": "key " + kinds.css_class(kind)
                                                         + (" variant" if is_variant else ""),
                        "aria-hidden": "true"},
                _line(1, 6, 25, 6, **{"class": "line"}), mark(kind, 13, 6))
