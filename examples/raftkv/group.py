"""A group of raftkv_server processes on this host, and what one does to them: for raftkv.py and tests.

Nothing stays behind, whatever ends this process: the servers end with it (setpriv), and a watcher,
which sees its pipe close, removes their folder.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# Before a command: it ends with this process, also when nothing here can run any more.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
START_SECONDS = 60
STOP_SECONDS = 20


def free_ports(count):
    """Ports that the kernel chooses, and that nobody has now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


class Folder:
    """A temporary folder that is removed when this process ends, also by SIGKILL."""

    def __init__(self, parent=None):
        self.path = tempfile.mkdtemp(prefix="weft-raftkv-", dir=parent)
        self.watcher = subprocess.Popen(
            ["sh", "-c", 'cat >/dev/null; sleep 0.2; rm -rf -- "$1"', "sh", self.path],
            stdin=subprocess.PIPE, start_new_session=True)

    def close(self):
        """The watcher ends by itself, a moment later."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.watcher.stdin.close()


class Group:
    """Members 1 to n; `programs` has the paths of raftkv_server, raftkv_admin and kv_client. `flags`
    are the members', `client_flags` the others'."""

    def __init__(self, programs, members=3, network="weft", paths="", parent=None, flags=(),
                 client_flags=(), cpus=()):
        self.programs = programs
        self.folder = Folder(parent)
        self.environment = dict(os.environ)
        if paths:
            self.environment["WEFT_PATHS"] = paths
        self.flags = ["--network=" + network, *flags]
        self.client_flags = client_flags
        self.cpus = cpus  # the members in turn are bound to these processors; none: to no one
        self.member_addresses = {}
        self.client_addresses = {}
        self.processes = {}
        for number, port in enumerate(free_ports(members), 1):
            self.member_addresses[number] = "127.0.0.1:%d" % port
        self.first = ["--bootstrap=" + ",".join(
            "%d=%s" % each for each in self.member_addresses.items())]
        # All at once: each takes its time to come up.
        for launched in [self.launch(number, self.first) for number in self.member_addresses]:
            self.await_start(*launched)

    def path(self, name):
        return os.path.join(self.folder.path, name)

    def start(self, number, more=(), before=()):
        """Starts the member, or starts it again; `before`: by this command."""
        self.await_start(*self.launch(number, more, before))

    def launch(self, number, more=(), before=()):
        """As start(), without waiting: for await_start()."""
        log = self.path("%d.log" % number)
        command = [self.programs["raftkv_server"], "--id=%d" % number,
                   "--dir=" + self.path(str(number)),
                   "--member_address=" + self.member_addresses[number],
                   "--listen=" + self.client_addresses.get(number, "127.0.0.1:0"),
                   *self.flags, *more]
        if self.cpus:
            before = ("taskset", "-c", str(self.cpus[(number - 1) % len(self.cpus)]), *before)
        with open(log, "a") as said:
            start = said.tell()
            self.processes[number] = subprocess.Popen(
                [*ENDS_WITH_US, *before, *command], env=self.environment, stdout=said, stderr=said)
        return number, log, start

    def await_start(self, number, log, start):
        process = self.processes[number]
        deadline = time.monotonic() + START_SECONDS
        while True:
            with open(log) as lines:
                lines.seek(start)
                found = re.search(r"^listening on (\S+)\n", lines.read(), re.MULTILINE)
            if found:
                self.client_addresses[number] = found.group(1)
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("member %d did not start:\n%s" % (number, self.said(number)))
            time.sleep(0.01)

    def join(self, number, before=()):
        """A further member, as a voter."""
        self.member_addresses[number] = "127.0.0.1:%d" % free_ports(1)[0]
        self.admin("add", number, self.member_addresses[number])
        self.start(number, before=before)
        # With much to catch up with, it may take more than one attempt.
        promoted = self.wait_until(lambda: "done" in self.ask("promote", number, timeout_ms=30000)[1]
                                   or "has this role" in self.ask("promote", number)[1])
        if not promoted:
            raise RuntimeError("member %d was not promoted" % number)

    def said(self, number):
        with open(self.path("%d.log" % number)) as lines:
            return lines.read()

    def signal(self, number, what):
        os.kill(self.processes[number].pid, what)

    def freeze(self, number):
        """SIGSTOP: when this returns, none of the member's threads runs any more."""
        self.signal(number, signal.SIGSTOP)
        tasks = "/proc/%d/task" % self.processes[number].pid

        def stopped(task):
            try:
                with open(os.path.join(tasks, task, "stat")) as lines:
                    return lines.read().rsplit(")", 1)[1].split()[0] == "T"
            except OSError:  # a thread that has just ended
                return False
        if not self.wait_until(lambda: all(map(stopped, os.listdir(tasks)))):
            raise RuntimeError("member %d was not stopped" % number)

    def thaw(self, number):
        self.signal(number, signal.SIGCONT)

    def kill(self, number):
        self.signal(number, signal.SIGKILL)
        self.processes[number].wait()

    def servers(self, *numbers):
        """Where clients reach them, or all."""
        return ",".join(self.client_addresses[each] for each in numbers or self.client_addresses)

    def client(self, *words, **options):
        return subprocess.Popen(
            [*ENDS_WITH_US, self.programs["kv_client"], "--server=" + self.servers(),
             *self.client_flags, *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)

    def run_client(self, *words):
        """(status, what it said)"""
        process = self.client(*words)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def ask(self, *words, members=(), timeout_ms=10000):
        """raftkv_admin: (status, what it said)"""
        done = subprocess.run(
            [*ENDS_WITH_US, self.programs["raftkv_admin"], "--server=" + self.servers(*members),
             "--timeout_ms=%d" % timeout_ms, *self.client_flags, *map(str, words)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        return done.returncode, done.stdout

    def admin(self, *words):
        status, said = self.ask(*words)
        if status != 0:
            raise RuntimeError("%s: %s" % (" ".join(map(str, words)), said))
        return said

    def status(self, number, timeout_ms=500, restart_latency=False):
        """What a member says of itself, as a dict of numbers; None if it says nothing. With
        `restart_latency` it counts its commits anew from then on."""
        code, said = self.ask("status", *["--restart_latency"][:restart_latency], members=[number],
                              timeout_ms=timeout_ms)
        if code != 0:
            return None
        values = dict(re.findall(r"(member|term|last entry|state of entry) (\d+)", said.split("\n")[0]))
        leader = re.search(r"leader: (\d+)", said)
        commands = re.search(r"(\d+) commands in (\d+) entries and (\d+) barriers proposed, (\d+) "
                             r"snapshots taken, (\d+) restored", said)
        names = ("commands", "entries", "barriers", "taken", "restored")
        latency = re.search(r"(\d+) entries committed as leader: p50 ([\d.]+) us, p99 ([\d.]+) us, "
                            r"p99\.9 ([\d.]+) us", said)
        committed, p50, p99, p999 = latency.groups() if latency else (0, 0, 0, 0)
        rings = re.search(r"entries of (\d+) messages written into rings, of (\d+) taken", said)
        written, taken_out = rings.groups() if rings else (0, 0)
        acknowledged = re.search(r"(\d+) messages acknowledged by their writes alone", said)
        return {**{name: int(value) for name, value in values.items()},
                "leader": int(leader.group(1)) if leader else 0,
                "written into rings": int(written), "taken from rings": int(taken_out),
                "acknowledged by writes": int(acknowledged.group(1)) if acknowledged else 0,
                "recovering": "does not vote until" in said,
                "paths": {int(member): path for member, path in re.findall(
                    r"^  member (\d+) at .*, over (\w+)$", said, re.MULTILINE)},
                "committed": int(committed), "commit p50": float(p50), "commit p99": float(p99),
                "commit p99.9": float(p999),
                **{name: int(value) for name, value in zip(names, commands.groups())}}

    def cpu_us(self, number):
        """Processor time that the member's process has used, in microseconds: in steps of some
        milliseconds, and with that of threads that have ended."""
        with open("/proc/%d/stat" % self.processes[number].pid) as lines:
            fields = lines.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000 / os.sysconf("SC_CLK_TCK")

    def measure(self, outstanding, milliseconds, value_bytes):
        """What the leader takes for commands that it proposes by itself: commands/s, p50, p99 and
        p99.9 in microseconds, and for each the processor time of all members and of one follower."""
        def used():
            return {each: self.cpu_us(each) for each in self.processes}
        leader, before = self.leader(), used()
        said = self.admin("measure", outstanding, milliseconds, value_bytes)
        cpu = {each: after - before[each] for each, after in used().items()}
        commands, elapsed_ms, p50, p99, p999 = map(float, re.search(
            r"(\d+) commands in ([\d.]+) ms: p50 ([\d.]+) us, p99 ([\d.]+) us, p99\.9 ([\d.]+) us",
            said).groups())
        followers = (sum(cpu.values()) - cpu[leader]) / max(len(cpu) - 1, 1)
        return (commands / elapsed_ms * 1e3, p50, p99, p999, sum(cpu.values()) / max(commands, 1),
                followers / max(commands, 1))

    def leader(self, but=0, seconds=START_SECONDS):
        """The member that says that it leads, and is not `but`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for number, process in self.processes.items():
                if number == but or process.poll() is not None:
                    continue
                status = self.status(number)
                if status and status["leader"] == number:
                    return number
            time.sleep(0.02)
        raise RuntimeError("no leader within %d s" % seconds)

    def wait_until(self, what, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def wait_caught_up(self, number):
        """The member has applied all that the leader has."""
        def caught_up():
            leader, follower = self.status(self.leader()), self.status(number)
            return leader and follower and follower["state of entry"] >= leader["state of entry"]
        return self.wait_until(caught_up)

    def close(self, at_once=False):
        """`at_once`: by SIGKILL; else members hand over first, as far as there is anybody to take."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.processes.values():
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.close()
