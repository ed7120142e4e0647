"""Two machines and a cable between them, and what can go wrong with those."""
import os
import pathlib
import shutil
import tempfile
import threading
import time

import run
from machine import Machine, Options

NUMBERS = (1, 2)
_CARD = "eth0"
# Answers of small programs in a machine; under load stalls of seconds happen.
_ASK_SECONDS = 60


def cable_end(folder, number, card):
    """Where this machine's card takes what comes: a socket that the other machine's card sends to."""
    return folder / ("card-%d-%d" % (card, number))


def cable(folder, number, card):
    """The -netdev that joins this machine's card to the other machine's."""
    ends = [cable_end(folder, n, card) for n in (number, 3 - number)]
    return "dgram,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s" % tuple(ends)


def _frozen(end):
    return end.with_name(end.name + "-frozen")


class Transcript:
    """Who said what and when, by the host's clock: the machines' clocks differ.

    Threads: any.
    """

    def __init__(self, on_line=None):
        self._on_line = on_line
        self._start = time.monotonic()
        self.changed = threading.Condition()
        self.lines = []  # (seconds, who, text), guarded by `changed`

    def now(self):
        return time.monotonic() - self._start

    def add(self, who, text):
        with self.changed:
            self.lines.append((self.now(), who, text))
            self.changed.notify_all()
        if self._on_line:
            self._on_line(self.lines[-1])

    def of(self, who):
        with self.changed:
            return [(at, text) for at, speaker, text in self.lines if speaker == who]

    def wait(self, condition, seconds):
        """Waits until condition(); whether it came true. It is asked after each line."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def sink(self, who):
        """For a command's on_output: cuts it into lines."""
        rest = {1: b"", 2: b""}

        def on_output(stream, data):
            *lines, rest[stream] = (rest[stream] + data).split(b"\n")
            for line in lines:
                self.add(who, line.decode(errors="replace"))
        return on_output


class Pair:
    """Machines 1 and 2. Threads: the main one."""

    def __init__(self, image, accelerator, devices, mtu=None, cpus=1, memory_mib=768):
        self.devices = list(devices)
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-lab-"))
        self.shared = self._folder / "shared"
        self.shared.mkdir()
        self._options = {number: Options(
            image, self.shared, number=number, devices=devices, accelerator=accelerator, cpus=cpus,
            memory_mib=memory_mib, mtu=mtu,
            cables=[cable(self._folder, number, card) for card in range(len(self.devices))],
        ) for number in NUMBERS}
        self.machines = {}

    def __enter__(self):
        try:
            for number in NUMBERS:
                self._power_on(number)
            for number in NUMBERS:
                self.machines[number].wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for machine in self.machines.values():
            machine.destroy()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _power_on(self, number):
        for card in range(len(self.devices)):
            cable_end(self._folder, number, card).unlink(missing_ok=True)
        self.machines[number] = Machine(self._options[number])

    def environment(self, number):
        outside = {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}
        env = run.environment(outside, self._options[number])
        env["WEFT_LAB_PEER"] = run.address(3 - number)
        env["WEFT_LAB_PEER6"] = run.address6(3 - number)
        for card in range(len(self.devices)):
            env["WEFT_LAB_PEER_CARD%d" % card] = run.address(3 - number, card)
        return env

    def start(self, number, argv, *, env=None, on_output=None, folder="/"):
        """Starts a command in a machine."""
        return self.machines[number].agent.start(
            argv, env={**self.environment(number), **(env or {})}, on_output=on_output,
            folder=folder)

    def ask(self, number, *argv):
        """What a small command says; "" if it fails."""
        said = []
        command = self.start(number, argv, on_output=lambda stream, data: (
            said.append(data) if stream == 1 else None))
        return b"".join(said).decode() if command.wait(_ASK_SECONDS) == 0 else ""

    # --- faults -------------------------------------------------------------------------------

    def _cards(self, card):
        return range(len(self.devices)) if card is None else [card]

    def cut_cable(self, card=None):
        """Both ends lose their carrier, as with a real one. Without a number: all cables."""
        for machine in self.machines.values():
            for one in self._cards(card):
                if machine.running():
                    machine.cut_cable(one)

    def mend_cable(self, card=None):
        for machine in self.machines.values():
            for one in self._cards(card):
                if machine.running():
                    machine.mend_cable(one)

    def kill_machine(self, number):
        self.machines[number].destroy()

    def start_machine(self, number):
        self._power_on(number)
        self.machines[number].wait_ready()

    def freeze_machine(self, number):
        """Its processors stand still, and what is sent to it is lost.

        A machine that stands still takes nothing from its sockets. Once they are full the other
        machine's card stops sending, and Soft-RoCE waits up to a minute to destroy a queue pair of
        which a frame has not left. So the sockets are not where the other machine sends to.
        """
        for card in range(len(self.devices)):
            end = cable_end(self._folder, number, card)
            end.rename(_frozen(end))
        self.machines[number].freeze()

    def thaw_machine(self, number):
        for card in range(len(self.devices)):
            end = cable_end(self._folder, number, card)
            _frozen(end).rename(end)
        self.machines[number].thaw()

    def disturb(self, number, *netem):
        """What machine `number` sends is lost, late, doubled, ... as tc-netem(8) says."""
        self.ask(number, "tc", "qdisc", "replace", "dev", _CARD, "root", "netem", *netem)

    def calm(self, number):
        self.ask(number, "tc", "qdisc", "del", "dev", _CARD, "root")
