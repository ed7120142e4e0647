#!/usr/bin/env python3
"""A page of what overload leaves of a server.

    overload.py FILE DIR        FILE: JSON lines of ./dev scale overload --json FILE

Status 1: the file has no run of it; 2: it cannot be read.
"""
import json
import math
import os
import sys

import chart
import page
import svg_chart
import units
from markup import node, to_text

# As weft_scale names them, and as they are called here. (The names' colours differ: kinds.py.)
LIMITS = {"unlimited": "without a limit", "fixed": "fixed limit", "adaptive": "adaptive limit"}
LOADS = {"third": 1 / 3, "full": 1.0, "triple": 3.0}
# The goals at the last of the loads, of the adaptive limit.
LEAST_GOODPUT = 0.9
MOST_P99_RATIO = 3.0


class NoRun(Exception):
    """Its text says what is missing."""


def read(lines):
    """{path: {(limit, load): {figure: value}}}, of whatever else there is in the file, too."""
    runs = {}
    for line in lines:
        entry = json.loads(line)
        words = entry["metric"].split(".")
        if len(words) != 5 or words[0] != "scale" or words[2] != "overload":
            continue
        limit, load = words[3].rsplit("_", 1)
        runs.setdefault(words[1], {}).setdefault((limit, load), {})[words[4]] = entry["value"]
    if not runs:
        raise NoRun("no run of `./dev scale overload` is in it")
    for path, cells in runs.items():
        for wanted in ((limit, load) for limit in LIMITS for load in LOADS):
            if not {"goodput", "p50_us", "p99_us", "p99_ratio"} <= set(cells.get(wanted, ())):
                raise NoRun("%s has no figures of %s_%s" % ((path,) + wanted))
    return runs


def _load_axis():
    return chart.Axis("load, of what the workers can do (log)", math.log2,
                      [(LOADS["third"], "1/3"), (1.0, "1"), (LOADS["triple"], "3")],
                      lambda load: "%.2g times the load" % load)


def _series(cells, figure):
    return [chart.Series(name, [chart.Point(LOADS[load], *[cells[limit, load][figure]] * 3)
                                for load in LOADS])
            for limit, name in LIMITS.items()]


def charts_of(cells):
    """Goodput and p99."""
    part = chart.Axis("goodput, of the most", lambda value: value,
                      [(value / 5, "%d %%" % (20 * value)) for value in range(6)],
                      lambda value: "%.1f %%" % (100 * value))
    worst = max(cell["p99_us"] for cell in cells.values())
    best = min(cell["p99_us"] for cell in cells.values())
    marks = [10.0 ** power for power in range(math.floor(math.log10(best)),
                                              math.ceil(math.log10(worst)) + 1)]
    if len(marks) == 1:
        marks.append(10 * marks[0])
    text = lambda us: units.figure("p99_us", us)
    time = chart.Axis("p99 of what was admitted (log)", math.log10,
                      [(mark, text(mark)) for mark in marks], text)
    return [chart.Chart("answered in time", _load_axis(), part, _series(cells, "goodput"),
                        reference=LEAST_GOODPUT),
            chart.Chart("how long it took", _load_axis(), time, _series(cells, "p99_us"))]


def _row(cells, limit, load):
    cell = cells[limit, load]
    verdict = ""
    if (limit, load) == ("adaptive", "triple"):
        holds = cell["goodput"] >= LEAST_GOODPUT and cell["p99_ratio"] <= MOST_P99_RATIO
        verdict = node("span", {"class": "verdict " + ("holds" if holds else "short")},
                       "holds" if holds else "falls short")
    return node("tr", None, node("th", {"scope": "row"}, LIMITS[limit]),
                node("td", None, "%.2g" % LOADS[load]),
                node("td", None, "%.1f %%" % (100 * cell["goodput"])),
                node("td", None, units.figure("p50_us", cell["p50_us"])),
                node("td", None, units.figure("p99_us", cell["p99_us"])),
                node("td", None, "%.2f" % cell["p99_ratio"]),
                node("td", {"class": "words"}, verdict))


def _path(path, cells, number):
    yield node("h2", None, path)
    found = charts_of(cells)
    yield node("ul", {"class": "legend"}, *(
        node("li", None, svg_chart.legend_mark(series.kind, False), series.label)
        for series in found[0].series))
    yield node("div", {"class": "row"}, *(
        node("figure", None, node("figcaption", None, one.title),
             svg_chart.to_svg(one, "overload-%d-%d" % (number, i))) for i, one in enumerate(found)))
    heads = ("", "load", "goodput", "p50", "p99", "p99 / unloaded", "")
    yield node("div", {"class": "wide"}, node(
        "table", None,
        node("thead", None, node("tr", None, *(node("th", {"scope": "col"}, head) for head in heads))),
        node("tbody", None, *(_row(cells, limit, load) for limit in LIMITS for load in LOADS))))


def to_html(runs):
    title = "What overload leaves of a server"
    with open(page.STYLE, encoding="utf-8") as css:
        style = css.read()
    body = node("body", None, node("h1", None, title), node(
        "p", {"class": "note"},
        "Calls whose handlers take the same time each, from callers that do not wait for each other. "
        "The line is the goal: at three times the load, 90 % of the most that can be answered in "
        "time; and a p99 of three times the unloaded one."))
    for number, (path, cells) in enumerate(sorted(runs.items())):
        body.extend(_path(path, cells, number))
    root = node("html", {"lang": "en"}, node(
        "head", None, node("meta", {"charset": "utf-8"}),
        node("meta", {"http-equiv": "Content-Security-Policy", "content": page.POLICY}),
        node("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        node("title", None, title), node("style", None, style)), body)
    return "<!DOCTYPE html>\n" + to_text(root) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, folder = sys.argv[1:]
    try:
        with open(source, encoding="utf-8") as lines:
            html = to_html(read(lines))
    except (OSError, ValueError, KeyError) as error:
        print("%s: %s" % (source, error), file=sys.stderr)
        return 2
    except NoRun as error:
        print("%s: %s" % (source, error), file=sys.stderr)
        return 1
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "overload.html")
    with open(path, "w", encoding="utf-8") as out:
        out.write(html)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
