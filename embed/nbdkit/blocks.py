"""Processes of weft_blockd and nbdkit, for the tests and for ./dev blocks.

They end with the process that has started them, and their folder goes with it, whatever ends it.
"""
import os
import select
import shutil
import socket
import subprocess
import tempfile

# How long a server may take to come up, or to leave.
PATIENCE_SECONDS = 60

# Before a command: it ends with this process, also when nothing here can run any more. (And with the
# thread that has started it: so that is the main one.)
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


class Folder:
    """A temporary folder. A shell removes it when the pipe from here is closed, by close() or by any
    death of this process. Its path is short: sockets have names of 107 bytes at most."""

    def __init__(self, parent=None):
        self.path = tempfile.mkdtemp(prefix="weft-nbd-", dir=parent or "/tmp")
        self.remover = subprocess.Popen(["sh", "-c", 'read -r _; rm -rf -- "$1"', "sh", self.path],
                                        stdin=subprocess.PIPE, start_new_session=True)

    def file(self, name):
        return os.path.join(self.path, name)

    def close(self):
        self.remover.stdin.close()
        self.remover.wait()


class Blockd:
    """A weft_blockd that can be killed and started again at its address."""

    def __init__(self, program, file, *arguments):
        self.command = [program, file] + list(arguments)
        self.address = "127.0.0.1:0"
        self.start()

    def start(self):
        """A server that was killed has its lock on the file until its last system call has ended."""
        for _ in range(50):
            self.process = subprocess.Popen(
                ENDS_WITH_US + self.command + ["--listen=" + self.address],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
            line = self.process.stdout.readline() if ready else ""
            if line.startswith("listening on "):
                self.address = line.split()[-1]
                return
            self.process.kill()
            said = self.process.communicate()[1]
            if "served by another process" not in said and "in use" not in said:
                break
        raise RuntimeError("weft_blockd did not start: " + said)

    def kill(self):
        self.process.kill()
        self.process.communicate()  # closes the pipes

    def stop(self):
        """By SIGTERM; its exit status and what it has said."""
        self.process.terminate()
        said = "".join(self.process.communicate(timeout=PATIENCE_SECONDS))
        return self.process.returncode, said

    def close(self):
        if self.process.poll() is None:
            self.kill()


class Nbdkit:
    """An nbdkit in the foreground. `uri` is for clients."""

    def __init__(self, folder, name, arguments, tcp=False):
        self.log = folder.file(name + ".log")
        if tcp:
            port = free_port()
            self.where = (socket.AF_INET, ("127.0.0.1", port))
            arguments = ["-i", "127.0.0.1", "-p", str(port)] + arguments
            self.uri = "nbd://127.0.0.1:%d" % port
        else:
            path = folder.file(name + ".sock")
            self.where = (socket.AF_UNIX, path)
            arguments = ["-U", path] + arguments
            self.uri = "nbd+unix:///?socket=" + path
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(ENDS_WITH_US + ["nbdkit", "-f"] + arguments,
                                            stdout=log, stderr=log)
        while not self.serves():
            try:
                self.process.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError("nbdkit did not start: " + self.said())

    def serves(self):
        """It listens before its plugin is ready, and greets its clients after that."""
        try:
            with socket.socket(self.where[0]) as client:
                client.settimeout(PATIENCE_SECONDS)
                client.connect(self.where[1])
                return client.recv(8) == b"NBDMAGIC"
        except OSError:
            return False

    def said(self):
        with open(self.log) as log:
            return log.read()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def lacking(*programs):
    """Why not: the packages that these programs are of; None where all are here."""
    packages = {"nbdkit": "nbdkit", "nbdcopy": "libnbd-bin", "nbdinfo": "libnbd-bin",
                "nbdfuse": "libnbd-bin", "fio": "fio", "qemu-img": "qemu-utils",
                "qemu-io": "qemu-utils"}
    missing = sorted({packages[name] for name in programs if shutil.which(name) is None})
    return "not installed here: " + ", ".join(missing) if missing else None
