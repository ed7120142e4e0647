#!/usr/bin/env python3
"""The page of overload shows each figure where it belongs, and says whether the goals hold."""
import json
import unittest
import xml.etree.ElementTree as xml

import kinds
import overload


def lines(path="shm", goodput=0.97, p99_ratio=2.0, without=()):
    """A run in which every figure differs."""
    made = ['{"metric": "scale.shm.idle.server_percent", "value": 0.1}']
    for i, limit in enumerate(overload.LIMITS):
        for j, load in enumerate(overload.LOADS):
            figures = {"goodput": 0.1 + 0.2 * i + 0.05 * j, "p50_us": 2000 + 10 * i + j,
                       "p99_us": 3000.0 * (1 + i + 3 * j), "p99_ratio": 1 + i + j}
            if (limit, load) == ("adaptive", "triple"):
                figures.update(goodput=goodput, p99_ratio=p99_ratio)
            made += [json.dumps({"metric": "scale.%s.overload.%s_%s.%s" % (path, limit, load, figure),
                                 "value": value})
                     for figure, value in figures.items() if (limit, load, figure) not in without]
    return made


class OverloadPageTest(unittest.TestCase):

    def test_each_limit_has_a_line_of_all_loads_and_a_colour_of_its_own(self):
        cells = overload.read(lines())["shm"]
        for one in overload.charts_of(cells):
            self.assertEqual([[point.x for point in series.points] for series in one.series],
                             [[1 / 3, 1.0, 3.0]] * 3)
        self.assertEqual(len({kinds.css_class(name) for name in overload.LIMITS.values()}), 3)

    def test_every_mark_stands_inside_of_its_chart(self):
        for one in overload.charts_of(overload.read(lines())["shm"]):
            for series in one.series:
                for point in series.points:
                    self.assertTrue(0 <= one.x.at(point.x) <= 1 and 0 <= one.y.at(point.y) <= 1)

    def test_the_goals_are_judged_together(self):
        html = overload.to_html(overload.read(lines()))
        self.assertIn(">holds<", html)
        for bad in (lines(goodput=0.89), lines(p99_ratio=3.1)):
            html = overload.to_html(overload.read(bad))
            self.assertIn(">falls short<", html)
            self.assertNotIn(">holds<", html)

    def test_the_table_has_every_figure(self):
        html = overload.to_html(overload.read(lines(goodput=0.955)))
        self.assertIn("95.5 %", html)
        self.assertEqual(html.count("<tr>"), 10)

    def test_paths_are_apart_and_names_are_escaped(self):
        made = lines() + lines(path="<b>")
        html = overload.to_html(overload.read(made))
        self.assertIn("&lt;b&gt;", html)
        self.assertNotIn("<b>", html)
        self.assertEqual(html.count("<svg"), 2 * (2 + 3))

    def test_the_charts_are_xml(self):
        html = overload.to_html(overload.read(lines()))
        start = html.index("<svg")
        xml.fromstring(html[start:html.index("</svg>") + len("</svg>")])

    def test_a_file_without_a_run_says_so(self):
        with self.assertRaisesRegex(overload.NoRun, "no run"):
            overload.read(lines()[:1])
        with self.assertRaisesRegex(overload.NoRun, "fixed_full"):
            overload.read(lines(without={("fixed", "full", "p99_us")}))


if __name__ == "__main__":
    unittest.main()
