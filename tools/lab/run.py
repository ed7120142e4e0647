"""./dev lab -- COMMAND: one command in one machine."""
import os
import shutil
import sys
import tempfile

import accelerator
import host
import image
from machine import Machine, Options

# Set by the machine for itself; the host's would be wrong there.
_NOT_PASSED = {"PWD", "OLDPWD", "SHLVL", "_", "WEFT_LAB_DIR"}
TOOLS = "/run/lab/tools"


def environment(outside, options):
    """A command's environment: the caller's, and what it needs to know about its machine."""
    env = {name: value for name, value in outside.items() if name not in _NOT_PASSED}
    env["PATH"] = env.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin:" + TOOLS + "/bin"
    libraries = env.get("LD_LIBRARY_PATH")
    env["LD_LIBRARY_PATH"] = (libraries + ":" if libraries else "") + TOOLS + "/lib"
    number = options.number
    env.update(WEFT_LAB_DEVICES=",".join(options.devices), WEFT_LAB_MACHINE=str(number),
               WEFT_LAB_SHARED=options.shared, WEFT_LAB_IP=address(number),
               WEFT_LAB_IP6=address6(number))
    for card, device in enumerate(options.devices):
        env.setdefault("WEFT_LAB_IP_" + device.upper(), address(number, card))
        env["WEFT_LAB_IP_CARD%d" % card] = address(number, card)
    return env


def address(machine, card=0):
    return "192.168.%d.%d" % (77 + card, machine)


def address6(machine, card=0):
    return "fd%d::%d" % (77 + card, machine)


def command_words(words):
    """One word is a line for the shell, several are a program and its arguments."""
    return ["bash", "-c", words[0]] if len(words) == 1 else list(words)


def copy_out(stream, data):
    """Output as it comes, to where it would have gone."""
    out = sys.stdout if stream == 1 else sys.stderr
    out.buffer.write(data)
    out.buffer.flush()


class Shared:
    """The folder that machines may write: the caller's, or one for this run."""

    def __init__(self, asked):
        self._own = asked is None
        self.path = tempfile.mkdtemp(prefix="weft-lab-") if self._own else os.path.abspath(asked)
        os.makedirs(self.path, exist_ok=True)

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        if self._own:
            shutil.rmtree(self.path, ignore_errors=True)


def run(words, *, devices, shared, timeout, memlock, mtu, memory_mib, folder, say,
        kernel_debs=(), numa_nodes=1):
    """Runs the command; its status, or one of host.py's."""
    host.check()
    made = image.ensure(say, kernel_debs)
    image.check_devices(made, devices)
    chosen = accelerator.choose(made, say)
    with Shared(shared) as shared_path:
        options = Options(made, shared_path, devices=devices, accelerator=chosen, mtu=mtu,
                          memory_mib=memory_mib, numa_nodes=numa_nodes)
        with Machine(options) as machine:
            machine.wait_ready()
            command = machine.agent.start(
                command_words(words), env=environment(os.environ, options), folder=folder,
                memlock=memlock, on_output=copy_out)
            status = command.wait(timeout)
            if status is None:
                say("still running after %g s: ended" % timeout)
                return host.TIMED_OUT
            if status < 0:
                raise host.MachineFailed("the machine ended while the command ran"
                                         + machine.console_tail())
            machine.leave()
            return status
