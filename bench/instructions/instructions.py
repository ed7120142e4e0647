#!/usr/bin/env python3
"""Counts the instructions of one 64-byte call, by the part of the library that they are in.

    ./dev instructions [--calls N] [--paths shm,tcp] [--functions N] [--json FILE]

Runs bench/instructions/measured_calls under callgrind: client and server in one thread,
in turn. The count is the same in every run, whatever else the machine does (over tcp, where
the kernel decides when something arrives, nearly so). A column is one way to call; "ours" is
what Weft itself takes at both ends. Turns of an engine that find nothing to do are not work of
a call: what they cost is measured apart and taken off, the table says how many there were.
"With structs": messages of fixed layout, without protobuf (rpc/layout/method_layouts.h), blocking
and by callback. "Balanced": blocking, over a channel with three servers (OpenBalanced()). "By C":
by callback, with the C interface at both ends; bytes, so without protobuf. "Stream": messages of
a stream, there and back one after the other, or one way. "One-way method": messages to one, each
handed over before the next.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import callgrind
from callgrind import OURS, OTHERS

# Name of a column, form, outstanding.
WAYS = [("one blocking", "blocking", 1), ("one by callback", "callback", 1),
        ("one by coroutine", "coroutine", 1), ("64 by callback", "callback", 64),
        ("one with structs", "blocking_struct", 1), ("64 with structs", "callback_struct", 64),
        ("one balanced", "balanced", 1), ("one by C", "c_callback", 1),
        ("64 by C", "c_callback", 64),
        ("stream there, back", "stream", 1), ("stream one way", "stream_one_way", 1),
        ("one-way method", "one_way", 1)]


def run(program, path, form, outstanding, calls, scratch):
    """Costs by function, and the program's facts."""
    out = os.path.join(scratch, "callgrind.out")
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out,
               "--toggle-collect=weft_measured_work", "--compress-strings=no",
               "--compress-pos=no", program, path, form, str(outstanding), str(calls)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300)
    if done.returncode != 0:
        raise RuntimeError("%s failed:\n%s" % (" ".join(command), done.stderr))
    words = done.stdout.split()
    facts = {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}
    with open(out, errors="replace") as lines:
        return callgrind.read_profile(lines), facts


class Column:
    """What one way to call costs, per call."""

    def __init__(self, title, costs, facts, idle_parts):
        self.title = title
        self.calls = facts["calls"]
        self.turns = facts["turns"] / self.calls
        self.idle_turns = facts["idle_turns"] / self.calls
        self.functions = callgrind.by_function(costs)
        self.parts = {part: count / self.calls - self.idle_turns * idle_parts[part]
                      for part, count in callgrind.by_part(costs).items()}

    def ours(self):
        return sum(self.parts[part] for part in OURS)

    def as_json(self):
        return {"title": self.title, "calls": self.calls, "turns_per_call": self.turns,
                "idle_turns_per_call": self.idle_turns, "ours": self.ours(), "parts": self.parts}


def idle_cost(program, path, scratch):
    """What one turn without work costs, by part."""
    turns = 1000
    costs, facts = run(program, path, "idle", 1, turns, scratch)
    return {part: count / facts["turns"]
            for part, count in callgrind.by_part(costs).items()}


def measure(program, paths, calls, scratch):
    """Columns, and the cost of an idle turn by path."""
    columns, idle = [], {}
    for path in paths:
        idle[path] = idle_cost(program, path, scratch)
        for title, form, outstanding in WAYS:
            costs, facts = run(program, path, form, outstanding, calls, scratch)
            columns.append(Column(path + ", " + title, costs, facts, idle[path]))
    return columns, idle


def table(columns, idle):
    """The table as text."""
    titles = [column.title.replace(", ", "\n", 1).split("\n") for column in columns]
    width = 2 + max(len(line) for title in titles for line in title)

    def row(name, values):
        return "%-24s" % name + "".join("%*s" % (width, value) for value in values)

    def numbers(name, values):
        return row(name, ["%.0f" % value for value in values])

    lines = [row("instructions per call", [title[0] for title in titles]),
             row("", [title[1] for title in titles])]
    lines += [numbers("  " + part, [column.parts[part] for column in columns]) for part in OURS]
    lines.append(numbers("ours", [column.ours() for column in columns]))
    lines += [numbers("  " + part, [column.parts[part] for column in columns])
              for part in OTHERS]
    lines.append(row("turns", ["%.2f" % column.turns for column in columns]))
    lines.append(row("  that found no work", ["%.2f" % column.idle_turns for column in columns]))
    for path, parts in idle.items():
        lines.append("A turn without work on %s: %.0f ours, %.0f libfabric's, %.0f others'." % (
            path, sum(parts[part] for part in OURS), parts["libfabric"],
            sum(parts[part] for part in OTHERS if part != "libfabric")))
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="measured_calls")
    parser.add_argument("--calls", type=int, default=2000, help="to count, in each column")
    parser.add_argument("--paths", default="shm,tcp")
    parser.add_argument("--functions", type=int, default=0,
                        help="also the most expensive ones of ours, for each column")
    parser.add_argument("--json", help="a file for the numbers")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        columns, idle = measure(options.program, options.paths.split(","), options.calls, scratch)
    print(table(columns, idle))
    for column in columns if options.functions else []:
        print("\n" + column.title + ", idle turns included")
        ours = [entry for entry in column.functions if entry[1] in OURS]
        for cost, part, function in ours[:options.functions]:
            print("%8.1f  %-14s  %s" % (cost / column.calls, part, function[:110]))
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"columns": [column.as_json() for column in columns], "idle_turn": idle},
                      out, indent=1)
            out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
