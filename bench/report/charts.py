"""Which plots a run gets: rows of charts that share their vertical axis."""
import collections

import chart
import units

Row = collections.namedtuple("Row", "title note charts")

_SMALL = 64      # bytes
_DEEP = 8        # outstanding, where bandwidth is meant
_PATTERN_TITLES = {
    "unary": "calls (unary)", "stream": "messages of a stream", "messages": "bare messages one way",
    "bulk": "bulk in calls",
    "read": "one-sided reads", "write": "one-sided writes"}
# Numbers outstanding whose speed relative to raw is drawn, and how they are called.
_COMPARED = ((1, ""), (64, "64 outstanding"))
# Drawn into the chart of another pattern, as a variant.
_VARIANTS = {"bulk": (("bulk_checked", "CRC32C"),)}


def _point(cell, x, figure):
    values = cell.values(figure).values()
    return chart.Point(x, cell.median(figure), min(values), max(values)) if values else None


def _series(document, path, pattern, figure, x_of, wanted):
    """A line for each kind, through all of its cells that are wanted."""
    series = []
    for part, variant in ((pattern, ""),) + _VARIANTS.get(pattern, ()):
        for kind in document.kinds():
            points = [_point(cell, x_of(key), figure) for key, cell in document.cells.items()
                      if key.path == path and key.pattern == part and key.kind == kind and wanted(key)]
            points = [point for point in points if point]
            if points:
                series.append(chart.Series(kind, points, variant))
    return series


def _values(all_series):
    return [value for series in all_series for point in series.points
            for value in (point.low, point.high)]


def _row(title, note, by_pattern, x_axis, y_title, y_text, reference=None, mark_text=None):
    """Leaves out charts of a single point per line: there is no line."""
    by_pattern = {pattern: series for pattern, series in by_pattern.items()
                  if any(len(one.points) > 1 for one in series)}
    if not by_pattern:
        return None
    everything = [one for series in by_pattern.values() for one in series]
    values = _values(everything) + ([reference] if reference else [])
    y_axis = chart.value_axis(y_title, values, y_text, mark_text)
    x_values = {point.x for one in everything for point in one.points}
    return Row(title, note, [chart.Chart(_PATTERN_TITLES.get(pattern, pattern), x_axis(x_values), y_axis,
                                         series, reference) for pattern, series in by_pattern.items()])


def _latency_by_size(document, path):
    lines = {pattern: _series(document, path, pattern, "p50_us", lambda key: key.bytes,
                              lambda key: key.outstanding == 1)
             for pattern in ("unary", "read", "write")}
    return _row("Latency by size", "One outstanding, median.", lines, chart.size_axis, "latency",
                units.time)


def _distribution(document, path):
    lines = {}
    for pattern in ("unary", "read"):
        for kind in document.kinds():
            cell = document.cells.get((path, pattern, _SMALL, 1, kind))
            points = [chart.Point(percent, us, us, us) for percent, us in
                      (cell.percentiles() if cell else ()) if percent >= 50]
            if points:
                lines.setdefault(pattern, []).append(chart.Series(kind, points))
    return _row("Latency distribution", "64 bytes, one outstanding: from the median to the slowest in ten thousand.",
                lines, lambda _: chart.percentile_axis(), "latency", units.time)


def _rate_by_outstanding(document, path):
    lines = {pattern: _series(document, path, pattern, "per_s", lambda key: key.outstanding,
                              lambda key: key.bytes == _SMALL)
             for pattern in ("unary", "stream", "messages", "read")}
    return _row("Rate by outstanding", "64 bytes.", lines, chart.outstanding_axis, "rate", units.rate)


def _bandwidth_by_size(document, path):
    lines = {pattern: _series(document, path, pattern, "GBps", lambda key: key.bytes,
                              lambda key: key.outstanding == _DEEP and key.bytes > 0)
             for pattern in ("bulk", "messages", "read", "write")}
    return _row("Bandwidth by size", "8 outstanding.", lines, chart.size_axis, "bandwidth",
                units.bandwidth)


def _ratio_by_size(document, path):
    lines = {}
    for pattern in _PATTERN_TITLES:
        for kind in document.kinds():
            found = relative_to_raw(document, path, pattern, kind) if kind != "raw" else {}
            for number, variant in _COMPARED:
                points = [chart.Point(size, one.ratio, one.ratio, one.ratio)
                          for (size, outstanding), one in found.items() if outstanding == number]
                if points:
                    lines.setdefault(pattern, []).append(chart.Series(kind, points, variant))
    return _row("Speed relative to raw libfabric", "1 is as fast as raw, 2 twice as fast: of medians with "
                "one outstanding, of rates with 64.", lines, chart.size_axis, "times as fast as raw",
                units.ratio, reference=1.0, mark_text=units.round_ratio)


def rows(document, path):
    """Those for which there is something to draw; of an emulated path only ratios."""
    figures = () if document.is_emulated(path) else (
        _latency_by_size(document, path), _distribution(document, path),
        _rate_by_outstanding(document, path), _bandwidth_by_size(document, path))
    return [row for row in (*figures, _ratio_by_size(document, path)) if row]


# --- relative to raw ------------------------------------------------------------------------------

# `ratio` is one of speeds: 2 is twice as fast as raw.
Relative = collections.namedtuple("Relative", "ratio before after figure")


def relative_to_raw(document, path, pattern, kind):
    """{(bytes, outstanding): Relative}. What raw does not have in this pattern is compared to what
    the same pattern without it costs: bulk with CRC to raw's bulk."""
    raw_pattern = next((base for base, variants in _VARIANTS.items()
                        if pattern in (name for name, _ in variants)), pattern)
    found = {}
    for key, cell in document.cells.items():
        raw = document.cells.get(key._replace(kind="raw", pattern=raw_pattern))
        if key[:2] != (path, pattern) or key.kind != kind or raw is None:
            continue
        mine, theirs = cell.median(cell.leading), raw.median(cell.leading)
        if mine and theirs:
            ratio = theirs / mine if cell.leading.endswith("_us") else mine / theirs
            found[key.bytes, key.outstanding] = Relative(ratio, theirs, mine, cell.leading)
    return found
