#!/usr/bin/env python3
"""Checks that no line of prose in a Markdown file is longer than 120 columns.

    prose_width.py [ROOT]        (the tree of this file by default)

Tables and code are not prose; a line of a single word (an address) cannot be wrapped. Prints
"FILE:LINE: what is wrong" for each, status 1 if there was any.
"""
import os
import sys

from source_tree import documents, this_tree

COLUMNS = 120


def complaints(path, markdown):
    wrong = []
    in_code = False
    for number, line in enumerate(markdown.splitlines(), 1):
        text = line.strip()
        if text.startswith("```"):
            in_code = not in_code
        elif not in_code and not text.startswith("|") and " " in text and len(line) > COLUMNS:
            wrong.append("%s:%d: %d columns, and the limit of prose is %d" %
                         (path, number, len(line), COLUMNS))
    return wrong


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else this_tree()
    found = []
    for path in documents(root):
        with open(os.path.join(root, path), encoding="utf-8") as document:
            found += complaints(path, document.read())
    print("\n".join(found) if found else "prose width: every line is within its limit")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
