#!/usr/bin/env python3
"""Makes the installed documents: their links lead to what is installed.

    collect_documents.py OUT [HEADER...] -- PLACE=FILE...

Each FILE is put into OUT/PLACE, PLACE being its path in the source tree, so that links between these
files hold. Of the Markdown files among them other links are written anew:

  - to a HEADER, weft/NAME.h: to where it is installed (include/weft/NAME.h);
  - to what stands in the source tree alone: the link becomes its words, with the path.
"""
import os
import re
import shutil
import sys

_FENCED = re.compile(r"^([ \t]*```.*?^[ \t]*```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
# From OUT's place, share/doc/weft, to the prefix.
_PREFIX = "../../.."


def words(text, path):
    """A link's text without the link: it names the path."""
    bare = text.replace("`", "")
    if bare.rstrip("/") == path:
        return text
    if path.endswith("/" + bare.rstrip("/")):
        return text.replace(bare, path)
    return "%s (`%s`)" % (text, path)


def with_links(markdown, place, places, headers):
    """The text of the document at `place`, with links to `places` and installed `headers` alone."""
    folder = os.path.dirname(place)

    def link(match):
        text, target, heading = match[1], match[2], match[3] or ""
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = os.path.normpath(os.path.join(folder, target))
        if path in places or any(other.startswith(path + "/") for other in places):
            return match[0]
        if path in headers:
            up = os.path.relpath(".", folder) if folder else "."
            return "[%s](%s%s)" % (text, os.path.normpath(os.path.join(up, _PREFIX, "include", path)), heading)
        return words(text, path)

    parts = _FENCED.split(markdown)
    return "".join(part if _FENCED.match(part) else _LINK.sub(link, part) for part in parts)


def main():
    out, *arguments = sys.argv[1:]
    split = arguments.index("--")
    headers = set(arguments[:split])
    files = dict(argument.split("=", 1) for argument in arguments[split + 1:])
    for place, file in files.items():
        target = os.path.join(out, place)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not place.endswith(".md"):
            shutil.copyfile(file, target)
            continue
        with open(file, encoding="utf-8") as document:
            text = with_links(document.read(), place, set(files), headers)
        with open(target, "w", encoding="utf-8") as document:
            document.write(text)


if __name__ == "__main__":
    main()
