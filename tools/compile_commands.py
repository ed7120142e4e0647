#!/usr/bin/env python3
"""Writes compile_commands.json, which clangd and clang-tidy read.

    tools/compile_commands.py [--out=FILE] [BAZEL OPTION]... [TARGET]...

Targets are //... by default; the file is compile_commands.json at the top of the tree.

Asks Bazel how it compiles each of our files, and makes the headers that it generates. Options
choose other commands than a plain build's, e.g. --config=clang.
"""
import json
import os
import subprocess
import sys

BAZEL = os.environ.get("BAZEL", "bazel")
WORKSPACE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

# g++ takes these, clang's tools stop at them.
GCC_ONLY = {
    "-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter"
}


def bazel(command, *arguments):
    return subprocess.run([BAZEL, command, "--ui_event_filters=-info", *arguments], check=True,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout


def make_generated_headers(options, targets):
    """Builds what compiling needs, but compiles nothing."""
    bazel("build", *options, "--keep_going", "--build_manual_tests=false",
          "--output_groups=compilation_prerequisites_INTERNAL_", "--", *targets)


class Commands:
    """Collects one command per source file, with paths that hold outside of Bazel."""

    def __init__(self, options):
        self.moved = {
            "external/": bazel("info", "output_base").strip() + "/external/",
            "bazel-out/": bazel("info", *options, "output_path").strip() + "/",
        }
        self.by_file = {}

    def place(self, argument):
        for flag in ("", "-I", "-isystem", "-iquote"):
            for relative, absolute in self.moved.items():
                if argument.startswith(flag + relative):
                    return flag + absolute + argument[len(flag + relative):]
        return argument

    def add(self, arguments):
        path = os.path.join(WORKSPACE, self.place(arguments[arguments.index("-c") + 1]))
        words = " ".join(arguments)
        for_a_tool = "/host/" in words or "-exec-" in words
        if path in self.by_file and for_a_tool:
            return  # Also compiled for the product itself, with the options that matter.
        self.by_file[path] = {
            "directory": WORKSPACE,
            "file": path,
            "arguments": [self.place(a) for a in arguments if a not in GCC_ONLY],
        }


def main():
    out = [a[len("--out="):] for a in sys.argv[1:] if a.startswith("--out=")]
    path = os.path.abspath(out[-1]) if out else os.path.join(WORKSPACE, "compile_commands.json")
    options = [a for a in sys.argv[1:] if a.startswith("-") and not a.startswith("--out=")]
    targets = [a for a in sys.argv[1:] if not a.startswith("-")] or ["//..."]
    os.chdir(WORKSPACE)
    make_generated_headers(options, targets)
    query = 'mnemonic("CppCompile", deps(set(%s)))' % " ".join(targets)
    graph = json.loads(bazel("aquery", *options, "--output=jsonproto", query))
    labels = {target["id"]: target["label"] for target in graph.get("targets", [])}
    commands = Commands(options)
    for action in graph.get("actions", []):
        if not labels.get(action["targetId"], "").startswith("@"):
            commands.add(action["arguments"])
    with open(path, "w") as file:
        json.dump([commands.by_file[name] for name in sorted(commands.by_file)], file, indent=1)
    print("%s: %d files" % (os.path.relpath(path), len(commands.by_file)))


if __name__ == "__main__":
    main()
