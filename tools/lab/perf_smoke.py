"""weft_perf in one machine, as short as it can be: that it measures, not what."""
import re

from gtest_lines import FAILED, PASSED, Case
from pair import Transcript

# Emulated, and beside other work: generous. Idle, it takes some seconds.
_SECONDS = 180
# One round of legs as short as they can be: each ends with something counted, however late.
_SHORT = ["--quick", "--repeat=1", "--seconds=0.05"]
# Round trips and rates, one-sided and bulk, each with its ratio, and its goal if it has one.
ROWS = ("64 B round trip, p50", "64 B round trip, p99", "64 B round trip, p99.9",
        "64 B calls, 64 outstanding (raw: two messages)",
        "64 B messages in these calls (raw: one way)", "64 B messages one way, 64 outstanding",
        "64 B of a stream there and back, p50 (raw: bare)",
        "64 B of a stream one way (raw: bare messages)",
        "64 B one-sided read, p50", "64 B one-sided reads, 64 outstanding",
        "1 MiB one-sided writes", "1 MiB bulk in calls (raw: its best transfer)",
        "1 MiB bulk in calls, CRC32C (raw: no CRC)")


def _is_row(path, row, line):
    pattern = r"%s +%s +emulated +emulated +\d+\.\d\d( +(holds|falls short) +[<>]= \d\.\d\d)?"
    return re.fullmatch(pattern % (path, re.escape(row)), line) is not None


def missing_rows(path, lines):
    """What of a whole table for an emulated path is not there."""
    return [row for row in ROWS if not any(_is_row(path, row, line) for line in lines)]


def play(machine, program, env, device):
    """The one case."""
    said = Transcript()
    command = machine.agent.start([program, "--paths=" + device, *_SHORT], env=env,
                                  on_output=said.sink("perf"))
    status = command.wait(_SECONDS)
    if status is None:
        command.kill()
    lines = [line for _, line in said.of("perf")]
    wrong = ["no row: " + row for row in missing_rows(device, lines)]
    if status != 0:
        wrong.append("took too long" if status is None else "status %d" % status)
    return Case("Perf.MeasuresRawAndWeftOverVerbs", FAILED if wrong else PASSED,
                "\n".join(lines + wrong) if wrong else "")
