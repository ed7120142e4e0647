#!/usr/bin/env python3
"""Makes the installed headers: all of them below weft/, and no more than a program needs.

    collect_headers.py OUT ENTRY... -- PATH=FILE...

The ENTRY headers are the public ones, weft/NAME.h. What they include is followed among the headers
PATH (as our own code includes it) found in FILE, and is put into OUT:

  - A public header that is nothing but one #include is the public name of that header: the header
    itself is installed under that name, and everybody includes it by it.
  - Everything else that is needed is installed as weft/internal/PATH.
  - What a comment names is renamed with it: a header by its path, or by its file name alone, and a
    document by where it is installed. A comment must name nothing else of ours (names_test.sh).

So a program that has headers of the same names as our own source tree never meets ours. Fails on an
entry that is not there, on an include of a folder of ours that leads nowhere (a program could not be
compiled against it), and on generated headers of the inside: their .proto files are not installed.
"""
import os
import re
import sys

_INCLUDE = re.compile(r'^(\s*#\s*include\s*)"([^"]+)"', re.MULTILINE)
_CODE = re.compile(r"^\s*(?!//|#\s*pragma once\b|$).+$", re.MULTILINE)
_COMMENT = re.compile(r"//.*")
_HEADER = re.compile(r"(?<![\w./])(?:\w+/)*\w+\.h\b")
_DOCUMENT = re.compile(r"(?<![\w./])(?=docs/\w+\.md\b)")
_DOCUMENTS = "share/doc/weft/"
_OURS = ("core", "transport", "rpc", "weft")
_FACE = "weft/"
_INSIDE = "weft/internal/"


def fail(text):
    sys.exit("collect_headers.py: " + text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def ours_in(text):
    return [target for _, target in _INCLUDE.findall(text) if target.split("/")[0] in _OURS]


def renamed(text):
    """The header whose public name a header with this text is; None for any other."""
    code = _CODE.findall(text)
    targets = ours_in(text)
    return targets[0] if len(code) == 1 and len(targets) == 1 else None


def closure(entries, files):
    """The entries and all that they include, of `files` (path -> file): path -> text."""
    texts, waiting = {}, [("the list of public headers", entry) for entry in entries]
    while waiting:
        source, path = waiting.pop()
        if path in texts:
            continue
        if path not in files:
            fail('%s includes "%s", which no installed library has' % (source, path))
        if path.endswith(".pb.h") and not path.startswith(_FACE):
            fail('%s includes "%s", which is of the inside' % (source, path))
        texts[path] = read(files[path])
        waiting += [(path, target) for target in ours_in(texts[path])]
    return texts


def public_names(entries, texts):
    """Header of ours -> its public name."""
    names = {}
    for entry in entries:
        target = renamed(texts[entry])
        if target is None:
            continue
        if target in names:
            fail("%s and %s are both names of %s" % (names[target], entry, target))
        names[target] = entry
    return names


def installed(entries, files):
    """What is installed: path -> text."""
    texts = closure(entries, files)
    names = public_names(entries, texts)
    aliases = set(names.values())

    def new_path(path):
        if path in names:
            return names[path]
        return path if path.startswith(_FACE) else _INSIDE + path

    def named(name, folder):
        """Where that is which a comment in a header of `folder` names; what nobody knows stays."""
        for path in (name, os.path.join(folder, name)):
            if path in texts:
                return new_path(path)
        places = {new_path(path) for path in texts if os.path.basename(path) == name}
        return places.pop() if len(places) == 1 else name

    def comment(text, folder):
        text = _HEADER.sub(lambda match: named(match[0], folder), text)
        return _DOCUMENT.sub(_DOCUMENTS, text)

    def rewritten(path, text):
        text = _INCLUDE.sub(lambda match: '%s"%s"' % (
            match[1], new_path(match[2]) if match[2] in texts else match[2]), text)
        folder = os.path.dirname(path)
        return _COMMENT.sub(lambda match: comment(match[0], folder), text)

    return {new_path(path): rewritten(path, text)
            for path, text in texts.items() if path not in aliases}


def main():
    out, *words = sys.argv[1:]
    split = words.index("--")
    files = dict(word.split("=", 1) for word in words[split + 1:])
    for path, text in installed(words[:split], files).items():
        target = os.path.join(out, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
