"""Plays one scenario on a pair of machines: server on 1, witness on 2, faults, testimony."""
import json
import signal

import faults
import judge
import run

PORT = 4700
# Emulated machines start a program of Weft in two to five seconds.
_START_SECONDS = 60
_CALM_SECONDS = 60
# Deadline of calls, plus what the witness waits for lost ones, plus the audit.
_TESTIFY_SECONDS = 120
_STOP_SECONDS = 30


def parse_line(text):
    """The event of a line of the witness, or None."""
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def rdma_objects(text):
    """What `rdma -j resource show` counts: {"qp": 2, "mr": 3, ...}, over all devices."""
    counts = {}
    for device in json.loads(text or "[]"):
        for what, number in device.items():
            if isinstance(number, int) and what != "ifindex":
                counts[what] = counts.get(what, 0) + number
    return counts


class Rehearsal:
    """One scenario on one pair. Threads: the main one."""

    def __init__(self, pair, scenario, path, programs, transcript):
        self._pair = pair
        self._scenario = scenario
        self._path = path
        self._programs = programs  # folder of kv/kv_server and verify/witness/kv_witness
        self._transcript = transcript
        self._stage = faults.Stage(pair, {"server": self._start_server,
                                          "witness": self._start_witness})
        self._servers = 0

    # --- processes ----------------------------------------------------------------------------

    def _start(self, number, who, argv):
        # Its number is the first thing that it says.
        return self._pair.start(number, ["bash", "-c", 'echo "process $$"; exec "$@"', who, *argv],
                                env={"WEFT_PATHS": self._path},
                                on_output=self._transcript.sink(who))

    def _start_server(self):
        self._servers += 1
        server = self._start(1, self._server_name(), [
            self._programs + "/kv/kv_server", "--listen=%s:%d" % (run.address(1), PORT)])
        self._wait(lambda: self._said(self._server_name(), "listening on"), _START_SECONDS,
                   "the server did not start")
        return server

    def _server_name(self):
        return "server" if self._servers < 2 else "server-%d" % self._servers

    def _start_witness(self):
        audit = ["--audit"] if self._scenario.server_survives else []
        return self._start(2, "witness", [self._programs + "/verify/witness/kv_witness",
                                          "--server=%s:%d" % (run.address(1), PORT), *audit])

    # --- what they say ------------------------------------------------------------------------

    def _said(self, who, text):
        return any(line.startswith(text) for _, line in self._transcript.of(who))

    def _events(self):
        lines = ((at, parse_line(text)) for at, text in self._transcript.of("witness"))
        return [(at, event) for at, event in lines if event]

    def _wait(self, condition, seconds, complaint):
        if not self._transcript.wait(condition, seconds):
            raise Unfit(complaint)

    def _wait_calm(self, since, seconds, complaint):
        witness = self._stage.processes["witness"]
        self._wait(lambda: judge.is_calm(self._events(), since) or not witness.running(), seconds,
                   complaint)

    def _process(self, who):
        return next(line.split()[1] for _, line in self._transcript.of(who)
                    if line.startswith("process "))

    def _held(self):
        """What both machines hold for the connection."""
        held = {}
        for number, who in ((1, self._server_name()), (2, "witness")):
            files = self._pair.ask(number, "ls", "/proc/%s/fd" % self._process(who))
            held["machine %d, descriptors of the %s" % (number, who.split("-")[0])] = len(
                files.split())
            held.update(self._rdma_held(number))
        return held

    def _rdma_held(self, number):
        text = self._pair.ask(number, "rdma", "-j", "resource", "show")
        return {"machine %d, RDMA objects of type %s" % (number, what): count
                for what, count in rdma_objects(text).items()}

    # --- the play -----------------------------------------------------------------------------

    def play(self):
        """Returns the testimony. Raises Unfit if the scenario could not be played."""
        stage, transcript = self._stage, self._transcript
        at_rest = {**self._rdma_held(1), **self._rdma_held(2)}
        stage.start_process("server")
        stage.start_process("witness")
        try:
            self._wait_calm(0, _START_SECONDS + _CALM_SECONDS, "calls never got going")
            held_before = self._held()
            fault_at = transcript.now()
            faults.play(faults.parse(self._scenario.faults), stage,
                        lambda text: transcript.add("fault", text))
            restored_at = transcript.now()
            transcript.wait(lambda: judge.is_calm(self._events(), restored_at),
                            self._scenario.recovery_seconds + _CALM_SECONDS)
            held_after = self._held()
            witness_status = self._end("witness", _TESTIFY_SECONDS)
            server_status = self._end("server", _STOP_SECONDS)
        finally:
            for process in stage.processes.values():
                process.kill()
        left = {**self._rdma_held(1), **self._rdma_held(2)}
        return judge.Testimony(
            events=self._events(), fault_at=fault_at, restored_at=restored_at,
            witness_status=witness_status, server_status=server_status, path=self._path,
            held_before=held_before, held_after=held_after,
            held_at_end={what: max(0, count - at_rest.get(what, 0)) for what, count in left.items()})

    def _end(self, name, seconds):
        process = self._stage.processes[name]
        process.kill(signal.SIGTERM)
        return process.wait(seconds)


class Unfit(Exception):
    """The scenario could not be played to its end."""
