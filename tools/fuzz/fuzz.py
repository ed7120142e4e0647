#!/usr/bin/env python3
"""Runs the fuzz targets (fuzz.bzl) with libFuzzer, and says what their corpora reach.

    fuzz.py list                                     the targets
    fuzz.py run [TARGET] [SECONDS] [--keep] [--fast] [--jobs=N]
                                                     one of them, or all in turn; 60 s each
    fuzz.py minimize [TARGET]                        the corpus in the tree made as small as it goes
    fuzz.py coverage [--found] [TARGET]...           lines of what faces a peer that corpora reach
    fuzz.py labels NAME                              Bazel labels: of "some" tests, or of "corpus"

Options for Bazel come first. A TARGET is a name, or its beginning: "tcp". What a run finds new
stays in .cache/fuzz/NAME, which git ignores, and the next run begins with it. --keep also takes
into the corpus in the tree what reaches new code. --fast is without sanitizers and optimized: many
times as many inputs, of which only those are noticed that end the process or break a WEFT_CHECK;
for long runs of targets that take a microsecond. An input that crashes a target is kept there
as well; the run then says how to replay it, and fails.

`coverage` fails for a file of which less than LEAST_PERCENT of the lines are reached, or less than
what stands behind its name in facing_peers.txt, for a reason that stands there too.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

BAZEL = os.environ.get("BAZEL", "bazel")
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FACING_PEERS = "tools/fuzz/facing_peers.txt"
LEAST_PERCENT = 90
LIMITS = ["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"]
# Small enough for a repository, and for a test that runs all of it in a second.
MOST_KEPT_BYTES = 1024


def bazel(command, *arguments):
    return subprocess.run([BAZEL, command, *arguments], check=True, cwd=TREE,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout


def query(expression):
    return sorted(bazel("query", "--noshow_progress", "--ui_event_filters=-info",
                        expression).split())


class Target:
    """One fuzz target, by the label of its libFuzzer program: //transport/tcp:tcp_fuzz_fuzzer."""

    def __init__(self, label):
        self.fuzzer = label
        self.package, program = label[2:].split(":")
        self.name = program[:-len("_fuzzer")]

    @property
    def corpus_test(self):
        return "//%s:%s_corpus_test" % (self.package, self.name)

    @property
    def some_test(self):
        return "//%s:%s_some_test" % (self.package, self.name)

    @property
    def corpus(self):
        return os.path.join(TREE, self.package, self.name + "_corpus")

    @property
    def found(self):
        return os.path.join(TREE, ".cache/fuzz", self.name)

    @property
    def dictionary(self):
        path = os.path.join(TREE, self.package, self.name + ".dict")
        return ["-dict=" + path] if os.path.exists(path) else []


def all_targets():
    rooms = "//core/... + //transport/... + //rpc/..."
    return [Target(label) for label in query(r'attr(tags, "\bfuzzer\b", %s)' % rooms)]


def chosen(names):
    targets = all_targets()
    if not names:
        return targets
    found = []
    for name in names:
        matching = [t for t in targets if t.name in (name, name + "_fuzz")] or \
                   [t for t in targets if t.name.startswith(name)]
        if len(matching) != 1:
            sys.exit("fuzz: '%s' is %s; these are: %s" % (
                name, "no target" if not matching else "more than one target",
                " ".join(t.name for t in targets)))
        found += matching
    return found


def build(options, config, labels):
    """The programs, where they can be run."""
    subprocess.run([BAZEL, "build", *options, "--config=" + config, "--", *labels], check=True,
                   cwd=TREE)
    folder = bazel("info", "--config=" + config, "--ui_event_filters=-info",
                   "bazel-bin").strip()
    return [os.path.join(folder, label[2:].replace(":", "/")) for label in labels]


def number(text, pattern):
    values = re.findall(pattern, text)
    return int(values[-1]) if values else 0


