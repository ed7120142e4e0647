"""Processes of weft_rocksd and RocksDB's programs, for the tests and for ./dev rocksdb.

They end with the process that has started them, and their folder goes with it, whatever ends it.
"""
import os
import re
import select
import shutil
import subprocess
import tempfile

# How long a server may take to come up, or to leave, and a program to end: a busy machine.
PATIENCE_SECONDS = 300

# Before a command: it ends with this process, also when nothing here can run any more. (And with the
# thread that has started it: so that is the main one.)
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


class Folder:
    """A temporary folder. A shell removes it when the pipe from here is closed, by close() or by any
    death of this process."""

    def __init__(self, parent=None):
        self.path = tempfile.mkdtemp(prefix="weft-rocks-", dir=parent or "/tmp")
        self.remover = subprocess.Popen(["sh", "-c", 'read -r _; rm -rf -- "$1"', "sh", self.path],
                                        stdin=subprocess.PIPE, start_new_session=True)

    def file(self, name):
        return os.path.join(self.path, name)

    def close(self):
        self.remover.stdin.close()
        self.remover.wait()


class Rocksd:
    """A weft_rocksd, or grpc_rocksd, that can be killed and started again at its address."""

    def __init__(self, program, folder, *arguments):
        os.makedirs(folder, exist_ok=True)
        self.command = [program, folder] + list(arguments)
        self.address = "127.0.0.1:0"
        self.start()

    def start(self):
        """A server that was killed has its lock on the folder until its last system call has ended."""
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
        raise RuntimeError("%s did not start: %s" % (os.path.basename(self.command[0]), said))

    def cpu_us(self):
        """Processor time that its threads have used: of those that run, in nanoseconds' steps. None: this kernel
        does not tell. (Without CONFIG_SCHED_INFO there is no such file, or all is 0 in it.)"""
        tasks = "/proc/%d/task" % self.process.pid
        used = 0
        for task in os.listdir(tasks):
            try:
                with open(os.path.join(tasks, task, "schedstat")) as line:
                    used += int(line.read().split()[0])
            except OSError:
                pass  # a thread that has just ended, or no thread has the file
        return used / 1000 if used else None

    def uri(self, folder="", options="", scheme="weft"):
        return "%s://%s/%s%s" % (scheme, self.address, folder, options)

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


class Compactord:
    """A weft_compactord for the databases that a Rocksd has."""

    def __init__(self, program, uri, *arguments):
        self.process = subprocess.Popen(
            ENDS_WITH_US + [program, "--files=" + uri] + list(arguments),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            self.process.kill()
            raise RuntimeError("weft_compactord did not start: " + self.process.communicate()[1])
        self.uri = "weft-compactor://" + line.split()[-1]

    def stop(self):
        """By SIGTERM: how many compactions it has done."""
        self.process.terminate()
        said = self.process.communicate(timeout=PATIENCE_SECONDS)[0]
        return int(re.search(r"requests: (\d+) ok", said).group(1))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def preloaded(plugin):
    """The environment of a program that is to know Weft's URIs."""
    return dict(os.environ, LD_PRELOAD=os.path.abspath(plugin))


def over_grpc(folder):
    """The server and the plugin by gRPC, of the build in `folder`; and why not, or None."""
    found = [os.path.join(folder, "over_grpc", name)
             for name in ("grpc_rocksd", "libgrpc_rocksdb.so")]
    if all(os.path.exists(path) for path in found):
        return found, None
    return found, ("gRPC is not built in (--repo_env=WEFT_PEERS=1; Debian's libgrpc++-dev and "
                   "protobuf-compiler-grpc)")


def lacking(*programs):
    """Why not: the package that these programs are of; None where all are here."""
    missing = [name for name in programs if shutil.which(name) is None]
    return "not installed here: rocksdb-tools (%s)" % ", ".join(missing) if missing else None
