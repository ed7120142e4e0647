#!/usr/bin/env python3
"""Tests of how tools/run_tests.py takes several runs of one command line, and counts tries, of what
./dev has it run under sanitizers, and of how tools/run_seeds.py parts seeds, adds up, and finds the
one that has failed."""
import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(TREE, "tools"))

import run_seeds  # noqa: E402  (it lies in the folder above)
import run_tests  # noqa: E402


class RunsTest(unittest.TestCase):

    def test_one_run_has_all_words(self):
        self.assertEqual(run_tests.runs_of(["--config=asan", "//core/...", "-//core:x"]),
                         [(["--config=asan"], ["//core/...", "-//core:x"])])
        self.assertEqual(run_tests.runs_of([]), [([], ["//..."])])
        self.assertEqual(run_tests.runs_of(["--test_output=all", "--", "//a:t", "-//b:t"]),
                         [(["--test_output=all"], ["//a:t", "-//b:t"])])

    # Once, the options of the first run were the second's as well: half of ./dev sanitizers was
    # to run with ThreadSanitizer and AddressSanitizer at once, which no compiler does.
    def test_options_of_one_run_are_not_those_of_the_next(self):
        self.assertEqual(
            run_tests.runs_of(["--keep_going", "--run", "--config=fuzz", "//a:t", "--run",
                               "--config=tsan", "//b:t", "--run"]),
            [(["--keep_going", "--config=fuzz"], ["//a:t"]),
             (["--keep_going", "--config=tsan"], ["//b:t"]),
             (["--keep_going"], ["//..."])])

    def test_a_target_of_no_run_is_refused(self):
        with self.assertRaises(SystemExit):
            run_tests.runs_of(["//a:t", "--run", "//b:t"])


class OutOfTimeTest(unittest.TestCase):

    def summarized(self, results, targets=("//a:suite",)):
        """What a run that was ended comes to: three tests were known, and these had a result."""
        events = [{"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": "SMALL"}}
                  for label in ("//a:t", "//a:u", "//a:v")]
        events += [{"id": {"testResult": {"label": label, "run": 1, "attempt": 1}},
                    "testResult": {"status": status}} for label, status in results]
        events += [{"id": {"targetCompleted": {"label": "//a:v"}}, "aborted": {"reason": "USER_INTERRUPTED"}}]
        return run_tests.summarize(events, {"//a:t", "//a:u", "//a:v"}, targets)

    def test_what_was_not_over_is_skipped_and_what_was_is_counted(self):
        count = self.summarized([("//a:t", "PASSED"), ("//a:u", "NO_STATUS")])
        self.assertEqual((count.passed, count.failed), (1, []))
        self.assertEqual(count.skipped, ["//a:u: no time was left", "//a:v: no time was left"])

    def test_who_had_failed_before_has_failed(self):
        count = self.summarized([("//a:t", "FAILED")])
        self.assertEqual(count.failed, ["//a:t (FAILED)"])

    # The second try of a test that had failed was interrupted: it counted as skipped.
    def test_a_try_that_was_interrupted_says_nothing(self):
        count = self.summarized([("//a:t", "FAILED"), ("//a:t", "INCOMPLETE")])
        self.assertEqual(count.failed, ["//a:t (FAILED)"])

    def test_what_cannot_be_loaded_has_failed(self):
        events = [{"id": {"pattern": {}}, "aborted": {"reason": "LOADING_FAILURE"}}]
        self.assertEqual(len(run_tests.summarize(events, set(), ["//a:suite"]).failed), 1)

    def test_who_was_not_built_has_failed(self):
        events = [{"id": {"targetConfigured": {"label": "//a:t"}}, "configured": {"testSize": "SMALL"}},
                  {"id": {"targetCompleted": {"label": "//a:t"}}, "completed": {}}]
        count = run_tests.summarize(events, {"//a:t"}, ["//a:suite"])
        self.assertEqual((count.failed, count.skipped), (["//a:t (not built)"], []))

    def test_what_never_began_is_skipped_by_name(self):
        count = run_tests.summarize([], set(), ["//a:suite", "//b:some"])
        self.assertEqual(count.skipped, ["//a:suite: no time was left", "//b:some: no time was left"])

    def reported(self, count):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            run_tests.report(count)
        return said.getvalue().splitlines()

    # Fuzz targets that never ran were lines among hundreds, and the run was green.
    def test_what_no_time_was_left_for_is_named_right_above_the_last_line(self):
        count = run_tests.summarize([], set(), ["//a:suite", "//b:some"])
        self.assertEqual(self.reported(count)[-2:],
                         ["NOT RUN, no time was left: //a:suite //b:some", "0 passed, 0 failed, 2 skipped"])
        self.assertNotIn("NOT RUN", "".join(self.reported(run_tests.Count())))

    def failures_of_least(self, percent, not_over, targets=4):
        labels = ["//a:t%d" % i for i in range(targets)]
        count = run_tests.summarize([], set(), labels[:not_over]) if not_over else run_tests.Count()
        run_tests.check_least(count, labels, percent)
        return count.failed

    def test_less_than_the_least_is_a_failure(self):
        self.assertEqual(self.failures_of_least(50, 2), [])
        self.assertEqual(self.failures_of_least(50, 3), [
            "no time was left: for 1 of 4, which is less than 50 %, was time; first //a:t0"])
        self.assertEqual(len(self.failures_of_least(50, 4)), 1)
        self.assertEqual(self.failures_of_least(0, 4), [])
        self.assertEqual(self.failures_of_least(50, 0), [])

    def test_a_run_that_never_began_fails_by_its_least(self):
        with unittest.mock.patch.object(run_tests, "query_tests", lambda targets: set()):
            status, count = run_tests.run([], ["//a:t"], until=0, least_percent=50)
            self.assertEqual((status, len(count.failed), len(count.skipped)), (1, 1, 1))
            status, count = run_tests.run([], ["//a:t"], until=0)
            self.assertEqual((status, len(count.failed), len(count.skipped)), (0, 0, 1))

    def test_the_end_of_a_run_is_no_option_of_bazel(self):
        self.assertEqual(run_tests.take_until(["--config=tsan", "--until=30"], 100), (["--config=tsan"], 130))
        self.assertEqual(run_tests.take_until(["--config=tsan"], 100), (["--config=tsan"], None))
        self.assertEqual(run_tests.take_numbers(["--least_percent=50", "--jobs=1"], "least_percent"),
                         (["--jobs=1"], [50]))


