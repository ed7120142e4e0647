"""What `weft devices` says of a machine's device and of the ways to break it: the script's lines as
cases."""
from gtest_lines import FAILED, PASSED, Case
from pair import Transcript

# Emulated, a dozen starts of a program, each of some seconds; more on a busy machine.
_SECONDS = 400


def play(machine, script, program, env):
    """Yields a case for each thing shown. The machine's device is gone afterwards."""
    said = Transcript()
    command = machine.agent.start([script, program], env=env, on_output=said.sink("devices"))
    status = command.wait(_SECONDS)
    if status is None:
        command.kill()
    lines = [line for _, line in said.of("devices")]
    for line in lines:
        if line.startswith("ok: "):
            yield Case("Devices." + line[len("ok: "):], PASSED, "")
    if status != 0:
        how = "took too long" if status is None else "status %d" % status
        yield Case("Devices.script", FAILED, "\n".join(lines + [how]))
