#!/usr/bin/env python3
"""Copies the headers that a program needs, and no others.

    collect_headers.py OUT ENTRY... -- PATH=FILE...

Starts at the ENTRY headers and follows what they include, among the headers PATH (as it is
included) found in FILE. Fails on an entry that is not there, and on an include that belongs to one
of the entries' top folders but is not there: a program could not be compiled against it.
"""
import os
import re
import shutil
import sys

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def includes(path):
    with open(path, encoding="utf-8") as file:
        return _INCLUDE.findall(file.read())


def closure(entries, files):
    """The entries and all that they include, of `files` (path -> file)."""
    ours = {entry.split("/")[0] for entry in entries}
    needed, waiting = set(), [("the list of public headers", entry) for entry in entries]
    while waiting:
        source, path = waiting.pop()
        if path in needed:
            continue
        if path not in files:
            sys.exit("%s includes \"%s\", which no installed library has" % (source, path))
        needed.add(path)
        waiting += [(path, target) for target in includes(files[path])
                    if target.split("/")[0] in ours]
    return needed


def main():
    out, *words = sys.argv[1:]
    split = words.index("--")
    files = dict(word.split("=", 1) for word in words[split + 1:])
    for path in closure(words[:split], files):
        target = os.path.join(out, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(files[path], target)


if __name__ == "__main__":
    main()
