#!/usr/bin/env python3
"""Checks that the links of Markdown files lead to files, folders and headings that are there.

    links.py [ROOT]        (the tree of this file by default)

Links to other places (https://...) are not looked at, nor is what stands in code. Prints
"FILE: what is wrong" for each, status 1 if there was any.
"""
import os
import re
import sys

from source_tree import documents, this_tree

_FENCED = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+[ \t]+(.*?)[ \t]*$", re.MULTILINE)


def targets(markdown):
    """Where its links lead to, but those to other places."""
    text = _CODE.sub("", _FENCED.sub("", markdown))
    return [target for target in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def anchors(markdown):
    """The names of its headings, as GitHub makes them."""
    names = set()
    for heading in _HEADING.findall(_FENCED.sub("", markdown)):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number, unique = 0, name
        while unique in names:
            number += 1
            unique = "%s-%d" % (name, number)
        names.add(unique)
    return names


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as document:
        return document.read()


def complaints(root, path):
    """What is wrong with the links of the document `path` below `root`."""
    wrong = []
    for target in targets(read(root, path)):
        file, _, heading = target.partition("#")
        place = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if not os.path.exists(os.path.join(root, place)):
            wrong.append("%s: the link to %s leads nowhere" % (path, target))
        elif heading and place.endswith(".md") and heading not in anchors(read(root, place)):
            wrong.append("%s: %s has no heading for the link to %s" % (path, place, target))
    return wrong


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else this_tree()
    found = [complaint for path in documents(root) for complaint in complaints(root, path)]
    print("\n".join(found) if found else "links: every link leads somewhere")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
