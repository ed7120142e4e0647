"""A run as one page of HTML: no script, nothing to fetch, light or dark as the reader has it."""
import math
import os

import charts
import kinds
import svg_chart
import units
from markup import node, to_text

STYLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.css")
# What a browser may do with the page, even if somebody smuggled something into a name.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# Ratios as near to 1 as this say nothing.
_SAME = 1.05
# From here on no deeper colour.
_MUCH = 8.0


# --- summary --------------------------------------------------------------------------------------

_FIGURES = {"us": "p50_us", "GB/s": "GBps", "M/s": "per_s"}


def _summary_figure(row, kind):
    if kind not in row:
        return "-"
    scale = 1e6 if row["unit"] == "M/s" else 1
    return units.figure(_FIGURES.get(row["unit"], "per_s"), row[kind] * scale)


def _verdict(row):
    holds = row.get("holds")
    if holds is None:
        return ""
    return node("span", {"class": "verdict " + ("holds" if holds else "short")},
                "holds" if holds else "falls short")


def _summary_row(row, is_emulated):
    goal = (row.get("goal") or "").replace("<=", "≤").replace(">=", "≥")
    return node("tr", None, node("td", {"class": "words"}, row["path"]),
                node("th", {"scope": "row"}, row["what"]),
                *(node("td", None, "-" if is_emulated else _summary_figure(row, kind))
                  for kind in ("raw", "weft")),
                node("td", None, "%.2f" % row["ratio"] if "ratio" in row else ""),
                node("td", {"class": "words"}, _verdict(row)),
                node("td", {"class": "words soft"}, goal))


def _summary(document):
    heads = (("path", "words"), ("", "words"), ("raw", None), ("Weft", None), ("Weft / raw", None),
             ("", "words"), ("goal", "words"))
    return node("div", {"class": "wide"}, node(
        "table", {"class": "summary"},
        node("thead", None, node("tr", None, *(node("th", {"scope": "col", "class": name}, head)
                                               for head, name in heads))),
        node("tbody", None, *(_summary_row(row, document.is_emulated(row["path"]))
                              for row in document.summary))))


def _headline(document):
    judged = [row["holds"] for row in document.summary if "holds" in row]
    if not judged:
        return []
    return [node("p", None, "%d of %d goals hold." % (sum(judged), len(judged)))]


# --- charts ---------------------------------------------------------------------------------------

def _legend(row):
    seen = {}
    for one in row.charts:
        for series in one.series:
            seen.setdefault(series.label, series)
    return node("ul", {"class": "legend"}, *(
        node("li", None, svg_chart.legend_mark(series.kind, bool(series.variant)), label)
        for label, series in seen.items()))


def _row(row, identity):
    yield node("h3", None, row.title)
    yield node("p", {"class": "note"}, row.note)
    yield _legend(row)
    yield node("div", {"class": "row"}, *(
        node("figure", None, node("figcaption", None, one.title),
             svg_chart.to_svg(one, "%s-%d" % (identity, i))) for i, one in enumerate(row.charts)))


# --- relative to raw ------------------------------------------------------------------------------

def _heat(relative):
    """(class, how deep): the same depth for twice as fast and half as fast."""
    if 1 / _SAME < relative.ratio < _SAME:
        return "same", None
    deep = min(abs(math.log(relative.ratio)) / math.log(_MUCH), 1.0)
    return ("faster" if relative.ratio > 1 else "slower"), 0.12 + 0.63 * deep


def _heat_cell(relative):
    if relative is None:
        return node("td", None, "")
    name, deep = _heat(relative)
    return node("td", {"class": name, "style": "--much:%.2f" % deep if deep else None,
                       "title": "%s, raw %s" % (units.figure(relative.figure, relative.after),
                                                units.figure(relative.figure, relative.before))},
                units.ratio(relative.ratio))


def _heat_table(title, found):
    sizes = sorted({size for size, _ in found})
    numbers = sorted({number for _, number in found})
    return node(
        "div", {"class": "wide"}, node(
            "table", {"class": "heat"},
            node("thead", None, node("tr", None, node("th", {"scope": "col", "class": "words"}, title),
                                     *(node("th", {"scope": "col"}, units.size(size)) for size in sizes))),
            node("tbody", None, *(
                node("tr", None, node("th", {"scope": "row"}, "%d outstanding" % number),
                     *(_heat_cell(found.get((size, number))) for size in sizes))
                for number in numbers))))


def _relative(document, path):
    """For each kind besides raw, and each pattern."""
    for kind in document.kinds():
        tables = [(pattern, charts.relative_to_raw(document, path, pattern, kind))
                  for pattern in document.patterns() if kind != "raw"]
        tables = [_heat_table(pattern, found) for pattern, found in tables if found]
        if not tables:
            continue
        yield node("h3", None, "%s relative to raw libfabric, cell by cell" % kinds.label(kind))
        yield node("p", {"class": "note"},
                   "Times as fast: of medians with one outstanding, else of rates. ",
                   node("span", {"class": "scale", "style": "background:rgb(var(--faster) / .5)"}),
                   " faster, ",
                   node("span", {"class": "scale", "style": "background:rgb(var(--slower) / .5)"}), " slower.")
        yield from tables


