#!/usr/bin/env python3
"""Runs `bazel test` and ends with one line that counts test cases.

    tools/run_tests.py [BAZEL OPTION]... [--] [TARGET]...
    tools/run_tests.py [BAZEL OPTION]... --run [BAZEL OPTION]... [--] [TARGET]... [--run ...]...

Targets are //... by default; `--` in front of them, as of bazel's, means nothing. Each --run is a run
of its own, with its own options beside those in front of the first --run, which are for all; all are
counted together.
--until=SECONDS, an option of a run, ends it so long after this program began: tests that have not ended
by then count as skipped. --least_percent=N beside it: one more failure where fewer of the run's targets,
which are tests and no patterns, have ended; for runs of which it would else not be seen that they never
come to anything. --skipped=TEXT counts one more: what the caller leaves out, and why.

The last line is "N passed, N failed", with ", N skipped" where some were; each
failure and each skip has a line above it, with the reason. What no time was left for
is named in one line besides, right above the last. What is counted comes
from the events of this run, not from what lies about in bazel-testlogs. A test
that crashed, ran out of time or did not build is one failure, so is a build that
failed. The exit status is 0 only when nothing failed. A test that was allowed
another try (--flaky_test_attempts) and passed it has passed, and has a line that
says so: it has a defect, or what it tests has.
"""
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import xml.etree.ElementTree

BAZEL = os.environ.get("BAZEL", "bazel")


NO_TESTS = "there is no test among these targets"

# What a run takes that is not worth to begin: its build is made ready, and a test begins. Seconds.
SHORTEST_RUN = 60
# Bazel ends its actions when it is interrupted: that takes as long as a linker may.
PATIENCE_SECONDS = 120
OUT_OF_TIME = "no time was left"


class Count:
    """What a run came to."""

    def __init__(self):
        self.passed = 0
        self.failed = []   # one line each
        self.skipped = []  # one line each, with the reason
        self.not_over = []  # labels: those of the skipped for which no time was left
        self.flaky = []    # labels: failed, and then passed
        self.unchanged = 0  # targets whose earlier result still holds

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.not_over += other.not_over
        self.flaky += other.flaky
        self.unchanged += other.unchanged

    def add_cases(self, label, status, path):
        """Adds the cases of one test.xml; returns how many failed."""
        failed = 0
        for case in xml.etree.ElementTree.parse(path).iter("testcase"):
            # Without a class it is Bazel's own: the whole test as one case.
            whole = case.get("classname") is None
            what = "%s (%s)" % (label, status) if whole else "%s %s.%s" % (
                label, case.get("classname"), case.get("name"))
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(what)
                failed += 1
            elif skip is not None:
                reason = skip.get("message") or skip.text or "no reason given"
                self.skipped.append("%s: %s" % (what, " ".join(reason.split())))
            elif case.get("status") == "notrun" or case.get("result") == "suppressed":
                self.skipped.append("%s: disabled in the source" % what)
            else:
                self.passed += 1
        return failed


def test_xml(result):
    """The path of the test.xml that a testResult event names, or None."""
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            return urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
    return None


def add_result(count, label, result):
    status = result.get("status", "NO_STATUS")
    count.unchanged += bool(result.get("cachedLocally"))
    try:
        failed = count.add_cases(label, status, test_xml(result))
        known = True
    except (TypeError, OSError, xml.etree.ElementTree.ParseError):
        failed, known = 0, False
    if status == "PASSED" and not known:
        count.passed += 1
    if status != "PASSED" and not failed:
        count.failed.append("%s (%s)" % (label, status))


Run = collections.namedtuple("Run", "label run shard")

# Why Bazel gives something up when it was interrupted.
OF_AN_INTERRUPT = ("USER_INTERRUPTED", "INCOMPLETE", "SKIPPED", "NO_BUILD", "UNKNOWN")


def is_interrupted(result):
    return result.get("status", "NO_STATUS") in ("NO_STATUS", "INCOMPLETE")


