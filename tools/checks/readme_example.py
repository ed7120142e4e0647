#!/usr/bin/env python3
"""Checks that code shown in documents is part of programs that are built and run, to the letter.

The README shows examples/echo/echo.cc, the guide also examples/guide/, examples/sim/ and
examples/kv/kv_server.cc, and docs/tuning.md examples/guide/.
"""
import glob
import os
import re
import sys

from source_tree import this_tree

SOURCES = {
    "README.md": ["examples/echo/echo.cc"],
    "docs/guide.md": ["examples/echo/echo.*", "examples/guide/*.*", "examples/sim/*.cc",
                      "examples/kv/kv_server.cc"],
    "docs/tuning.md": ["examples/guide/*.*"],
}


def blocks(markdown):
    """The blocks of C++ and of protobuf of a Markdown text."""
    return re.findall(r"```(?:cpp|proto)\n(.*?)```", markdown, re.DOTALL)


def complaints(markdown, source, document="README.md"):
    found = blocks(markdown)
    if not found:
        return ["%s shows no C++ example" % document]
    return ["%s: this example is not in %s:\n%s" % (document, ", ".join(SOURCES[document]), block)
            for block in found if block not in source]


def read_all(root, patterns):
    texts = []
    for pattern in patterns:
        for name in sorted(glob.glob(os.path.join(root, pattern))):
            with open(name, encoding="utf-8") as source:
                texts.append(source.read())
    return "\0".join(texts)


def main():
    root = this_tree()
    wrong = []
    for document, patterns in SOURCES.items():
        wrong += complaints(read_all(root, [document]), read_all(root, patterns), document)
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
