#!/usr/bin/env python3
"""perf.py from outside: its files, its plots in the terminal, its status."""
import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

import chart
import charts
import fixture
import perf
import text_chart

# Writes the document given by DOCUMENT to the file after --json, ends with STATUS.
PROGRAM = """#!/bin/sh
[ "$1" = --json ] && cp "$DOCUMENT" "$2" && shift 2
echo "measured: $*"
exit $STATUS
"""


class Perf(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.document = self.write("run.json", json.dumps(fixture.value()))
        self.program = self.write("program", PROGRAM)
        os.chmod(self.program, stat.S_IRWXU)
        os.environ.update(DOCUMENT=self.document, STATUS="0")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)
        return self.path(name)

    def perf(self, *arguments):
        """(status, what it said)"""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = perf.main(list(arguments))
            except SystemExit as end:
                status = end.code
        return status, said.getvalue()

    def test_a_run_ends_with_plots(self):
        status, said = self.perf("run", self.program, "--quick")
        self.assertEqual(status, 0)
        self.assertIn("shm: latency by size, calls (unary)", said)
        self.assertIn("Weft", said)

    def test_a_run_keeps_its_document_and_makes_its_page(self):
        status, _ = self.perf("run", self.program, "--json", self.path("kept.json"),
                              "--report=" + self.path("page"))
        self.assertEqual(status, 0)
        for file in ("kept.json", "page/perf.json"):
            with open(self.path(file), encoding="utf-8") as kept:
                self.assertEqual(json.load(kept), fixture.value())
        with open(self.path("page/index.html"), encoding="utf-8") as html:
            self.assertIn("Latency by size", html.read())

    def test_a_run_that_could_not_measure_everything_says_so_by_its_status(self):
        os.environ["STATUS"] = "1"
        status, said = self.perf("run", self.program)
        self.assertEqual(status, 1)
        self.assertIn("latency by size", said, "and still plots what there is")

    def test_a_document_that_cannot_be_written_is_told_before_the_run(self):
        os.environ["DOCUMENT"] = "/nowhere"
        status, said = self.perf("run", self.program, "--json", "/nowhere/at/all.json")
        self.assertEqual(status, 2)
        self.assertIn("/nowhere/at/all.json", said)

    def test_a_page_comes_from_an_earlier_document(self):
        self.assertEqual(self.perf("report", self.document, self.path("new/page"))[0], 0)
        # Once more, from the copy that lies there.
        self.assertEqual(self.perf("report", self.path("new/page/perf.json"), self.path("new/page"))[0], 0)

    def test_two_documents_are_compared(self):
        status, said = self.perf("compare", self.document, self.document)
        self.assertEqual(status, 0)
        self.assertIn("no difference seen", said)

    def test_two_documents_are_compared_where_there_is_only_ascii(self):
        ended = subprocess.run(
            [sys.executable, perf.__file__, "compare", self.document, self.document, "--all"],
            env=dict(os.environ, PYTHONIOENCODING="ascii"), stdout=subprocess.PIPE, check=False)
        self.assertEqual(ended.returncode, 0)
        self.assertIn(b"9 us", ended.stdout)

    def test_what_is_not_a_document_is_named(self):
        for text in ("", "[]", "{}", '{"format": "weft-perf", "version": 99}',
                     '{"format": "weft-perf", "version": 1}'):
            status, said = self.perf("plot", self.write("bad.json", text))
            self.assertEqual(status, 2, text)
            self.assertIn("bad.json", said)
        self.assertEqual(self.perf("compare", self.document, self.path("none.json"))[0], 2)

    def test_wrong_arguments_end_with_2(self):
        for arguments in ((), ("paint",), ("compare", self.document),
                          ("compare", self.document, self.document, "--confidence=2")):
            self.assertEqual(self.perf(*arguments)[0], 2, arguments)


class InATerminal(unittest.TestCase):

    def lines(self, look, kinds=("raw", "weft")):
        made = charts.rows(fixture.make(kinds=kinds), "shm")[0].charts[0]
        return list(text_chart.to_lines(made, "title", look))

    def test_each_value_is_a_mark(self):
        plot = "\n".join(self.lines(text_chart.UTF8, ("raw", "grpc"))[1:])
        self.assertEqual(plot.count("□"), len(fixture.SIZES))
        self.assertEqual(plot.count("▲"), len(fixture.SIZES))

    def test_marks_stand_where_the_axes_say(self):
        points = [chart.Point(x, y, y, y) for x, y in ((1, 1.0), (8, 10.0), (64, 100.0))]
        straight = chart.Chart("t", chart.outstanding_axis((1, 8, 64)),
                               chart.value_axis("y", [1.0, 100.0], lambda value: "%g" % value),
                               [chart.Series("weft", points)])
        rows = list(text_chart.to_lines(straight, "t", text_chart.ASCII))[1:]
        places = [(row.index("*"), i) for i, row in enumerate(rows) if "*" in row]
        self.assertEqual([i for _, i in places], [0, text_chart.HEIGHT // 2, text_chart.HEIGHT])
        columns = [column for column, _ in places]
        self.assertEqual(columns[0] - columns[1], columns[1] - columns[2])

    def test_without_utf8_there_is_nothing_but_ascii(self):
        for line in self.lines(text_chart.look_for("ANSI_X3.4-1968", False)):
            line.encode("ascii")

    def test_colours_are_for_terminals(self):
        self.assertNotIn("\033", "".join(self.lines(text_chart.look_for("UTF-8", False))))
        self.assertIn("\033", "".join(self.lines(text_chart.look_for("UTF-8", True))))

    def test_every_kind_has_a_mark_of_its_own(self):
        legend = self.lines(text_chart.ASCII, ("raw", "weft", "grpc", "ucx", "sockets", "a", "b"))[0]
        marks = [words.split()[0] for words in legend.split("   ")[1:]]
        self.assertEqual(len(set(marks)), 7, legend)

    def test_it_fits_into_eighty_columns(self):
        for line in self.lines(text_chart.UTF8):
            self.assertLessEqual(len(line), 80)


if __name__ == "__main__":
    unittest.main()