def summarize(events, expected, out_of_time=None):
    """Counts what the build events of one `bazel test` of the `expected` tests tell.

    out_of_time: its targets, if it was ended before it was over.
    """
    tests, built, summed_up = set(), set(), set()
    last_attempt = {}
    tried_again = set()
    aborted = set()
    broken = set()
    for event in events:
        kind, ident = next(iter(event["id"].items()))
        label = ident.get("label", "") if isinstance(ident, dict) else ""
        if kind == "targetConfigured" and "testSize" in event.get("configured", {}):
            tests.add(label)
        elif kind == "targetCompleted" and event.get("completed", {}).get("success"):
            built.add(label)
        elif kind == "targetCompleted" and "completed" in event:
            broken.add(label)
        elif kind == "testSummary":
            summed_up.add(label)
        elif kind == "testResult":
            # Events of one test come in the order of its attempts: the last one counts. Without
            # a result of its own, the event says that the test was given up.
            run = Run(label, ident.get("run", 0), ident.get("shard", 0))
            result = event.get("testResult", {})
            if run in last_attempt:
                tried_again.add(run)
            # A try that was interrupted says nothing, and the one before it stands.
            if not (out_of_time and run in last_attempt and is_interrupted(result)):
                last_attempt[run] = result
        if "aborted" in event and kind in ("targetCompleted", "targetConfigured", "pattern",
                                           "configuredLabel", "unconfiguredLabel"):
            aborted.add((label or json.dumps(ident), event["aborted"].get("reason", "ABORTED")))

    count = Count()
    if out_of_time:
        # What was interrupted has no result. Before Bazel has told its tests there are only the targets.
        interrupted = {run for run, result in last_attempt.items() if is_interrupted(result)}
        last_attempt = {run: result for run, result in last_attempt.items() if run not in interrupted}
        not_over = (tests or expected | set(out_of_time)) - {run.label for run in last_attempt} - broken
        not_over |= {run.label for run in interrupted}
        count.failed = ["%s (not built)" % label for label in sorted(broken)]
        count.failed += ["%s (%s)" % (label, reason) for label, reason in sorted(aborted)
                         if reason not in OF_AN_INTERRUPT]
        count.not_over = sorted(not_over)
        count.skipped = ["%s: %s" % (label, OUT_OF_TIME) for label in count.not_over]
    for run in sorted(last_attempt):
        add_result(count, run.label, last_attempt[run])
        if run in tried_again and last_attempt[run].get("status") == "PASSED":
            count.flaky.append(run.label)
    if out_of_time:
        return count
    not_run = tests - {run.label for run in last_attempt}
    filtered = {label for label in not_run if label not in summed_up and label in built}
    for label in sorted(filtered | (expected - tests if tests else set())):
        count.skipped.append("%s: left out by its tags in this configuration" % label)
    for label in sorted(not_run - filtered):
        count.failed.append("%s (not built, or not run)" % label)
    for label, reason in sorted(aborted):
        if label not in not_run:
            count.failed.append("%s (%s)" % (label, reason))
    return count


def read_events(path):
    if not os.path.exists(path):
        return []
    events = []
    with open(path) as lines:
        for line in lines:
            # A Bazel that was killed leaves half a line behind.
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return events


def query_tests(targets):
    """Labels of all tests that the target patterns name, whatever the configuration filters."""
    added = [t for t in targets if not t.startswith("-")]
    taken_out = [t[1:] for t in targets if t.startswith("-")]
    query = "let t = tests(set({})) - tests(set({})) in $t - attr(tags, '\\bmanual\\b', $t)".format(
        " ".join(added), " ".join(taken_out))
    answer = subprocess.run([BAZEL, "query", "--noshow_progress", query], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, universal_newlines=True)
    return set(answer.stdout.split()) if answer.returncode == 0 else set()


