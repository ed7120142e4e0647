#!/usr/bin/env python3
"""The page shows what the document says, where it says it, whatever its names are."""
import html.parser
import json
import re
import unittest
import xml.etree.ElementTree as xml

import charts
import document
import fixture
import kinds
import page
import svg_chart
import units

HOSTILE = '"><script>alert(1)</script>&amp;\x00\'</svg>]]>'


def drawn(chart):
    """The SVG, read back."""
    return xml.fromstring(page.to_text(svg_chart.to_svg(chart, "c")))


def first_chart(made, title, path="shm"):
    return next(row for row in charts.rows(made, path) if row.title == title).charts[0]


def centers(group):
    """Where the marks of a series are."""
    for mark in group:
        if mark.get("class") != "mark":
            continue
        if mark.tag == "circle":
            yield float(mark.get("cx")), float(mark.get("cy"))
        else:
            points = [tuple(map(float, point.split(","))) for point in mark.get("points").split()]
            xs, ys = zip(*points)
            yield (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


class AChart(unittest.TestCase):

    def setUp(self):
        self.chart = first_chart(fixture.make(), "Latency by size")
        self.svg = drawn(self.chart)

    def group(self, kind):
        return next(g for g in self.svg.iter("g") if "kind-" + kind in (g.get("class") or "").split())

    def test_has_a_mark_for_each_value_where_the_axes_say(self):
        for series in self.chart.series:
            marks = list(centers(self.group(series.kind)))
            self.assertEqual(len(marks), len(fixture.SIZES))
            for point, (x, y) in zip(series.points, marks):
                wanted = svg_chart.to_pixels(self.chart, point.x, point.y)
                self.assertAlmostEqual(x, wanted[0], delta=0.1)
                self.assertAlmostEqual(y, wanted[1], delta=0.1)

    def test_sets_the_same_factor_at_the_same_distance(self):
        """The axes are logarithmic, and upwards is more."""
        def height(us):
            return svg_chart.to_pixels(self.chart, 64, us)[1]
        self.assertAlmostEqual(height(1) - height(10), height(10) - height(100))
        self.assertGreater(height(1), height(10))
        place = self.chart.x.at
        self.assertAlmostEqual(place(4096) - place(1024), place(16384) - place(4096))
        self.assertLess(place(0), place(64))

    def test_keeps_all_values_between_its_axes(self):
        for series in self.chart.series:
            for point in series.points:
                for value in (point.low, point.y, point.high):
                    self.assertTrue(0 <= self.chart.y.at(value) <= 1)

    def test_draws_a_line_through_its_marks(self):
        path = next(p for p in self.group("weft") if p.get("class") == "line").get("d")
        self.assertEqual(path.count("L"), len(fixture.SIZES) - 1)

    def test_tells_a_kind_by_the_shape_of_its_marks_too(self):
        tags = {kind: [m.tag for m in self.group(kind) if m.get("class") == "mark"][0]
                for kind in ("raw", "weft")}
        self.assertEqual(tags, {"raw": "polygon", "weft": "circle"})

    def test_says_in_words_what_it_shows(self):
        self.assertEqual(self.svg.get("role"), "img")
        description = self.svg.find("desc").text
        self.assertIn("Weft: 0 B 650 ns, 64 B 655 ns", description)

    def test_shows_the_smallest_and_the_largest_round(self):
        spread = next(p for p in self.group("weft") if p.get("class") == "spread")
        point = self.chart.series[1].points[0]
        _, low = svg_chart.to_pixels(self.chart, point.x, point.low)
        self.assertAlmostEqual(float(spread.get("y1")), low, delta=0.1)

    def test_of_ratios_has_a_line_at_one(self):
        chart = first_chart(fixture.make(), "Speed relative to raw libfabric")
        line = next(l for l in drawn(chart).iter("line") if l.get("class") == "reference")
        self.assertAlmostEqual(float(line.get("y1")), svg_chart.to_pixels(chart, 64, 1.0)[1], delta=0.1)
        marks = list(centers(next(g for g in drawn(chart).iter("g") if "kind-weft" in (g.get("class") or ""))))
        self.assertTrue(all(y > float(line.get("y1")) for _, y in marks), "slower is below")

    def test_survives_hostile_names(self):
        hostile = first_chart(fixture.make(kinds=("raw", HOSTILE)), "Latency by size")
        texts = [t.text for t in drawn(hostile).iter("title")]
        self.assertTrue(any("<script>" in (text or "") for text in texts), "as text")
        self.assertEqual(list(drawn(hostile).iter("script")), [])

    def test_has_few_marks_on_an_axis_however_far_apart_values_are(self):
        for slowest in (1.1, 3, 50, 1e3, 1e9):
            chart = charts.chart.value_axis("x", [1.0, slowest], units.time)
            self.assertLessEqual(2, len(chart.marks))
            self.assertTrue(len(chart.marks) <= 7 or slowest > 1e6)
            self.assertEqual(len({text for _, text in chart.marks}), len(chart.marks))


class Kinds(unittest.TestCase):

    def test_have_a_colour_each_on_light_and_on_dark_pages(self):
        text = page.to_html(fixture.make())
        for kind in kinds.KNOWN:
            self.assertIn(".%s { color: var(" % kinds.css_class(kind), text)
            name = "--%s: #" % kind.replace("_", "-")
            self.assertEqual(text.count(name), 2, kind)
        colours = re.findall(r"--(?:%s): (#\w+)" % "|".join(kinds.KNOWN).replace("_", "-"), text)
        self.assertEqual(len(colours), len(set(colours)))

    def test_have_a_mark_each(self):
        for of_kind in ("corners", "mark", "ascii", "colour", "label"):
            values = [getattr(look, of_kind) for look in kinds.KNOWN.values()]
            self.assertEqual(len(values), len(set(values)), of_kind)


class Reader(html.parser.HTMLParser):
    """What a browser would see."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)


class ThePage(unittest.TestCase):

    def test_fetches_nothing(self):
        read = Reader(page.to_html(fixture.make()))
        self.assertNotIn("script", read.tags)
        self.assertFalse({"src", "srcset", "data", "action"} & {name for name, _ in read.attributes})
        self.assertNotIn("link", read.tags)
        self.assertNotRegex(page.to_html(fixture.make()), r"url\(|@import")

    def test_has_every_plot_for_every_path(self):
        text = page.to_html(fixture.make())
        for title in ("Latency by size", "Latency distribution", "Rate by outstanding",
                      "Bandwidth by size", "Speed relative to raw libfabric",
                      "Weft relative to raw libfabric, cell by cell"):
            self.assertEqual(text.count("<h3>%s</h3>" % title), 2, title)

    def test_draws_peers_like_the_others(self):
        text = page.to_html(fixture.make(kinds=("raw", "weft", "grpc", "ucx", "sockets", "new one")))
        for name in ("gRPC", "UCX", "plain sockets", "new one"):
            self.assertIn("<h3>%s relative to raw libfabric, cell by cell</h3>" % name, text)
            self.assertIn(name + "</li>", text)

    def test_says_what_holds_and_what_falls_short(self):
        text = page.to_html(fixture.make())
        self.assertIn("1 of 2 goals hold.", text)
        self.assertIn("falls short", text)

    def test_has_the_ratio_of_speeds_of_each_cell(self):
        found = charts.relative_to_raw(fixture.make(), "shm", "unary", "weft")
        self.assertEqual(len(found), 23)
        for relative in found.values():
            self.assertAlmostEqual(relative.ratio, 1 / 1.3)

    def test_compares_checked_bulk_to_bulk_of_raw(self):
        self.assertEqual(len(charts.relative_to_raw(fixture.make(), "shm", "bulk_checked", "weft")), 20)

    def test_has_only_ratios_of_an_emulated_path(self):
        text = page.to_html(fixture.make(paths=("rxe",)))
        self.assertIn("Emulated", text)
        self.assertNotIn("Latency by size", text)
        self.assertIn("Speed relative to raw libfabric", text)
        self.assertIn("0.77×", text)

    def test_survives_hostile_names_everywhere(self):
        value = fixture.value(kinds=("raw", HOSTILE))
        value["machine"]["cpu"] = HOSTILE
        value["notes"] = [HOSTILE]
        value["summary"][0]["what"] = HOSTILE
        text = page.to_html(document.parse(json.dumps(value), "hostile"))
        read = Reader(text)
        self.assertNotIn("script", read.tags)
        self.assertEqual(read.tags.count("h1"), 1)
        for svg in re.findall(r"<svg.*?</svg>", text, re.S):
            xml.fromstring(svg)

    def test_of_a_single_cell_is_a_page_too(self):
        single = fixture.make(only=lambda key: key[:4] == ("shm", "unary", 64, 64))
        self.assertIn("All medians", page.to_html(single))


class Units(unittest.TestCase):

    def test_are_those_that_people_read(self):
        self.assertEqual(units.time(0.5), "500 ns")
        self.assertEqual(units.time(0.9996), "1 µs")
        self.assertEqual(units.time(12.345), "12.3 µs")
        self.assertEqual(units.time(2.5e6), "2.5 s")
        self.assertEqual(units.rate(9.7e6), "9.7 M/s")
        self.assertEqual(units.bandwidth(0.064), "64 MB/s")
        self.assertEqual(units.bandwidth(15.34), "15.3 GB/s")
        self.assertEqual(units.size(300), "300 B")
        self.assertEqual(units.size(1 << 20), "1 MiB")
        self.assertEqual(units.ratio(0.953), "0.95×")


if __name__ == "__main__":
    unittest.main()
