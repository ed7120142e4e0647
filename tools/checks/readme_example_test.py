#!/usr/bin/env python3
"""The README check finds an example that has drifted, and one that is missing."""
import unittest

from readme_example import complaints

README = "text\n```cpp\nint a;\n```\nmore\n"


class ReadmeExample(unittest.TestCase):
    def test_an_example_that_is_in_the_source_passes(self):
        self.assertEqual(complaints(README, "// x\nint a;\nint b;\n"), [])

    def test_a_drifted_example_is_reported(self):
        self.assertEqual(len(complaints(README, "int b;\n")), 1)

    def test_a_missing_example_is_reported(self):
        self.assertEqual(len(complaints("no code", "int a;\n")), 1)

    def test_the_guide_is_compared_with_all_of_its_programs(self):
        guide = README + "```proto\nmessage A {}\n```\n"
        self.assertEqual(complaints(guide, "int a;\n\0message A {}\n", "docs/guide.md"), [])
        self.assertEqual(len(complaints(guide, "int a;\n", "docs/guide.md")), 1)


if __name__ == "__main__":
    unittest.main()