class TriesTest(unittest.TestCase):

    def counted(self, statuses):
        """What one test comes to whose tries, one after the other, end so."""
        with tempfile.TemporaryDirectory() as folder:
            events = [{"id": {"targetConfigured": {"label": "//a:t"}},
                       "configured": {"testSize": "SMALL"}}]
            for attempt, status in enumerate(statuses, 1):
                path = pathlib.Path(folder, "test%d.xml" % attempt)
                failure = "" if status == "PASSED" else "<failure/>"
                path.write_text('<testsuites><testsuite><testcase classname="A" name="B">%s'
                                '</testcase></testsuite></testsuites>' % failure)
                events.append({
                    "id": {"testResult": {"label": "//a:t", "run": 1, "attempt": attempt}},
                    "testResult": {"status": status, "testActionOutput": [
                        {"name": "test.xml", "uri": path.as_uri()}]}})
            return run_tests.summarize(events, {"//a:t"})

    def test_who_passes_at_once_is_not_flaky(self):
        count = self.counted(["PASSED"])
        self.assertEqual((count.passed, count.failed, count.flaky), (1, [], []))

    def test_who_fails_and_then_passes_has_passed_and_is_named(self):
        count = self.counted(["FAILED", "PASSED"])
        self.assertEqual((count.passed, count.failed, count.flaky), (1, [], ["//a:t"]))

    def test_who_fails_each_time_has_failed_once(self):
        count = self.counted(["FAILED", "FAILED"])
        self.assertEqual((count.passed, count.failed, count.flaky), (0, ["//a:t A.B"], []))


# What is compiled by it starts where the variable STARTS has its name; by clang, with or without a
# search for leaks.
FAKE_COMPILER = """#!/bin/sh
case " $STARTS " in
  *" ${0##*/} "*) program=true ;;
  *" ${0##*/}-without-leaks "*) program='[ "$ASAN_OPTIONS" = detect_leaks=0 ]' ;;
  *) program=false ;;
esac
printf '#!/bin/sh\\n%s\\n' "$program" >"$4" && chmod +x "$4"
"""


