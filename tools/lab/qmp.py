"""QEMU's monitor, as much of it as the lab needs."""
import json

from host import MachineFailed

# An answer takes milliseconds; QEMU that is stopped gives none.
_ANSWER_SECONDS = 20


class Qmp:
    """Threads: one at a time."""

    def __init__(self, socket):
        socket.settimeout(_ANSWER_SECONDS)
        self._socket = socket
        self._lines = socket.makefile("rb")
        self._greeted = False

    def execute(self, command, **arguments):
        """Runs a command and returns what it answers. Raises MachineFailed."""
        try:
            if not self._greeted:
                self._read()
                self._greeted = True
                self._ask("qmp_capabilities", {})
            return self._ask(command, arguments)
        except OSError as error:
            raise MachineFailed("no answer from QEMU's monitor: %s" % error) from error

    def _ask(self, command, arguments):
        question = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(question).encode() + b"\n")
        while True:
            answer = self._read()
            if "error" in answer:
                raise MachineFailed("%s: %s" % (command, answer["error"].get("desc")))
            if "return" in answer:
                return answer["return"]  # events may come before it

    def _read(self):
        line = self._lines.readline()
        if not line:
            raise MachineFailed("QEMU has ended")
        return json.loads(line)

    def close(self):
        self._lines.close()
        self._socket.close()
