#!/usr/bin/env python3
"""Checks that whatever may end the process says why no peer can bring it about.

A failed WEFT_CHECK ends the process, so nothing that a peer sends, and no moment that it chooses, may
be what it is about (core/check.h). The same holds for what ends a process that is compiled without
exceptions: abort(), std::terminate(), assert(), std::get<> of a variant that has something else, .at()
of what is not there. The reason stands behind it, in the line above it, or above a run of checks that
nothing separates, and begins with whose word the condition is:

  // Ours: ...    an invariant of this process' own code
  // User: ...    a precondition of the program that uses the library
  // System: ...  what the system does not refuse, or nothing safe can follow

WEFT_DCHECK is a check like the others where the build has it. Tests and fuzzers are left out, and
programs that only measure or show.

.value() of a StatusOr or an optional ends the process where there is none, and looks like a function
that cannot fail: it is forbidden. Ask first, and use `*`. (Nothing here knows types: a function
value() of something else is known by the name before it, in VALUES.)

  check_reasons.py --list   prints every check with its reason
"""
import os
import re
import sys

from source_tree import files, is_test, this_tree

ROOMS = ("c/", "core/", "embed/", "rpc/", "transport/", "weft/")
CODE = r"^(?!\s*//|\s*#)(?:[^/]|/(?!/))*"  # of a line, before a comment
CHECK = re.compile(CODE + r"(\bWEFT_D?CHECK\(|\b(?:std::)?(?:abort|terminate)\(\)|\bassert\(|\bstd::get<|\.at\()")
VALUE = re.compile(r"(\w*)(?:\.|->)value\(\)")
# What stands before a value() that cannot fail.
VALUES = {
    # counters (core/counters.h)
    "counter", "exported_bytes", "exports", "lease_count_", "leases", "load", "running_bytes", "unsent_reply_bytes",
    "cell",                            # core/mpsc_queue.h: where it lies
    "devices", "subnets", "variable",  # transport/control/path_policy.cc: of the environment
    "entry",                           # rpc/naming/etcd_source.cc: a key's
    "lookup_",                         # embed/rocksdb/remote_cache.h: what was found
    "pair",                            # rpc/wire/extras.cc: a field of a message
}
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


def unasked_values(text):
    """Line numbers of what may be a value() that is not there."""
    for number, line in enumerate(text.splitlines(), 1):
        if set(VALUE.findall(line.split("//")[0])) - VALUES:
            yield number


def complaints(path, text):
    return ["%s:%d: a check without a reason: say `// Ours: ...`, `// User: ...` or "
            "`// System: ...`; what a peer can bring about is an error instead" % (path, number)
            for number, reason in checks(text) if reason is None] + [
                "%s:%d: .value() ends the process where there is none: ask first, and use `*`" % (path, number)
                for number in unasked_values(text)]


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
