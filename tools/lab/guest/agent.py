"""Runs commands in a machine of the lab on behalf of its host.

Both sides send lines of JSON over one virtio-serial port. From the host:
  {"do": "configure", "shared": PATH}       the shared folder's path, the same as outside
  {"do": "start", "process": N, "argv": [...], "env": {...}, "folder": PATH, "memlock": BYTES}
  {"do": "signal", "process": N, "signal": S}     to the process and all that it started
  {"do": "leave"}                                 answer once everything written is on the host
To the host:
  {"event": "ready"} {"event": "left"}
  {"event": "output", "process": N, "stream": 1 or 2, "data": BASE64}
  {"event": "exit", "process": N, "status": S}    128 + signal where one ended it
"""
import base64
import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys

PORT_NAME = "weft.lab"
READ_BYTES = 64 << 10
# A process that inherited a command's output must not keep the command from ending: this long,
# after the command is gone, what is still in the pipes may take.
DRAIN_SECONDS = 1.0

_PR_CAPBSET_DROP = 24
_CAP_IPC_LOCK = 14


def find_port(name):
    folder = "/sys/class/virtio-ports"
    for port in os.listdir(folder):
        with open(os.path.join(folder, port, "name")) as file:
            if file.read().strip() == name:
                return "/dev/" + port
    raise FileNotFoundError("no virtio port " + name)


def limit_memlock(limit):
    """Root may lock any amount of memory; without this right the limit counts for it, too."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_IPC_LOCK, 0, 0, 0)


def raise_limits():
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def exit_status(code):
    return 128 - code if code < 0 else code


class Agent:
    def __init__(self, port):
        self.port = port
        self.received = b""
        self.selector = selectors.DefaultSelector()
        self.processes = {}  # number -> Popen, until its exit is told
        self.open_streams = {}  # number -> how many of its outputs are still open
        self.left = False

    def send(self, **event):
        line = json.dumps(event).encode() + b"\n"
        while line:
            line = line[os.write(self.port, line):]

    def start(self, process, argv, env, folder, memlock):
        prepare = None if memlock is None else lambda: limit_memlock(memlock)
        folder = folder if os.path.isdir(folder) else "/"
        try:
            child = subprocess.Popen(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     preexec_fn=prepare, start_new_session=True)
        except OSError as error:
            text = "weft lab: %s: %s\n" % (argv[0], error.strerror)
            self.output(process, 2, text.encode())
            self.send(event="exit", process=process,
                      status=127 if isinstance(error, FileNotFoundError) else 126)
            return
        self.processes[process] = child
        self.open_streams[process] = 2
        for stream, pipe in ((1, child.stdout), (2, child.stderr)):
            self.selector.register(pipe, selectors.EVENT_READ, (process, stream))

    def output(self, process, stream, data):
        self.send(event="output", process=process, stream=stream,
                  data=base64.b64encode(data).decode())

    def on_output(self, pipe, process, stream):
        data = os.read(pipe.fileno(), READ_BYTES)
        if data:
            self.output(process, stream, data)
        else:
            self.selector.unregister(pipe)
            pipe.close()
            self.open_streams[process] -= 1

    def on_port(self):
        data = os.read(self.port, READ_BYTES)
        if not data:
            sys.exit("the host has left")
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            self.obey(**json.loads(line))

    def obey(self, do, **arguments):
        if do == "start":
            self.start(**arguments)
        elif do == "signal":
            self.signal(**arguments)
        elif do == "configure":
            self.configure(**arguments)
        elif do == "leave":
            os.sync()
            self.send(event="left")

    def signal(self, process, signal):
        if process in self.processes:
            try:
                os.killpg(self.processes[process].pid, signal)
            except ProcessLookupError:
                pass  # it ended meanwhile

    def configure(self, shared):
        os.makedirs(shared, exist_ok=True)
        subprocess.run(["mount", "--bind", "/run/lab/shared", shared], check=True)
        self.send(event="ready")

    def report_exits(self):
        for process, child in list(self.processes.items()):
            if child.poll() is None:
                continue
            self.drain(process)
            del self.processes[process]
            self.send(event="exit", process=process, status=exit_status(child.returncode))

    def drain(self, process):
        """Sends what a process that has ended wrote, also when its heirs hold the pipes open."""
        with selectors.DefaultSelector() as mine:
            for key in list(self.selector.get_map().values()):
                if key.data and key.data[0] == process:
                    mine.register(key.fileobj, selectors.EVENT_READ, key.data)
            while self.open_streams[process] and (ready := mine.select(DRAIN_SECONDS)):
                for key, _ in ready:
                    self.on_output(key.fileobj, *key.data)
                    if key.fileobj.closed:
                        mine.unregister(key.fileobj)
            for key in list(mine.get_map().values()):
                self.selector.unregister(key.fileobj)
                key.fileobj.close()
        del self.open_streams[process]

    def run(self):
        woken, waker = os.pipe()
        for end in (woken, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.port, selectors.EVENT_READ)
        self.selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fd == self.port:
                    self.on_port()
                elif key.fd == woken:
                    os.read(woken, READ_BYTES)
                elif not key.fileobj.closed:
                    self.on_output(key.fileobj, *key.data)
            self.report_exits()


def main():
    raise_limits()
    port = os.open(find_port(PORT_NAME), os.O_RDWR)
    agent = Agent(port)
    agent.send(event="hello")
    agent.run()


if __name__ == "__main__":
    main()
