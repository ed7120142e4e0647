#!/usr/bin/env python3
"""Installed headers lie below weft/, find each other, and are no more than programs need."""
import os
import tempfile
import unittest

import collect_headers


class CollectHeaders(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.files = {}

    def tearDown(self):
        self._folder.cleanup()

    def header(self, path, *lines):
        file = os.path.join(self._folder.name, path.replace("/", "_"))
        with open(file, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
        self.files[path] = file

    def installed(self, *entries):
        return collect_headers.installed(list(entries), self.files)

    def fails(self, *entries):
        with self.assertRaises(SystemExit) as caught:
            self.installed(*entries)
        return str(caught.exception)

    def test_one_include_is_a_name(self):
        self.header("weft/path.h", "// Paths.", "#pragma once", "", '#include "transport/path.h"')
        self.header("transport/path.h", "// All of paths.", "#pragma once", "int path;")
        self.assertEqual(self.installed("weft/path.h"),
                         {"weft/path.h": "// All of paths.\n#pragma once\nint path;\n"})

    def test_everybody_includes_a_header_by_its_public_name(self):
        self.header("weft/path.h", '#include "transport/path.h"')
        self.header("weft/all.h", '#include "rpc/a.h"', '#include "rpc/b.h"')
        self.header("transport/path.h", "int path;")
        self.header("rpc/a.h", '#include "transport/path.h"  // as said there (transport/path.h)')
        self.header("rpc/b.h", '#  include "transport/path.h"', "#include <string>")
        self.assertEqual(self.installed("weft/path.h", "weft/all.h"), {
            "weft/path.h": "int path;\n",
            "weft/all.h": '#include "weft/internal/rpc/a.h"\n#include "weft/internal/rpc/b.h"\n',
            "weft/internal/rpc/a.h": '#include "weft/path.h"  // as said there (weft/path.h)\n',
            "weft/internal/rpc/b.h": '#  include "weft/path.h"\n#include <string>\n',
        })

    def test_comments_name_what_is_installed(self):
        self.header("weft/server.h", '#include "rpc/a.h"', "// With core/b.h, see docs/errors.md.",
                    "int server;  // b.h, not cb.h")
        self.header("rpc/a.h", '#include "core/b.h"', '#include "core/a.h"', "// a.h is this one.")
        self.header("core/a.h", "int a;")
        self.header("core/b.h", "int b = 1;  // server.h")
        self.assertEqual(self.installed("weft/server.h"), {
            "weft/server.h":
                '#include "weft/internal/rpc/a.h"\n'
                "// With weft/internal/core/b.h, see share/doc/weft/docs/errors.md.\n"
                "int server;  // weft/internal/core/b.h, not cb.h\n",
            "weft/internal/rpc/a.h":
                '#include "weft/internal/core/b.h"\n#include "weft/internal/core/a.h"\n'
                "// weft/internal/rpc/a.h is this one.\n",
            "weft/internal/core/a.h": "int a;\n",
            "weft/internal/core/b.h": "int b = 1;  // weft/server.h\n",
        })

    def test_what_nobody_needs_is_not_installed(self):
        self.header("weft/status.h", '#include "absl/status/status.h"', "int status;")
        self.header("core/other.h")
        self.assertEqual(list(self.installed("weft/status.h")), ["weft/status.h"])

    def test_an_include_that_leads_nowhere_fails(self):
        self.header("weft/status.h", '#include "core/gone.h"')
        self.assertIn('weft/status.h includes "core/gone.h"', self.fails("weft/status.h"))

    def test_generated_headers_of_the_inside_fail(self):
        self.header("weft/channel.h", '#include "rpc/hello.pb.h"', "int channel;")
        self.header("rpc/hello.pb.h", "int hello;")
        self.assertIn("is of the inside", self.fails("weft/channel.h"))

    def test_a_header_has_one_public_name(self):
        self.header("weft/a.h", '#include "core/a.h"')
        self.header("weft/b.h", '#include "core/a.h"')
        self.header("core/a.h", "int a;")
        self.assertIn("both names of core/a.h", self.fails("weft/a.h", "weft/b.h"))


if __name__ == "__main__":
    unittest.main()
