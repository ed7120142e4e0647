"""The host's end of guest/agent.py: starts commands in a machine and hears of them."""
import base64
import json
import resource
import signal
import threading
import time

_PERIOD = 3600.0  # a wait without an end is woken so often; signals end it at once


class Process:
    """A command in a machine.

    Threads: any. Output arrives on the link's thread, `on_output(stream, data)`.
    """

    def __init__(self, link, number, on_output):
        self._link = link
        self.number = number
        self.on_output = on_output
        self.status = None  # once it has ended, or -1 if its machine has

    def running(self):
        return self.status is None

    def wait(self, seconds=None):
        """Its status: 128 + N if ended by signal N, -1 if its machine ended; None: still running."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._link.wait_until(lambda: self.status is not None, deadline)
        return self.status

    def kill(self, number=signal.SIGKILL):
        """Sends a signal to it and all that it started."""
        self._link.send(do="signal", process=self.number, signal=int(number))


class AgentLink:
    """Threads: any; one thread of its own reads."""

    def __init__(self, socket):
        self._socket = socket
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._processes = {}
        self._events = set()
        self._closed = False
        self._next_process = 1
        self._sending = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, argv, *, env, folder="/", memlock=resource.RLIM_INFINITY, on_output=None):
        """Starts a command; memlock in bytes. What it lacks (no such file) it says as a shell does."""
        with self._changed:
            process = Process(self, self._next_process, on_output or (lambda stream, data: None))
            self._next_process += 1
            if self._closed:
                process.status = -1
            self._processes[process.number] = process
        self.send(do="start", process=process.number, argv=list(argv), env=env, folder=folder,
                  memlock=None if memlock == resource.RLIM_INFINITY else memlock)
        return process

    def send(self, **what):
        with self._sending:
            try:
                self._socket.sendall(json.dumps(what).encode() + b"\n")
            except OSError:
                pass  # the machine has ended; the reader tells everyone

    def wait_for(self, event, deadline):
        """Whether the agent said so before the deadline."""
        self.wait_until(lambda: event in self._events, deadline)
        return event in self._events

    def wait_until(self, condition, deadline=None):
        """Until condition(), the machine's end, or the deadline (of time.monotonic())."""
        with self._changed:
            while not condition() and not self._closed:
                left = _PERIOD if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def close(self):
        self._socket.close()
        if self._reader is not threading.current_thread():
            self._reader.join(1)

    def _read(self):
        try:
            for line in self._socket.makefile("rb"):
                self._on_event(**json.loads(line))
        except (OSError, ValueError):
            pass  # ended in the middle of a line
        with self._changed:
            self._closed = True
            for process in self._processes.values():
                if process.status is None:
                    process.status = -1
            self._changed.notify_all()

    def _on_event(self, event, process=None, stream=None, data=None, status=None):
        if event == "output":
            self._processes[process].on_output(stream, base64.b64decode(data))
            return
        with self._changed:
            if event == "exit":
                self._processes.pop(process).status = status
            else:
                self._events.add(event)
            self._changed.notify_all()