class SanitizersTest(unittest.TestCase):

    def words(self, starts, until="--until=9"):
        """What ./dev gives run_tests where these compilers' programs start."""
        with open(os.path.join(TREE, "dev")) as dev:
            functions = re.findall(r"^(?:run_sanitizers|skip|starts)\(\) {\n.*?^}\n", dev.read(), re.M | re.S)
        self.assertEqual(len(functions), 3)
        with tempfile.TemporaryDirectory() as folder:
            fakes = {"gcc": FAKE_COMPILER, "clang": FAKE_COMPILER,
                     "tools/fuzz/fuzz.py": "#!/bin/sh\necho //a:t\necho //b:u\n"}
            for name, text in fakes.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                path.chmod(0o755)
            script = "set -euo pipefail\n%srun_tests() { printf '%%s\\n' \"$@\"; }\n%s" % (
                "".join(functions), "run_sanitizers short_ '%s' --run //..." % until)
            environment = dict(os.environ, STARTS=starts, PATH=folder + ":" + os.environ["PATH"])
            return subprocess.run(["bash", "-c", script], check=True, cwd=folder, env=environment,
                                  stdout=subprocess.PIPE, universal_newlines=True).stdout.splitlines()

    def runs(self, words):
        return run_tests.runs_of([word for word in words if not word.startswith("--skipped=")])

    THREADS = (["--config=tsan", "--local_test_jobs=1", "--until=9"], ["//tools/sanitizers:short_threads"])

    def test_half_of_the_fuzz_targets_have_to_run_in_ci(self):
        self.assertEqual(self.runs(self.words("gcc clang")), [
            ([], ["//..."]), self.THREADS,
            (["--config=fuzz", "--until=9"], ["//tools/sanitizers:short_peers"]),
            (["--config=fuzz", "--until=9", "--least_percent=25"], ["//a:t", "//b:u"])])

    def test_by_hand_all_is_tried(self):
        runs = self.runs(self.words("", until=""))
        self.assertEqual(len(runs), 4)
        self.assertEqual(runs[3], (["--config=fuzz"], ["//a:t", "//b:u"]))

    # Without ptrace(2) neither the threads nor the fuzz targets ran, and one line said so.
    def test_without_ptrace_only_leaks_are_not_looked_for(self):
        words = self.words("gcc clang-without-leaks")
        without = "--test_env=ASAN_OPTIONS=detect_leaks=0"
        self.assertEqual(self.runs(words)[2:], [
            (["--config=fuzz", "--until=9", without],
             ["//tools/sanitizers:short_peers", "-//tools/sanitizers:asan_test"]),
            (["--config=fuzz", "--until=9", "--least_percent=25", without], ["//a:t", "//b:u"])])
        self.assertEqual(["//tools/sanitizers:asan_test" in word for word in words
                          if word.startswith("--skipped=")], [True])

    def test_what_does_not_start_is_skipped_by_name(self):
        words = self.words("gcc")
        self.assertEqual(self.runs(words), [([], ["//..."]), self.THREADS])
        self.assertEqual([word.split(": ")[0] for word in words if word.startswith("--skipped=")], [
            "--skipped=//tools/sanitizers:short_peers", "--skipped=//a:t", "--skipped=//b:u"])
        words = self.words("clang")
        self.assertEqual(len(self.runs(words)), 3)
        self.assertIn("--skipped=//tools/sanitizers:short_threads: ThreadSanitizer", "".join(words))


# Of a test that takes --first and --seeds: seed 7 fails, 13 kills it.
SEEDS_PROGRAM = r"""#!/bin/sh
first=${1#--first=}
count=${2#--seeds=}
for seed in $(seq "$first" $((first + count - 1))); do
  [ "$seed" != 7 ] || { echo "seed 7 failed; again"; exit 1; }
  [ "$seed" != 13 ] || kill -9 $$
done
echo "$count seeds: $((10 * count)) calls, 3 errors"
"""


class SeedsTest(unittest.TestCase):

    def run_seeds(self, seeds, first, processes):
        """The status, and what it has said."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program")
            program.write_text(SEEDS_PROGRAM)
            program.chmod(0o755)
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                status = run_seeds.run(str(program), seeds, first, processes)
            return status, said.getvalue().splitlines()

    def test_parts_are_all_seeds_once(self):
        self.assertEqual(run_seeds.parts_of(100, 5, 2), [(100, 3), (103, 2)])
        self.assertEqual(run_seeds.parts_of(1, 1, 8), [(1, 1)])
        parts = run_seeds.parts_of(1, 10_001, 2)
        self.assertEqual([at for first, count in parts for at in range(first, first + count)],
                         list(range(1, 10_002)))
        self.assertEqual(max(count for _, count in parts), run_seeds.PART)

    def test_it_adds_up_what_the_parts_say(self):
        status, said = self.run_seeds(seeds=600, first=100, processes=1)
        self.assertEqual((status, said[-1]), (0, "600 seeds: 6000 calls, 9 errors"))
        self.assertEqual([line.split(" after ")[0] for line in said[:-1]],
                         ["250 of 600 seeds", "500 of 600 seeds", "600 of 600 seeds"])

    def test_it_names_the_seed_that_has_failed(self):
        status, said = self.run_seeds(seeds=10, first=1, processes=1)
        self.assertEqual(status, 1)
        self.assertIn("seed 7 failed; again", said)
        self.assertRegex(said[-1], "--first=7 --seeds=1$")

    def test_it_finds_the_seed_that_has_crashed(self):
        status, said = self.run_seeds(seeds=8, first=8, processes=1)
        self.assertEqual(status, 1)
        self.assertRegex(said[-1], "--first=13 --seeds=1$")


if __name__ == "__main__":
    unittest.main()