def run_one(target, program, seconds, jobs):
    """(executions, covered edges, inputs found, the crash's file or None)"""
    os.makedirs(os.path.join(target.found, "corpus"), exist_ok=True)
    command = [program, *LIMITS, *target.dictionary, "-max_total_time=%d" % seconds,
               "-print_final_stats=1", "-artifact_prefix=%s/" % target.found,
               *(["-fork=%d" % jobs] if jobs > 1 else []),
               os.path.join(target.found, "corpus"), target.corpus]
    before = set(glob.glob(target.found + "/*-*"))
    log_path = os.path.join(target.found, "log")
    with open(log_path, "w") as log:
        status = subprocess.call(command, stdout=log, stderr=subprocess.STDOUT)
    with open(log_path, errors="replace") as log:
        text = log.read()
    crashes = sorted(set(glob.glob(target.found + "/*-*")) - before)
    if status != 0 and not crashes:
        sys.exit("%s\nfuzz: %s ended with status %d" % (text[-4000:], target.name, status))
    return (number(text, r"stat::number_of_executed_units: *(\d+)") or
            number(text, r"#(\d+):? "),
            number(text, r"cov: (\d+)"),
            number(text, r"stat::new_units_added: *(\d+)"),
            crashes[0] if status != 0 else None)


def keep(target, program, folders):
    """The smallest set of inputs in `folders` that reaches the same code becomes the corpus."""
    with tempfile.TemporaryDirectory() as merged:
        subprocess.run([program, "-merge=1", "-use_value_profile=0", "-use_counters=0", *LIMITS[1:],
                        "-max_len=%d" % MOST_KEPT_BYTES, merged, *folders], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Seeds that somebody has named stay: what a crash was, and what shows a format.
        for name in os.listdir(target.corpus):
            if re.fullmatch(r"[0-9a-f]{40}|x", name):
                os.remove(os.path.join(target.corpus, name))
        named = {open(p, "rb").read() for p in glob.glob(target.corpus + "/*")}
        for name in os.listdir(merged):
            path = os.path.join(merged, name)
            if open(path, "rb").read() not in named:
                shutil.copy(path, target.corpus)
    print("%s: %d inputs are kept, %d bytes" % (
        target.name, len(os.listdir(target.corpus)),
        sum(os.path.getsize(p) for p in glob.glob(target.corpus + "/*"))))


def run(options, arguments):
    words = [w for w in arguments.words if not w.isdigit()]
    seconds = ([int(w) for w in arguments.words if w.isdigit()] or [60])[0]
    targets = chosen(words)
    config = "fuzz-fast" if arguments.fast else "fuzz"
    programs = build(options, config, [t.fuzzer for t in targets])
    crashed = []
    print("%-18s %14s %10s %8s %8s" % ("target", "executions", "per s", "edges", "new"))
    for target, program in zip(targets, programs):
        executions, edges, new, crash = run_one(target, program, seconds, arguments.jobs)
        print("%-18s %14d %10d %8d %8d" % (target.name, executions, executions // max(seconds, 1),
                                           edges, new), flush=True)
        if crash:
            crashed.append(target.name)
            print("fuzz: %s crashed; what it said is at the end of %s/log. Again:\n  %s %s" % (
                target.name, target.found, program, crash))
        elif arguments.keep:
            keep(target, program, [target.corpus, os.path.join(target.found, "corpus")])
    sys.exit("fuzz: crashed: " + " ".join(crashed) if crashed else 0)


def minimize(options, arguments):
    targets = chosen(arguments.words)
    for target, program in zip(targets, build(options, "fuzz", [t.fuzzer for t in targets])):
        keep(target, program, [target.corpus])


def facing_peers():
    """path -> the least percentage of its lines that corpora are to reach"""
    found = {}
    with open(os.path.join(TREE, FACING_PEERS)) as lines:
        for line in lines:
            words = line.split("#")[0].split()
            if words:
                found[words[0]] = float(words[1]) if len(words) > 1 else LEAST_PERCENT
    missing = [path for path in found if not os.path.exists(os.path.join(TREE, path))]
    if missing:
        sys.exit("fuzz: %s names what is not there: %s" % (FACING_PEERS, " ".join(missing)))
    return found


def coverage(options, arguments):
    paths = facing_peers()
    targets = chosen(arguments.words)
    programs = build(options, "fuzz-coverage", [t.corpus_test for t in targets])
    with tempfile.TemporaryDirectory() as folder:
        for target, program in zip(targets, programs):
            corpora = [target.corpus]
            if arguments.found and os.path.isdir(target.found + "/corpus"):
                corpora.append(target.found + "/corpus")
            environment = dict(os.environ, LLVM_PROFILE_FILE="%s/%s" % (folder, target.name))
            subprocess.run([program, *corpora], check=True, env=environment,
                           stdout=subprocess.DEVNULL)
        merged = os.path.join(folder, "all")
        subprocess.run([tool("llvm-profdata"), "merge", "-sparse", "-o", merged,
                        *("%s/%s" % (folder, t.name) for t in targets)], check=True)
        command = [tool("llvm-cov"), "export", "-format=lcov", "-instr-profile=" + merged,
                   programs[0], *("-object=" + p for p in programs[1:])]
        report = subprocess.run(command, check=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, universal_newlines=True).stdout
    below = print_coverage(lines_of(report), paths)
    if below and not arguments.words:
        sys.exit("fuzz: below their least percentage (%s): %s" % (FACING_PEERS, " ".join(below)))


def tool(name):
    """The one of the clang that is used: llvm-cov beside clang, with its version or without."""
    folder = os.path.dirname(os.path.realpath(shutil.which("clang") or "/usr/bin/clang"))
    return next((p for p in (os.path.join(folder, name), shutil.which(name)) if p and
                 os.path.exists(p)), name)


def lines_of(report):
    """file -> {line: it was reached}; a line of a template is reached if one instance is."""
    files, path = {}, None
    for line in report.splitlines():
        if line.startswith("SF:"):
            path = line[3:]
            for top in ("transport/", "rpc/", "core/", "weft/"):
                found = re.search(r"(?:^|/execroot/weft/|/proc/self/cwd/(?:\./)?|%s/)(%s.*)" %
                                  (re.escape(TREE), top), path)
                if found:
                    path = found.group(1)
                    break
        elif line.startswith("DA:"):
            at, count = line[3:].split(",")[:2]
            lines = files.setdefault(path, {})
            lines[int(at)] = lines.get(int(at), False) or int(count) > 0
    return files


def print_coverage(files, paths):
    """Returns the files of which too little is reached."""
    all_lines = all_reached = 0
    below = []
    for path, least in paths.items():
        lines = files.get(path, {})
        reached = sum(lines.values())
        all_lines += len(lines)
        all_reached += reached
        if 100 * reached < least * len(lines):
            below.append(path)
        missing = sorted(at for at, was in lines.items() if not was)
        print("%6s %5d of %5d  %s%s" % (
            "%.1f%%" % (100 * reached / len(lines)) if lines else "-", reached, len(lines), path,
            "  not: " + ranges(missing) if missing else ""))
    if all_lines:
        print("%5.1f%% of %d lines in %d files" % (100 * all_reached / all_lines, all_lines,
                                                   len(paths)))
    return below


def ranges(numbers):
    """[1, 2, 3, 7] -> "1-3 7"."""
    parts = []
    for at in numbers:
        if parts and parts[-1][1] == at - 1:
            parts[-1][1] = at
        else:
            parts.append([at, at])
    return " ".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in parts)


def main():
    options = []
    while len(sys.argv) > 1 and sys.argv[1].startswith("--config="):
        options.append(sys.argv.pop(1))
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("command", choices=["list", "run", "minimize", "coverage", "labels"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--found", action="store_true")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.command == "list":
        print("\n".join("%-18s //%s" % (t.name, t.package) for t in all_targets()))
    elif arguments.command == "labels":
        print("\n".join(getattr(t, arguments.words[0] + "_test") for t in all_targets()))
    else:
        {"run": run, "minimize": minimize, "coverage": coverage}[arguments.command](
            options, arguments)


if __name__ == "__main__":
    main()