# --- the rest -------------------------------------------------------------------------------------

def _facts(document):
    machine, settings = document.machine, document.settings
    near = machine.get("core_to_core_ns") or {}
    facts = [
        ("taken", document.taken_at),
        ("processor", "%s, %s of them%s" % (machine.get("cpu"), machine.get("processors"),
                                            ", virtual" if machine.get("virtual") else "")),
        ("speed of the clock", machine.get("governor") or "not set by the kernel"),
        ("pinned", "client on %s, server on %s" % (machine.get("client_cpu"), machine.get("server_cpu"))),
        ("core to core", "%.0f ns (%.0f to %.0f)" % (near["median"], near["min"], near["max"])
         if near else "not measured"),
        ("taken by the hypervisor", "%s ms" % machine.get("stolen_ms")),
        ("kernel", machine.get("kernel")), ("distribution", machine.get("distribution")),
        ("TCP's congestion control", machine.get("congestion_control")),
        ("compiler", machine.get("compiler")), ("libfabric", machine.get("libfabric")),
        ("run", "%s rounds, %.2g s for each leg; %s of %s turns on a fit machine" % (
            settings.get("rounds"), settings.get("seconds_per_leg") or 0, settings.get("fit_turns"),
            settings.get("turns"))),
    ]
    return node("dl", None, *(part for name, value in facts for part in (
        node("dt", None, name), node("dd", None, "unknown" if value is None else value))))


def _all_cells(document):
    heads = ("path", "pattern", "bytes", "outstanding", "kind", "p50", "p99", "p99.9", "rate", "bandwidth")
    rows = []
    for key, cell in sorted(document.cells.items()):
        if cell.emulated:
            continue
        texts = [units.figure(figure, cell.median(figure)) if cell.median(figure) else ""
                 for figure in ("p50_us", "p99_us", "p99.9_us", "per_s", "GBps")]
        rows.append(node("tr", None, *(node("td", {"class": "words"}, text) for text in key[:2]),
                         node("td", None, units.size(key.bytes)), node("td", None, key.outstanding),
                         node("td", {"class": "words"}, key.kind), *(node("td", None, t) for t in texts)))
    return node("details", None, node("summary", None, "All medians as a table"), node(
        "div", {"class": "wide"}, node("table", None, node("thead", None, node(
            "tr", None, *(node("th", {"scope": "col"}, head) for head in heads))),
                                       node("tbody", None, *rows))))


def _left_out(document):
    reasons = {}
    for entry in document.left_out:
        who = (entry.get("kind") or "nobody's", entry["pattern"], entry["reason"])
        reasons.setdefault(who, set()).add((entry["bytes"], entry["outstanding"]))
    items = [node("li", None, "%s %s (%d cells): %s" % (kind, pattern, len(cells), reason))
             for (kind, pattern, reason), cells in reasons.items()]
    if not items:
        return []
    return [node("details", None, node("summary", None, "What was left out, and why"),
                 node("ul", None, *items))]


def _path(document, path, number):
    yield node("h2", None, path)
    if document.is_emulated(path):
        yield node("p", {"class": "note"}, "Emulated: only ratios mean something.")
    for i, row in enumerate(charts.rows(document, path)):
        yield from _row(row, "chart-%d-%d" % (number, i))
    yield from _relative(document, path)


def _others(document):
    """Ways to use the same thing are one: "plain sockets"."""
    names = list(dict.fromkeys(kinds.label(kind).split(",")[0] for kind in document.kinds()
                               if kind != "weft")) or ["nothing"]
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def to_html(document, json_name=None):
    """`json_name`: the document's file, beside the page."""
    title = "Weft beside " + _others(document)
    with open(STYLE, encoding="utf-8") as css:
        style = css.read()
    body = node("body")
    parts = [
        node("h1", None, title),
        node("p", {"class": "soft"}, "%s · %s · libfabric %s" % (
            document.taken_at[:10], document.machine.get("cpu") or "unknown processor",
            document.machine.get("libfabric"))),
        *_headline(document), _summary(document),
        node("p", {"class": "note"}, "Medians of the rounds, both in turns in one run, two processes pinned to two "
             "processors. Compare the ratios: the rest is this machine's."),
    ]
    for number, path in enumerate(document.paths()):
        parts += _path(document, path, number)
    parts += [node("h2", None, "The machine and the run"), _facts(document)]
    parts += [node("p", {"class": "note"}, note) for note in document.notes]
    parts += _left_out(document)
    parts.append(_all_cells(document))
    if json_name:
        parts.append(node("p", None, "Every round of every cell: ",
                          node("a", {"href": json_name}, json_name), "."))
    body.extend(parts)
    root = node("html", {"lang": "en"}, node(
        "head", None, node("meta", {"charset": "utf-8"}),
        node("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}),
        node("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        node("title", None, title), node("style", None, style)), body)
    return "<!DOCTYPE html>\n" + to_text(root) + "\n"
