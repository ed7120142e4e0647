"""The interop scenarios in one machine, over one path: a case for each line that the client writes."""
import re
import signal

from gtest_lines import FAILED, PASSED, Case
from pair import Transcript

_PORT = 4701
# Emulated, and beside other work: generous. Nothing waits so long unless it is broken.
_START_SECONDS = 60
_CLIENT_SECONDS = 300
_STOP_SECONDS = 30
_LAST_LINE = re.compile(r"(\d+) passed, (\d+) failed")


def cases_of(path, lines, status):
    """What the client's lines say. Without a last line that counts them all, something is missing."""
    pattern = re.compile(r"%s +(\S+) +(ok|FAILED)" % path)
    found = [match for match in map(pattern.fullmatch, lines) if match]
    text = "\n".join(lines)
    cases = [Case("Interop." + match[1], PASSED if match[2] == "ok" else FAILED,
                  "" if match[2] == "ok" else text) for match in found]
    last = _LAST_LINE.fullmatch(lines[-1]) if lines else None
    complete = last and found and int(last[1]) + int(last[2]) == len(found) and status in (0, 1)
    if not complete:
        cases.append(Case("Interop.RunsToItsEnd", FAILED, "status %s\n%s" % (status, text)))
    return cases


def play(machine, programs, env, address, path):
    """All cases. `programs`: where interop_server and interop_client are."""
    said = Transcript()
    server = machine.agent.start(
        [programs + "/interop_server", "--listen=%s:%d" % (address, _PORT)],
        env=dict(env, WEFT_PATHS=path), on_output=said.sink("server"))
    try:
        if not said.wait(lambda: any("listening on" in line for _, line in said.of("server")),
                         _START_SECONDS):
            text = "\n".join(line for _, line in said.of("server"))
            return [Case("Interop.ServerStarts", FAILED, text)]
        client = machine.agent.start(
            [programs + "/interop_client", "--server=%s:%d" % (address, _PORT), "--paths=" + path],
            env=env, on_output=said.sink("client"))
        status = client.wait(_CLIENT_SECONDS)
        if status is None:
            client.kill()
        cases = cases_of(path, [line for _, line in said.of("client")], status)
        server.kill(signal.SIGTERM)
        ended = server.wait(_STOP_SECONDS) == 0
        cases.append(Case("Interop.ServerStops", PASSED if ended else FAILED,
                          "" if ended else "\n".join(line for _, line in said.of("server"))))
        return cases
    finally:
        server.kill()