def bazel_test(options, targets, until):
    """(exit status, whether it was ended because it is `until`, which is on time.monotonic()'s clock)"""
    with subprocess.Popen([BAZEL, "test", *options, "--", *targets]) as bazel:
        try:
            return bazel.wait(None if until is None else max(until - time.monotonic(), 0)), False
        except subprocess.TimeoutExpired:
            bazel.send_signal(signal.SIGINT)
        try:
            return bazel.wait(PATIENCE_SECONDS), True
        except subprocess.TimeoutExpired:
            bazel.kill()
            return bazel.wait(), True


def check_least(count, targets, least_percent):
    """A failure more where time was left for less than this of the targets."""
    over = len(targets) - len(count.not_over)
    if 100 * over < least_percent * len(targets):
        count.failed.append("%s: for %d of %d, which is less than %d %%, was time; first %s" % (
            OUT_OF_TIME, over, len(targets), least_percent, count.not_over[0]))


def run(options, targets, until=None, least_percent=0):
    """(status, what it came to) of one `bazel test`"""
    expected = query_tests(targets)
    if until is not None and until - time.monotonic() < SHORTEST_RUN:
        count = summarize([], expected, targets)
        check_least(count, targets, least_percent)
        return int(bool(count.failed)), count
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events.json")
        status, out_of_time = bazel_test(["--build_event_json_file=" + path, *options], targets, until)
        count = summarize(read_events(path), expected, targets if out_of_time else None)
    if out_of_time:
        check_least(count, targets, least_percent)
        return int(bool(count.failed)), count
    if status != 0 and not count.failed:
        why = NO_TESTS if status == 4 else "bazel test ended with status %d" % status
        count.failed.append(why)
    return status, count


def report(count):
    print()
    for line in count.skipped:
        print("SKIPPED: " + line)
    for line in count.failed:
        print("FAILED: " + line)
    for label in count.flaky:
        print("FLAKY: %s failed, and passed when it was run again" % label)
    if count.unchanged:
        print("(%d test targets unchanged since they last passed)" % count.unchanged)
    if count.not_over:
        print("NOT RUN, %s: %s" % (OUT_OF_TIME, " ".join(count.not_over)))
    total = "%d passed, %d failed" % (count.passed, len(count.failed))
    if count.skipped:
        total += ", %d skipped" % len(count.skipped)
    print(total, flush=True)


def is_option(word):
    return word.startswith("-") and not word.startswith(("-//", "-:", "-@"))


def runs_of(words):
    """[(options, targets)] of a command line."""
    sections = [[]]
    for word in words:
        if word == "--run":
            sections.append([])
        elif word != "--":
            sections[-1].append(word)
    for_all = sections.pop(0) if len(sections) > 1 else []
    targets_of_none = [word for word in for_all if not is_option(word)]
    if targets_of_none:
        sys.exit("run_tests: %s in front of the first --run belongs to none" % targets_of_none[0])
    return [(for_all + [word for word in section if is_option(word)],
             [word for word in section if not is_option(word)] or ["//..."])
            for section in sections]


def take_numbers(options, name):
    """(the other options, the numbers behind --NAME=)"""
    prefix = "--%s=" % name
    return ([option for option in options if not option.startswith(prefix)],
            [float(option[len(prefix):]) for option in options if option.startswith(prefix)])


def take_until(options, start):
    """(the other options, when the run is to end or None)"""
    of_bazel, seconds = take_numbers(options, "until")
    return of_bazel, start + min(seconds) if seconds else None


def main():
    start = time.monotonic()
    total, statuses = Count(), []
    words = [word for word in sys.argv[1:] if not word.startswith("--skipped=")]
    total.skipped = [word[len("--skipped="):] for word in sys.argv[1:] if word.startswith("--skipped=")]
    for options, targets in runs_of(words):
        of_bazel, until = take_until(options, start)
        of_bazel, least_percent = take_numbers(of_bazel, "least_percent")
        status, count = run(of_bazel, targets, until, max(least_percent, default=0))
        statuses.append(status)
        total.add(count)
    report(total)
    sys.exit(next(filter(None, statuses), 1 if total.failed else 0))


if __name__ == "__main__":
    main()
