#!/usr/bin/env python3
"""Checks that files stay small, and have the names and the guard that ours have.

    file_sizes.py [ROOT]        (the tree of this file by default)

A file beyond its limit usually holds two ideas. Prints "FILE: what is wrong" for each, status 1
if there was any.
"""
import os
import re
import sys

import source_tree

HEADER_LINES = 300
SOURCE_LINES = 800
TEST_LINES = 1000

_HEADERS = (".h", ".inc")
_SOURCES = (".cc", ".c", ".py", ".sh", ".bzl", ".proto", ".cmake")
_NAME = re.compile(r"^[a-z0-9_]+$")
# CMake fixes the names of a package's files.
_NAMED_BY_OTHERS = (".cmake",)


def limit(path):
    if source_tree.is_test(path):
        return TEST_LINES
    return HEADER_LINES if path.endswith(_HEADERS) else SOURCE_LINES


def check_file(path, lines):
    wrong = []
    if len(lines) > limit(path):
        wrong.append("%d lines, and the limit is %d" % (len(lines), limit(path)))
    if path.endswith(".h") and "#pragma once" not in (line.strip() for line in lines):
        wrong.append("no #pragma once")
    name = os.path.basename(path).split(".")[0]
    if not path.endswith(_NAMED_BY_OTHERS) and not _NAME.match(name):
        wrong.append("file names are snake_case")
    return ["%s: %s" % (path, what) for what in wrong]


def check(root):
    """Everything wrong in the tree, as lines."""
    found = []
    for path in source_tree.files(root, _HEADERS + _SOURCES):
        with open(os.path.join(root, path), encoding="utf-8") as lines:
            found += check_file(path, list(lines))
    return found


def main():
    found = check(sys.argv[1] if len(sys.argv) > 1 else source_tree.this_tree())
    print("\n".join(found) if found else "file sizes: every file is within its limit")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
