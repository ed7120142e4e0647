#!/usr/bin/env python3
"""Checks that every WEFT_CHECK of transport/ and rpc/ says why no peer can make it fail.

A failed check ends the process, so nothing that a peer sends, and no moment that it chooses, may be
what it is about (core/check.h). The reason stands behind the check, in the line above it, or above
a run of checks that nothing separates, and begins with whose word the condition is:

  // Ours: ...    an invariant of this process' own code
  // User: ...    a precondition of the program that uses the library
  // System: ...  what the system does not refuse, or nothing safe can follow

WEFT_DCHECK is a check like the others where the build has it. Tests and fuzzers are left out.

  check_reasons.py --list   prints every check with its reason
"""
import os
import re
import sys

from source_tree import files, is_test, this_tree

ROOMS = ("transport/", "rpc/")
CHECK = re.compile(r"^(?!\s*//|\s*#).*\bWEFT_D?CHECK\(")
REASON = re.compile(r"//\s*((?:Ours|User|System): \S.*)")


def ends(line):
    """Whether a statement, a block or a list of statements ends with this line."""
    return re.search(r"[;{}]\s*(//.*)?$", line) is not None


def checks(text):
    """(line number, reason or None) of each check."""
    found = []
    lines = text.splitlines()
    reason = None      # of the run of checks that goes on
    inside = False     # a check that began above has not ended
    for number, line in enumerate(lines, 1):
        if inside:
            inside = not ends(line)
            continue
        if CHECK.match(line):
            own = REASON.search(line)
            above = REASON.search(lines[number - 2]) if number > 1 else None
            if own:
                found.append((number, own.group(1)))
            else:
                if above and lines[number - 2].lstrip().startswith("//"):
                    reason = above.group(1)
                found.append((number, reason))
            inside = not ends(line)
        else:
            reason = None
    return found


def complaints(path, text):
    return ["%s:%d: a check without a reason: say `// Ours: ...`, `// User: ...` or "
            "`// System: ...`; what a peer can bring about is an error instead" % (path, number)
            for number, reason in checks(text) if reason is None]


def sources(root):
    for path in files(root, (".h", ".cc")):
        if path.startswith(ROOMS) and not is_test(path):
            with open(os.path.join(root, path), encoding="utf-8") as source:
                yield path, source.read()


def main():
    wrong = []
    for path, text in sources(this_tree()):
        wrong += complaints(path, text)
        if "--list" in sys.argv[1:]:
            for number, reason in checks(text):
                print("%s:%d: %s" % (path, number, reason))
    print("\n".join(wrong) or "check reasons: every check says why no peer can make it fail")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
