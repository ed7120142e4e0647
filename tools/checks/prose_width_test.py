#!/usr/bin/env python3
"""The check of prose finds long lines, and leaves tables and code alone."""
import os
import tempfile
import unittest

from prose_width import COLUMNS, complaints
from source_tree import documents

LONG = "word " * 30


class ProseWidth(unittest.TestCase):
    def test_a_long_line_is_reported_with_its_number(self):
        self.assertEqual(complaints("a.md", "short\n" + LONG),
                         ["a.md:2: %d columns, and the limit of prose is 120" % len(LONG)])

    def test_a_line_of_the_limit_passes(self):
        self.assertEqual(complaints("a.md", ("é" * 10 + " ").ljust(COLUMNS, "x")), [])

    def test_tables_and_code_are_not_prose(self):
        self.assertEqual(complaints("a.md", "| " + LONG + "|\n```\n" + LONG + "\n```\n"), [])

    def test_prose_behind_code_is_prose(self):
        self.assertEqual(len(complaints("a.md", "```\nx\n```\n" + LONG)), 1)

    def test_an_address_cannot_be_wrapped(self):
        self.assertEqual(complaints("a.md", "https://example.com/" + "x" * 200), [])

    def test_all_documents_are_found_but_those_of_bazel(self):
        with tempfile.TemporaryDirectory() as root:
            for folder in ("docs", "bazel-out", ".git", "tools/testdata"):
                os.makedirs(os.path.join(root, folder))
                open(os.path.join(root, folder, "a.md"), "w").close()
            self.assertEqual(list(documents(root)), [os.path.join("docs", "a.md")])


if __name__ == "__main__":
    unittest.main()
