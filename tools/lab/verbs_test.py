#!/usr/bin/env python3
"""Runs tests over verbs in the lab, on Soft-RoCE and then on Soft-iWARP, and counts their cases.

    verbs_test.py [--device rxe,siw] [--program PATH[:PARTS]]... [--kv FOLDER]
                  [--interop FOLDER] [--perf PROGRAM] [--devices-command SCRIPT WEFT]

Bazel gives the programs (//tools/lab:verbs_test); `./dev lab test` is this with Bazel's `run`. In
each program the tests with "verbs" in their name count. Where there can be no lab, the one case is
skipped, with the reason.
"""
import argparse
import os
import sys
import tempfile
import time

import accelerator
import devices_command
import gtest_lines
import host
import image
import interop_example
import kv_example
import lab
import pair
import perf_smoke
import run
from machine import Machine, Options
from report import Report

FILTER = "*verbs*:*Verbs*"
# The slowest program takes a minute on idle cores, and several where others work there, too.
_PROGRAM_SECONDS = 900
_KILLED_SECONDS = 10
_PROCESSORS = 2
# Tests count what they leave in /dev/shm: each program has its own, as in Bazel's sandbox.
_OWN_SHM = 'mount -t tmpfs shm /dev/shm && exec "$0" "$@"'
# Two engines with their pools, registered once more in the kernel.
_MEMORY_MIB = 3072


def parse_program(text):
    """A path, and in how many processes the program's tests run: as many as there are processors."""
    path, _, parts = text.partition(":")
    return path, int(parts or _PROCESSORS)


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=lab.parse_devices, default=list(lab.DEVICES),
                        dest="devices")
    parser.add_argument("--program", action="append", default=[], dest="programs",
                        type=parse_program, metavar="PATH[:PARTS]")
    parser.add_argument("--kv", help="folder of kv_server and kv_client")
    parser.add_argument("--interop", help="folder of interop_server and interop_client")
    parser.add_argument("--perf", help="weft_perf, for a run as short as it can be")
    parser.add_argument("--devices-command", nargs=2, metavar=("SCRIPT", "WEFT"),
                        help="shows what `weft devices` says")
    return parser.parse_args(arguments)


class DeviceRun:
    """All tests on one device, in one machine."""

    def __init__(self, machine, device, report):
        self._machine = machine
        self._device = device
        self._report = report
        self._env = run.environment(
            {"PATH": "/usr/bin:/bin", "HOME": "/root", "TEST_TMPDIR": "/tmp"}, machine.options)
        self._env["WEFT_TEST_RDMA"] = "%s0=%s" % (device, run.address(1))

    def run_program(self, program, parts):
        """Its tests in so many processes, as many at a time as the machine has processors."""
        group = "%s.%s" % (self._device, os.path.basename(program))
        started = time.monotonic()
        cases = []
        for first in range(0, parts, _PROCESSORS):
            batch = [self._start_part(program, part, parts)
                     for part in range(first, min(first + _PROCESSORS, parts))]
            for command, follower in batch:
                status = command.wait(max(0, started + _PROGRAM_SECONDS - time.monotonic()))
                if status is None:
                    command.kill()
                    command.wait(_KILLED_SECONDS)
                cases += follower.finish(status)
        self._tell(group, gtest_lines.judge_program(cases), started)

    def _start_part(self, program, part, parts):
        follower = gtest_lines.Follower()
        said = pair.Transcript(on_line=lambda line: follower.add(line[2]))
        env = dict(self._env, GTEST_TOTAL_SHARDS=str(parts), GTEST_SHARD_INDEX=str(part))
        words = ["unshare", "--mount", "bash", "-c", _OWN_SHM, os.path.realpath(program),
                 "--gtest_filter=" + FILTER]
        command = self._machine.agent.start(words, env=env, folder=os.getcwd(),
                                            on_output=said.sink("test"))
        return command, follower

    def run_kv(self, programs):
        started = time.monotonic()
        cases = kv_example.play(self._machine, os.path.realpath(programs), self._env,
                                run.address(1), "verbs")
        self._tell(self._device + ".kv", list(cases), started)

    def run_interop(self, programs):
        started = time.monotonic()
        cases = interop_example.play(self._machine, os.path.realpath(programs), self._env,
                                     run.address(1), "verbs")
        self._tell(self._device + ".interop", cases, started)

    def run_perf(self, program):
        started = time.monotonic()
        case = perf_smoke.play(self._machine, os.path.realpath(program), self._env, self._device)
        self._tell(self._device + ".perf", [case], started)

    def run_devices_command(self, script, program):
        """The last: it breaks the device."""
        started = time.monotonic()
        cases = devices_command.play(self._machine, os.path.realpath(script),
                                     os.path.realpath(program), self._env)
        self._tell(self._device + ".weft", list(cases), started)

    def _tell(self, group, cases, started):
        for case in cases:
            self._report.add(group, case)
        passed = sum(case.outcome == gtest_lines.PASSED for case in cases)
        print("%s: %d of %d passed in %.0f s" % (group, passed, len(cases),
                                                 time.monotonic() - started), flush=True)


def run_device(device, options, machines, report):
    made, chosen = machines
    with tempfile.TemporaryDirectory(prefix="weft-lab-") as shared:
        with Machine(Options(made, shared, devices=[device], accelerator=chosen,
                             cpus=_PROCESSORS, memory_mib=_MEMORY_MIB)) as machine:
            machine.wait_ready()
            tests = DeviceRun(machine, device, report)
            for program, parts in options.programs:
                tests.run_program(program, parts)
            if options.kv:
                tests.run_kv(options.kv)
            if options.interop:
                tests.run_interop(options.interop)
            if options.perf:
                tests.run_perf(options.perf)
            if options.devices_command:
                tests.run_devices_command(*options.devices_command)


def run_all(options, report):
    try:
        if os.environ.get("WEFT_LAB_CANNOT"):  # ./dev test has tried
            raise host.CannotRun(os.environ["WEFT_LAB_CANNOT"])
        host.check()
        made = image.ensure(lab.say)
        machines = (made, accelerator.choose(made, lab.say))
    except host.CannotRun as error:
        report.add("lab", gtest_lines.Case("verbs", gtest_lines.SKIPPED,
                                           "NOTHING was tested over verbs: %s" % error))
        return
    for device in options.devices:
        try:
            run_device(device, options, machines, report)
        except host.MachineFailed as error:
            report.add(device, gtest_lines.Case("machine", gtest_lines.FAILED, str(error)))


def main():
    lab.end_on_signals()
    report = Report()
    run_all(parse(sys.argv[1:]), report)
    report.write_for_bazel()
    print(report.last_line(), flush=True)
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
