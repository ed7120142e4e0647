"""./dev lab raftkv: a replicated key-value store over two machines, and what it survives.

Members 1 and 2 are on machine 1, member 3, which leads, on machine 2. A client puts, gets and
deletes, another one loads lines; a cable is cut or a machine stands still, and is mended. The
history of the first client's calls has to be linearizable, every line that was acknowledged has to
be there, and commits have to go on, with all three members.
"""
import argparse
import dataclasses
import os
import re
import signal
import time

import accelerator
import faults
import host
import image
import run
from pair import Pair, Transcript
from pair_command import Score, format_line

USAGE = """./dev lab raftkv [--device rxe,siw] [--replication messages,ring,remote-writes] [--list] [SCENARIO]...

Three raftkv_servers on two machines, over verbs; every scenario, or these. Ends in "N passed, N
failed"."""

LEADER = 3
MACHINE_OF = {1: 1, 2: 1, 3: 2}  # the leader's has a minority
# Beside other work an emulated machine stands still for a second: no election begins by that.
ELECTION_MS = 5000
# Between the machines verbs; where the cable is cut the port is down at both ends, and what is in one
# machine still reaches each other.
PATHS = "shm,verbs"
# Of a machine: two members and clients.
CPUS = 2
# Three processes with their pools, registered once more in the kernel.
MEMORY_MIB = 2048
# Emulated, and beside other work: generous. Nothing waits so long unless it is broken.
_START_SECONDS = 180
_ASK_SECONDS = 180
_AGREE_SECONDS = 300
_CLIENT_SECONDS = 300
_STOP_SECONDS = 90
_ADMIN_TIMEOUT_MS = 20_000
_CALL_TIMEOUT_MS = 60_000
_LINES = 300  # of which each takes some ten milliseconds
_AFTERWARDS_SECONDS = 8  # that a client goes on


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    client: int   # its machine
    breaks: str   # a fault of faults.py, without its time
    mends: str
    seconds: float  # between them, and more if it takes more until another member leads
    elects: bool  # a majority is left: another member leads meanwhile


SCENARIOS = [
    Scenario("leader_cut_off", 1, "cut cable", "mend cable", 8, elects=True),
    Scenario("leader_frozen", 1, "freeze machine 2", "thaw machine 2", 10, elects=True),
    Scenario("majority_frozen", 2, "freeze machine 1", "thaw machine 1", 8, elects=False),
]


class Unfit(Exception):
    """What the scenario found wrong, or why it could not be played to its end."""


def statuses(text):
    """What `raftkv_admin status` says: member -> a dict."""
    found = {}
    for part in re.split(r"^(?=\S+: member )", text, flags=re.MULTILINE):
        first = re.match(r"\S+: member (\d+), term (\d+), last entry (\d+), state of entry (\d+), "
                         r".*leader: (\d+|unknown)", part)
        if not first:
            continue
        acknowledged = re.search(r"(\d+) messages acknowledged by their writes alone", part)
        member, term, last, applied = map(int, first.groups()[:4])
        found[member] = {
            "term": term, "last": last, "applied": applied,
            "leader": int(first.group(5)) if first.group(5) != "unknown" else 0,
            "acknowledged": int(acknowledged.group(1)) if acknowledged else 0,
            "recovering": "does not vote until" in part,
            "paths": set(re.findall(r"^  member \d+ at .*, over (\w+)$", part, re.MULTILINE))}
    return found


def leader_of(found):
    """The member that says that it leads in the highest term; 0: nobody does."""
    leading = [(said["term"], member) for member, said in found.items()
               if said["leader"] == member]
    return max(leading, default=(0, 0))[1]


def agree(found):
    """All members are there, with one leader and the same state, and may vote."""
    return (len(found) == len(MACHINE_OF) and leader_of(found) != 0
            and len({(said["term"], said["leader"], said["applied"]) for said in found.values()}) == 1
            and not any(said["recovering"] for said in found.values()))


