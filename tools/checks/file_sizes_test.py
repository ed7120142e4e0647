#!/usr/bin/env python3
"""The size check finds what is too long, and nothing else."""
import os
import tempfile
import unittest

import file_sizes


class FileSizes(unittest.TestCase):

    def check(self, path, lines, first="#pragma once"):
        with tempfile.TemporaryDirectory() as root:
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full))
            with open(full, "w") as out:
                out.write(first + "\n" + "x\n" * (lines - 1))
            return file_sizes.check(root)

    def test_a_header_at_its_limit_passes(self):
        self.assertEqual(self.check("core/a.h", 300), [])

    def test_a_header_beyond_its_limit_fails(self):
        self.assertEqual(self.check("core/a.h", 301), ["core/a.h: 301 lines, and the limit is 300"])

    def test_a_source_at_its_limit_passes(self):
        self.assertEqual(self.check("rpc/a.cc", 800), [])

    def test_a_source_beyond_its_limit_fails(self):
        self.assertEqual(self.check("rpc/a.cc", 801), ["rpc/a.cc: 801 lines, and the limit is 800"])

    def test_a_test_may_be_longer(self):
        self.assertEqual(self.check("rpc/a_test.cc", 1000), [])

    def test_a_test_beyond_its_limit_fails(self):
        self.assertEqual(len(self.check("rpc/a_test.cc", 1001)), 1)

    def test_generated_files_have_no_limit(self):
        self.assertEqual(self.check("rpc/a.pb.h", 5000), [])

    def test_a_header_without_a_guard_fails(self):
        self.assertEqual(self.check("core/a.h", 1, first=""), ["core/a.h: no #pragma once"])

    def test_a_name_in_capitals_fails(self):
        self.assertEqual(self.check("core/SlabPool.cc", 1),
                         ["core/SlabPool.cc: file names are snake_case"])


if __name__ == "__main__":
    unittest.main()
