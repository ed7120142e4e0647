#!/usr/bin/env python3
"""Installed documents link to what is installed, and name the rest."""
import unittest

from collect_documents import with_links

PLACES = {"README.md", "docs/guide.md", "docs/errors.md", "examples/echo/echo.cc"}
HEADERS = {"weft/c.h"}


class CollectDocuments(unittest.TestCase):

    def installed(self, text, place="docs/guide.md"):
        return with_links(text, place, PLACES, HEADERS)

    def test_links_to_what_is_installed_stay(self):
        for text in ("[errors](errors.md#ends) [me](#here) [`echo.cc`](../examples/echo/echo.cc)",
                     "[echo](../examples/echo) [Weft](../README.md) [far](https://example.com/gone.md)"):
            self.assertEqual(self.installed(text), text)

    def test_headers_are_linked_where_they_are_installed(self):
        self.assertEqual(self.installed("see [weft/c.h](../weft/c.h)"),
                         "see [weft/c.h](../../../../include/weft/c.h)")
        self.assertEqual(self.installed("see [weft/c.h](weft/c.h)", "README.md"),
                         "see [weft/c.h](../../../include/weft/c.h)")

    def test_what_is_in_the_source_tree_alone_is_named(self):
        self.assertEqual(self.installed("[CONTRIBUTING.md](../CONTRIBUTING.md)"), "CONTRIBUTING.md")
        self.assertEqual(self.installed("[`kv_server.cc`](../examples/kv/kv_server.cc)"),
                         "`examples/kv/kv_server.cc`")
        self.assertEqual(self.installed("[`bench/perf/`](../bench/perf)"), "`bench/perf/`")
        self.assertEqual(self.installed("[what it\ncosts](../embed/README.md#costs)"),
                         "what it\ncosts (`embed/README.md`)")

    def test_code_is_left_alone(self):
        code = "```cpp\n[this](gone)\n```\n"
        self.assertEqual(self.installed(code + "[a](../gone.h)"), code + "a (`gone.h`)")


if __name__ == "__main__":
    unittest.main()
