"""./dev lab pair: every scenario on every path, or two commands of the caller's."""
import argparse
import os
import sys
import time

import accelerator
import faults
import host
import image
from pair import Pair, Transcript
from rehearsal import Rehearsal, Unfit
from scenarios import SCENARIOS
import judge
import run

# What is tested over: name -> the machines' device, and the path as WEFT_PATHS has it.
PATHS = {"tcp": ("none", "tcp"), "ofi_tcp": ("none", "ofi_tcp"),
         "rxe": ("rxe", "verbs"), "siw": ("siw", "verbs")}

USAGE = """./dev lab pair [--path tcp,ofi_tcp,rxe,siw] [--list] [SCENARIO]...
       ./dev lab pair --device rxe|siw|rxe,siw|rxe,rxe|none [--faults 'SECONDS WHAT; ...']
           [--faults_after WORDS] -- SERVER CLIENT

Two machines with a cable between them. The first form plays the scenarios, with kv_server on one
and a client on the other, and ends in "N passed, N failed". The second runs the shell line SERVER
on machine 1 and CLIENT on machine 2 ($WEFT_LAB_PEER is the other's address) until CLIENT ends, and
ends with its status; the faults begin with CLIENT, or when it has said WORDS."""


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev lab pair", usage=USAGE)
    parser.add_argument("--path", default=",".join(PATHS), help="of the scenarios: %(default)s")
    parser.add_argument("--list", action="store_true", help="the scenarios, and what happens there")
    parser.add_argument("--log", help="a file for everything that was said, with times")
    parser.add_argument("--device", help="of both machines, as ./dev lab's: "
                        "plays two commands instead of scenarios")
    parser.add_argument("--faults", default="", help="what goes wrong; docs/lab.md tells the language")
    parser.add_argument("--faults_after", default="", metavar="WORDS",
                        help="their seconds count from when CLIENT has said so, in a line")
    parser.add_argument("--mtu", type=int)
    parser.add_argument("--timeout", type=float, default=600, help="of CLIENT, in seconds")
    parser.add_argument("--programs", default="bazel-bin/examples", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*")
    return parser.parse_args(arguments)


def format_line(line):
    return "%8.3f %s| %s" % line


def play_commands(options, machines, say):
    """Two commands and faults; the client's status."""
    server_words, client_words = options.words

    def show(line):
        print(format_line(line), flush=True)

    transcript = Transcript(on_line=show)
    folder = os.environ.get("WEFT_LAB_CALLER") or os.getcwd()
    with Pair(*machines, options.device.split(","), mtu=options.mtu) as pair:
        def start(number, words):
            return pair.start(number, run.command_words([words]), folder=folder,
                              on_output=transcript.sink(str(number)))

        stage = faults.Stage(pair, {"server": lambda: start(1, server_words)})
        stage.start_process("server")
        client = start(2, client_words)

        def begun():
            return any(options.faults_after in text for _, text in transcript.of("2"))

        if options.faults_after:
            while client.running() and not transcript.wait(begun, seconds=1):
                pass
        faults.play(faults.parse(options.faults), stage, lambda text: transcript.add("fault", text))
        status = client.wait(options.timeout)
    if status is None:
        say("the client was still running after %g s" % options.timeout)
        return host.TIMED_OUT
    return host.MACHINE_FAILED if status < 0 else status


class Score:
    def __init__(self, log):
        self.passed = 0
        self.failed = 0
        self._log = log

    def add(self, name, wrong, words, seconds, transcript):
        self.passed += not wrong
        self.failed += bool(wrong)
        print("%s %s (%.0f s): %s" % ("passed" if not wrong else "FAILED", name, seconds, words))
        for text in wrong:
            print("  FAILED: %s: %s" % (name, text))
        sys.stdout.flush()
        if self._log:
            self._log.write("== %s\n" % name)
            self._log.writelines(format_line(line) + "\n" for line in transcript.lines)
            self._log.flush()

    def finish(self):
        """Prints the last line; the status of the command."""
        print("%d passed, %d failed" % (self.passed, self.failed), flush=True)
        return 1 if self.failed else 0


def play_scenario(pair, name, scenario, path, programs, score):
    start = time.monotonic()
    transcript = Transcript()
    try:
        testimony = Rehearsal(pair, scenario, path, programs, transcript).play()
        wrong, words = judge.verdict(scenario, testimony), judge.figures(testimony)
    except (Unfit, host.MachineFailed) as error:
        wrong, words = [str(error)], "could not be played"
    score.add(name, wrong, words, time.monotonic() - start, transcript)
    return not wrong


def play_path(path_name, scenarios, machines, options, score, say):
    device, path = PATHS[path_name]
    waiting = list(scenarios)
    while waiting:
        say("starting two machines for " + path_name)
        with Pair(*machines, [device], mtu=options.mtu) as pair:
            while waiting:
                scenario = waiting.pop(0)
                name = "%s.%s" % (path_name, scenario.name)
                if not play_scenario(pair, name, scenario, path, options.programs, score):
                    break  # who knows in which state the machines are


def play_scenarios(options, machines, say):
    known = {scenario.name: scenario for scenario in SCENARIOS}
    scenarios = [known[name] for name in options.words] if options.words else SCENARIOS
    options.programs = os.path.realpath(options.programs)
    with open(options.log or os.devnull, "w") as log:
        score = Score(log)
        for path_name in options.path.split(","):
            try:
                play_path(path_name, scenarios, machines, options, score, say)
            except host.MachineFailed as error:
                score.add(path_name, [str(error)], "no machines", 0, Transcript())
    return score.finish()


def check(options):
    """Raises ValueError with what is wrong with the command line."""
    faults.parse(options.faults)
    if options.device is not None:
        if len(options.words) != 2:
            raise ValueError("two commands are needed, SERVER and CLIENT, each one word")
        return
    unknown = set(options.words) - {scenario.name for scenario in SCENARIOS}
    unknown |= set(options.path.split(",")) - set(PATHS)
    if unknown:
        raise ValueError("no such scenario or path: " + ", ".join(sorted(unknown)))


def main(arguments, say):
    options = parse(arguments)
    try:
        check(options)
    except ValueError as error:
        say(str(error))
        return host.USAGE
    if options.list:
        for scenario in SCENARIOS:
            print("%-20s %s" % (scenario.name, scenario.faults))
        return 0
    host.check()
    made = image.ensure(say)
    machines = (made, accelerator.choose(made, say))
    play = play_scenarios if options.device is None else play_commands
    return play(options, machines, say)
