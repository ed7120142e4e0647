#!/usr/bin/env python3
"""The check of links finds those that lead nowhere, and knows what is none."""
import os
import tempfile
import unittest

from links import anchors, complaints


class Links(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.root = self._folder.name

    def tearDown(self):
        self._folder.cleanup()

    def write(self, path, text):
        os.makedirs(os.path.join(self.root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as out:
            out.write(text)

    def complaints(self, text, path="docs/a.md"):
        self.write(path, text)
        return complaints(self.root, path)

    def test_files_folders_and_headings_that_are_there_pass(self):
        self.write("README.md", "# Weft\n\n## An example\n")
        self.write("examples/echo/echo.cc", "")
        self.assertEqual(self.complaints("## Here\n[a](../README.md), [`b`](../README.md#an-example), [c](#here),\n"
                                         "[two\nlines](../examples/echo), [d](../examples/echo/echo.cc)\n"), [])

    def test_a_file_that_is_not_there_is_reported(self):
        self.assertEqual(self.complaints("[`gone`](../gone.md#x) and [gone](gone.h)"),
                         ["docs/a.md: the link to ../gone.md#x leads nowhere",
                          "docs/a.md: the link to gone.h leads nowhere"])

    def test_a_heading_that_is_not_there_is_reported(self):
        self.write("README.md", "## An example\n```\n# no heading\n```\n")
        self.assertEqual(self.complaints("[a](../README.md#no-heading)"),
                         ["docs/a.md: README.md has no heading for the link to ../README.md#no-heading"])

    def test_other_places_and_code_are_not_looked_at(self):
        self.assertEqual(self.complaints("[a](https://example.com/x)\n```\n[b](gone)\n```\n`[this](int c)` "
                                         "`[d](gone)`\n"), [])

    def test_headings_have_the_names_that_github_gives(self):
        self.assertEqual(anchors("# What's `ofi_tcp`?\n## Again\n## Again\n### From C, Go and Rust\n"),
                         {"whats-ofi_tcp", "again", "again-1", "from-c-go-and-rust"})


if __name__ == "__main__":
    unittest.main()
