"""Follows a GoogleTest program by what it prints, so that a crash or a hang loses nothing."""
import collections
import re

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# `name` is Suite.Test; `text` what was printed meanwhile, for failures and skips.
Case = collections.namedtuple("Case", "name outcome text")

_RUN = re.compile(r"\[ RUN      \] (\S+)$")
_END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).*\(\d+ ms\)$")
_OUTCOMES = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}


class Follower:
    """Lines in, cases out."""

    def __init__(self):
        self.cases = []
        self._running = None
        self._text = []
        self._last_lines = collections.deque(maxlen=20)

    def add(self, line):
        """Returns the case that this line ends, or None."""
        self._last_lines.append(line)
        run, end = _RUN.match(line), _END.match(line)
        if run:
            self._running, self._text = run.group(1), []
        elif end and end.group(2) == self._running:
            return self._end(_OUTCOMES[end.group(1)])
        elif self._running:
            self._text.append(line)
        return None

    def _end(self, outcome):
        self.cases.append(Case(self._running, outcome, "\n".join(self._text).strip()))
        self._running = None
        return self.cases[-1]

    def finish(self, status):
        """The program is gone: status, or None if it took too long. Returns all cases."""
        why = "took too long" if status is None else "ended with status %d" % status
        if self._running:
            self._text.append("the program %s in the middle of this test" % why)
            self._end(FAILED)
        elif status != 0 and not any(case.outcome == FAILED for case in self.cases):
            self.cases.append(Case("program", FAILED, "%s:\n%s" % (why, "\n".join(self._last_lines))))
        return self.cases


def judge_program(cases):
    """All cases of a program; one more where it has tested nothing."""
    if all(case.outcome == SKIPPED for case in cases):
        why = cases[0].text if cases else "no test of it is over verbs"
        return cases + [Case("program", FAILED, "nothing was tested: " + why)]
    return cases
