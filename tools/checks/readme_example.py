#!/usr/bin/env python3
"""Checks that the README's C++ example is part of examples/echo/echo.cc, to the letter."""
import os
import re
import sys

from source_tree import this_tree

SOURCE = "examples/echo/echo.cc"


def blocks(markdown):
    """The C++ blocks of a Markdown text."""
    return re.findall(r"```cpp\n(.*?)```", markdown, re.DOTALL)


def complaints(markdown, source):
    found = blocks(markdown)
    if not found:
        return ["README.md shows no C++ example"]
    return ["README.md: this example is not in %s:\n%s" % (SOURCE, block)
            for block in found if block not in source]


def main():
    root = this_tree()
    with open(os.path.join(root, "README.md")) as readme, open(os.path.join(root, SOURCE)) as code:
        wrong = complaints(readme.read(), code.read())
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
