"""The key-value example in one machine, over one path: server and client, every value compared."""
import re
import signal

from gtest_lines import FAILED, PASSED, Case
from pair import Transcript

_RECORDS = 500
_PORT = 4700
# Emulated, and beside other work: generous. Nothing waits so long unless it is broken.
_START_SECONDS = 60
_STEP_SECONDS = 120
_STOP_SECONDS = 30


def steps(path, text):
    """Name, arguments of kv_client, and a pattern that its output must contain."""
    return [
        ("ChoosesThePath", ["explain"], r"(?m)^%s\b.* chosen " % path),
        ("LoadsEveryRecord", ["load", text], "loaded %d of %d" % (_RECORDS, _RECORDS)),
        ("FindsEveryValueRight", ["verify", text], "all %d values are right" % _RECORDS),
        ("FindsEveryValueRightByItself", ["verify", text, "--get=one-sided"],
         "one-sided: %d records read" % _RECORDS),
        ("SeesALinearizableStore", ["check", "--seconds=1", "--get=one-sided",
                                    "--outstanding=8"], "linearizable: "),
        ("AnswersConcurrentCalls", ["ycsb", "--workload=A,C", "--seconds=2", "--records=1000",
                                    "--outstanding=16"], "0 errors"),
    ]


def play(machine, programs, env, address, path):
    """Yields a case for each step. `programs`: where kv_server and kv_client are."""
    text = machine.options.shared + "/records"
    with open(text, "w") as file:
        file.writelines("key %d\tvalue %d\n" % (n, n) for n in range(_RECORDS))
    env = dict(env, WEFT_PATHS=path)
    said = Transcript()
    server = machine.agent.start([programs + "/kv_server", "--listen=%s:%d" % (address, _PORT),
                                  # The memory of a small machine, all of it pinned for each lease.
                                  "--index_mib=8"],
                                 env=env, on_output=said.sink("server"))
    try:
        started = said.wait(lambda: any("listening on" in line for _, line in said.of("server")),
                            _START_SECONDS)
        yield _case("ServerStarts", started, said, "server")
        if started:
            for name, arguments, expected in steps(path, text):
                yield _client(machine, programs, env, address, name, arguments, expected)
            server.kill(signal.SIGTERM)
            yield _case("ServerStops", server.wait(_STOP_SECONDS) == 0, said, "server")
    finally:
        server.kill()


def _client(machine, programs, env, address, name, arguments, expected):
    words = [programs + "/kv_client", "--server=%s:%d" % (address, _PORT),
             "--timeout_ms=%d" % (_STEP_SECONDS * 500), *arguments]
    status, said = _run(machine, words, env)
    good = status == 0 and re.search(expected, _text(said))
    if not good:
        said.add("client", "status %s; expected to read: %s" % (status, expected))
    return _case(name, good, said, "client")


def _run(machine, words, env):
    """Its status, None if it took too long; and what it said."""
    said = Transcript()
    client = machine.agent.start(words, env=env, on_output=said.sink("client"))
    status = client.wait(_STEP_SECONDS)
    if status is None:
        client.kill()
    return status, said


def _text(said):
    return "\n".join(line for _, line in said.of("client"))


def _case(name, good, said, who):
    text = "" if good else "\n".join(line for _, line in said.of(who))
    return Case("Kv." + name, PASSED if good else FAILED, text)
