#!/usr/bin/env python3
"""Checks that the words of docs/errors.md stand in the sources.

In its tables, a text in backquotes of the column "words" (or "ending") is what an error contains; `...`
stands for what is put in. Each piece between has to be part of a string literal of the library.
Words in brackets behind one say that they are not the library's: `Address already in use` (the
system's words).
"""
import os
import re
import sys

from source_tree import files, is_test, this_tree

DOCUMENT = "docs/errors.md"
ROOMS = ("core/", "transport/", "rpc/", "weft/")


def literals(source):
    """The string literals of a C++ text; neighbours are one."""
    pattern = r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*'
    return ["".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)).replace('\\"', '"')
            for text in re.findall(pattern, source)]


def texts(markdown):
    """The words that the tables promise: lists of pieces."""
    found = []
    column = None
    for line in markdown.splitlines():
        if not line.startswith("|"):
            column = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if column is None:
            named = [i for i, cell in enumerate(cells) if cell in ("words", "ending")]
            column = named[0] if named else -1
        elif column >= 0:
            words = re.findall(r"`([^`]*)`(?! \(the system's words\))", cells[column])
            found += [word.split("...") for word in words]
    return found


def complaints(markdown, sources):
    known = [text for source in sources for text in literals(source)]
    promised = texts(markdown)
    if not promised:
        return ["%s has no table with a column \"words\"" % DOCUMENT]
    return ["%s: no literal of the sources contains \"%s\"" % (DOCUMENT, piece.strip())
            for pieces in promised for piece in pieces
            if piece.strip(' ".,;:') and not any(piece.strip() in text for text in known)]


def read_sources(root):
    for path in files(root, (".h", ".cc")):
        if path.startswith(ROOMS) and not is_test(path):
            with open(os.path.join(root, path), encoding="utf-8") as source:
                yield source.read()


def main():
    root = this_tree()
    with open(os.path.join(root, DOCUMENT), encoding="utf-8") as document:
        wrong = complaints(document.read(), read_sources(root))
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
