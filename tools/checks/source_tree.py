"""Finds the project's own source files: what the checks in this folder look at."""
import os

# The folders that hold code.
TOPS = ("core", "transport", "weft", "rpc", "c", "bench", "embed", "examples", "tools")

# Expected outputs and other inputs of tests are data, whatever they look like.
DATA_FOLDERS = ("testdata",)

# Written by protoc, wherever they turn up.
GENERATED = (".pb.h", ".pb.cc", ".weft.h", ".weft.cc")


def this_tree():
    """The tree that holds this file; Bazel's links to it are followed."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def files(root, suffixes):
    """Paths, relative to `root`, of source files that end in one of `suffixes`, sorted."""
    found = []
    for top in TOPS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [f for f in folders if f not in DATA_FOLDERS and not f.startswith(".")]
            for name in names:
                if name.endswith(suffixes) and not name.endswith(GENERATED):
                    found.append(os.path.relpath(os.path.join(folder, name), root))
    return sorted(found)


def documents(root):
    """Paths, relative to `root`, of all Markdown files; those of Bazel's links are left out."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders
                            if not f.startswith((".", "bazel-")) and f not in DATA_FOLDERS)
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), root)


def is_test(path):
    """Whether a file is only ever part of tests: foo_test.cc, foo_fuzz.cc, foo_fixture.h, testing/."""
    parts = os.path.splitext(path)[0].split(os.sep)
    return parts[-1].endswith(("_test", "_fuzz", "_testing", "_fixture")) or "testing" in parts