class Play:
    """One scenario on one pair, with a group of its own. Threads: the main one."""

    def __init__(self, pair, number, scenario, replication, programs, transcript):
        self._pair = pair
        self._scenario = scenario
        self._replication = replication
        self._programs = programs
        self._transcript = transcript
        self._ports = 4700 + 10 * number  # a group that ended may still have its own
        self._folder = "/tmp/raftkv-%d" % number
        self._lines = pair.shared / ("lines-%d" % number)
        self._members = {}

    # --- processes ----------------------------------------------------------------------------

    def _member_address(self, member):
        return "%s:%d" % (run.address(MACHINE_OF[member]), self._ports + member)

    def _client_address(self, member):
        return "%s:%d" % (run.address(MACHINE_OF[member]), self._ports + 5 + member)

    def _run(self, machine, who, program, *words):
        return self._pair.start(machine, [os.path.join(self._programs, program), *map(str, words)],
                                env={"WEFT_PATHS": PATHS}, on_output=self._transcript.sink(who))

    def _start_member(self, member):
        machine = MACHINE_OF[member]
        self._pair.ask(machine, "mkdir", "-p", self._folder)
        self._members[member] = self._run(
            machine, "member %d" % member, "raftkv/raftkv_server", "--id=%d" % member,
            "--dir=%s/%d" % (self._folder, member),
            "--member_address=" + self._member_address(member),
            "--listen=" + self._client_address(member), "--replication=" + self._replication,
            "--bootstrap=" + ",".join("%d=%s" % (each, self._member_address(each))
                                      for each in MACHINE_OF),
            # Who is to lead does not wait as long as the others.
            "--election_ms=%d" % (ELECTION_MS // (2 if member == LEADER else 1)),
            "--heartbeat_ms=%d" % (ELECTION_MS // 10))

    def _client(self, who, *words):
        return self._run(self._scenario.client, who, "kv/kv_client",
                         "--server=" + ",".join(map(self._client_address, MACHINE_OF)),
                         "--timeout_ms=%d" % _CALL_TIMEOUT_MS, *words)

    def _admin(self, machine, members, *words):
        """(status, what it said)"""
        who = "admin %d" % len(self._transcript.lines)
        process = self._run(machine, who, "raftkv/raftkv_admin", "--server=" + ",".join(
            map(self._client_address, members)), "--timeout_ms=%d" % _ADMIN_TIMEOUT_MS, *words)
        status = process.wait(_ASK_SECONDS)
        return status, "\n".join(text for _, text in self._transcript.of(who))

    def _statuses(self, machine, members):
        return statuses(self._admin(machine, members, "status")[1])

    # --- what is waited for -------------------------------------------------------------------

    def _wait_said(self, who, text, seconds):
        if not self._transcript.wait(lambda: any(
                line.startswith(text) for _, line in self._transcript.of(who)), seconds):
            raise Unfit("%s did not say \"%s\" within %d s" % (who, text, seconds))

    def _until(self, what, complaint, seconds=_AGREE_SECONDS):
        """Asks until the answer is true, and returns it."""
        deadline = time.monotonic() + seconds
        while True:
            answer = what()
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise Unfit(complaint)

    def _end(self, who, process, wanted=0):
        status = process.wait(_CLIENT_SECONDS)
        if status != wanted:
            said = "; ".join(text for _, text in self._transcript.of(who)[-4:])
            raise Unfit("%s ended with %s: %s" % (who, status, said))

    def _make_lead(self):
        """Member 3 leads, reaches both others over verbs, and has commits."""
        def leads():
            found = self._statuses(2, MACHINE_OF)
            if agree(found) and leader_of(found) == LEADER:
                return found
            if {said["leader"] for said in found.values()} - {0, LEADER}:
                self._admin(2, MACHINE_OF, "transfer", LEADER)
            return None
        found = self._until(leads, "member %d did not become the leader" % LEADER)
        if found[LEADER]["paths"] != {"verbs"}:
            raise Unfit("member %d reaches others over %s" % (LEADER, found[LEADER]["paths"]))
        if self._replication == "remote-writes":
            def writes():
                self._admin(2, MACHINE_OF, "measure", 1, 500, 100)
                return self._statuses(2, [LEADER]).get(LEADER, {}).get("acknowledged")
            self._until(writes, "no message was acknowledged by its write")

    def _break(self):
        """What happens; in words how long it took until another member led."""
        scenario, stage = self._scenario, faults.Stage(self._pair, {})

        def do(what):
            self._transcript.add("fault", what)
            stage.do(faults.parse("0 " + what)[0])

        start = time.monotonic()
        do(scenario.breaks)
        words = []
        try:
            if scenario.elects:
                others = [member for member in MACHINE_OF if MACHINE_OF[member] == 1]
                second = self._until(lambda: leader_of(self._statuses(1, others)),
                                     "no other member led meanwhile")
                words = ["member %d led within %.0f s" % (second, time.monotonic() - start)]
            time.sleep(max(0, start + scenario.seconds - time.monotonic()))
        finally:
            do(scenario.mends)
        return words

    # --- the play -----------------------------------------------------------------------------

    def play(self):
        """What is worth telling. Raises Unfit."""
        self._lines.write_text("".join("key-%06d\tvalue %d\n" % (i, i) for i in range(_LINES)))
        processes = {}
        try:
            for some in ([LEADER], [member for member in MACHINE_OF if member != LEADER]):
                for member in some:
                    self._start_member(member)
                for member in some:
                    self._wait_said("member %d" % member, "listening on", _START_SECONDS)
            self._make_lead()
            seconds = self._scenario.seconds + _AFTERWARDS_SECONDS + ELECTION_MS // 1000 * 3
            processes["check"] = self._client("check", "--outstanding=4", "--seconds=%g" % seconds,
                                              "check")
            self._wait_said("check", "puts, deletes and gets", _START_SECONDS)
            processes["load"] = self._client("load", "--outstanding=1", "load", self._lines)
            time.sleep(2)
            words = self._break()
            for who, process in processes.items():
                self._end(who, process)
            words += self._said_at_end()
            self._agree_again()
            processes["verify"] = self._client("verify", "verify", self._lines)
            self._end("verify", processes["verify"])
            for member, process in self._members.items():
                process.kill(signal.SIGTERM)
            for member, process in self._members.items():
                self._end("member %d" % member, process)
            return ", ".join(words)
        finally:
            for process in [*processes.values(), *self._members.values()]:
                process.kill()

    def _said_at_end(self):
        said = "\n".join(text for _, text in self._transcript.of("check"))
        words = re.findall(r"^(?:[\d,]+ gets and .*|linearizable: .*)$", said, re.MULTILINE)
        if len(words) != 2 or " 0 errors" not in words[0]:
            raise Unfit("the client that checks said: " + said)
        return words

    def _agree_again(self):
        self._until(lambda: agree(self._statuses(2, MACHINE_OF)),
                    "the members did not become of one state again")
        status, said = self._admin(2, MACHINE_OF, "measure", 1, 500, 100)
        commands = re.search(r"^(\d+) commands", said, re.MULTILINE)
        if status != 0 or not commands or int(commands.group(1)) == 0:
            raise Unfit("no commits afterwards: " + said)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev lab raftkv", usage=USAGE)
    parser.add_argument("--device", default="rxe,siw")
    parser.add_argument("--replication", default="messages,remote-writes")
    parser.add_argument("--list", action="store_true", help="the scenarios, and what happens there")
    parser.add_argument("--log", help="a file for everything that was said, with times")
    parser.add_argument("--programs", default="bazel-bin/examples", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(arguments)
    for said, known in ((options.words, [scenario.name for scenario in SCENARIOS]),
                        (options.device.split(","), ["rxe", "siw"]),
                        (options.replication.split(","), ["messages", "ring", "remote-writes"])):
        unknown = set(said) - set(known)
        if unknown:
            parser.error("%s: there are %s" % (", ".join(sorted(unknown)), ", ".join(known)))
    return options


def play_all(options, machines, log, say):
    score = Score(None)

    def write(line):  # as it comes: who waits for a machine wants to know for what
        log.write(format_line(line) + "\n")
        log.flush()

    programs = os.path.realpath(options.programs)
    chosen = [each for each in SCENARIOS if not options.words or each.name in options.words]
    for device in options.device.split(","):
        waiting = [(replication, scenario) for replication in options.replication.split(",")
                   for scenario in chosen]
        number = 0
        while waiting:
            say("starting two machines for " + device)
            with Pair(*machines, [device], cpus=CPUS, memory_mib=MEMORY_MIB) as pair:
                good = True
                while waiting and good:  # after a failure nobody knows in which state they are
                    replication, scenario = waiting.pop(0)
                    name = "%s.%s.%s" % (device, replication, scenario.name)
                    log.write("== %s\n" % name)
                    transcript, start = Transcript(on_line=write), time.monotonic()
                    number += 1
                    try:
                        wrong = []
                        words = Play(pair, number, scenario, replication, programs,
                                     transcript).play()
                    except Unfit as error:
                        good, wrong, words = False, [str(error)], "not as it should be"
                    score.add(name, wrong, words, time.monotonic() - start, transcript)
    return score.finish()


def main(arguments, say):
    options = parse(arguments)
    if options.list:
        for scenario in SCENARIOS:
            print("%-16s client on machine %d; %s, %g s later %s" % (
                scenario.name, scenario.client, scenario.breaks, scenario.seconds, scenario.mends))
        return 0
    host.check()
    made = image.ensure(say)
    machines = (made, accelerator.choose(made, say))
    with open(options.log or os.devnull, "w") as log:
        return play_all(options, machines, log, say)
