#!/usr/bin/env python3
"""Checks that the tests and the files which docs/security.md names are there.

In its tables, each text in backquotes of the column "test" is a test of GoogleTest, `Suite.Name`, or a
file of the tree. A row that names no test has "-" there, and says in its words what does not hold.
Everywhere else, too, a path in backquotes is one of the tree.
"""
import os
import re
import sys

from source_tree import files, is_test, this_tree

DOCUMENT = "docs/security.md"
_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def tests_of(source):
    """"Suite.Name" of each test of a C++ text."""
    return {"%s.%s" % name for name in _TEST.findall(source)}


def cells_of_tests(markdown):
    """The cells below the heads "test" of all tables: (line, text)."""
    found = []
    column = None
    for number, line in enumerate(markdown.splitlines(), 1):
        if not line.startswith("|"):
            column = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if column is None:
            column = cells.index("test") if "test" in cells else -1
        elif column >= 0 and set(line) - set("|-: "):
            found.append((number, cells[column] if column < len(cells) else ""))
    return found


def complaints(markdown, tests, exists):
    """`exists`: whether a path of the tree does."""
    cells = cells_of_tests(markdown)
    if not cells:
        return ["%s has no table with a column \"test\"" % DOCUMENT]
    found = []
    for number, cell in cells:
        names = re.findall(r"`([^`]*)`", cell)
        if not names and cell != "-":
            found.append("%s:%d: no test is named, and no \"-\"" % (DOCUMENT, number))
        found += ["%s:%d: there is no test %s" % (DOCUMENT, number, name)
                  for name in names if name not in tests and "/" not in name]
    paths = re.findall(r"`([a-z_]+/[\w./]*)`", markdown)
    return found + ["%s: there is no file %s" % (DOCUMENT, path)
                    for path in paths if not exists(path)]


def main():
    root = this_tree()
    tests = set()
    for path in files(root, (".cc", ".h")):
        if is_test(path) or path.endswith("_contract.cc"):
            with open(os.path.join(root, path), encoding="utf-8") as source:
                tests |= tests_of(source.read())
    with open(os.path.join(root, DOCUMENT), encoding="utf-8") as document:
        wrong = complaints(document.read(), tests,
                           lambda path: os.path.exists(os.path.join(root, path)))
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
