"""One virtual machine: QEMU's command line, its start, its end, and what can be done to it.

Everything that the machine and this process share is an inherited socket, so nothing is left in the
file system; QEMU ends with this process, however that ends.
"""
import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import time

import host
from agent_link import AgentLink
from qmp import Qmp

_PR_SET_PDEATHSIG = 1
# From QEMU's start to the agent's first word: 5 s when idle, emulated on a slow core. More only
# delays the message that something is broken.
BOOT_SECONDS = 120
_LEAVE_SECONDS = 10

_KERNEL = ("console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr apparmor=0 audit=0 "
           "tsc=reliable no_timer_check random.trust_cpu=on net.ifnames=0")

# Everything that QEMU knows but "enhanced rep movsb": its rep movsb moves a byte at a time, so that
# what a processor copies and clears fastest, the kernel's memory above all, took eight times as long.
_EMULATED_PROCESSOR = "max,-erms"

# The numbers of the nodes' buses, and of those behind them.
_FIRST_BUS = 32
_BUSES = 16


class Options:
    """What a machine is like. Constant once it has started."""

    def __init__(self, image, shared, *, number=1, devices=("rxe",), accelerator="tcg", cpus=2,
                 memory_mib=1024, mtu=None, cables=(), numa_nodes=1):
        self.image = image  # a folder made by image.py
        self.shared = str(shared)  # the folder that it may write
        self.number = number  # 1..9: the last part of its addresses
        self.devices = tuple(devices)  # one card each
        self.accelerator = accelerator
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.mtu = mtu
        self.cables = tuple(cables)  # -netdev specifications, one for each card; () for none
        # Each has a processor, an equal part of the memory, and every so many-th card.
        self.numa_nodes = numa_nodes


def mac_address(machine, card):
    return "52:54:00:77:%02x:%02x" % (card, machine)


def kernel_line(options):
    words = [_KERNEL, "weft.device=" + ",".join(options.devices), "weft.id=%d" % options.number]
    if options.mtu:
        words.append("weft.mtu=%d" % options.mtu)
    return " ".join(words)


def _accelerator(name):
    if name == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", _EMULATED_PROCESSOR]


def _processors(options):
    """Processors in turn on the nodes, each of which has an equal part of the memory."""
    nodes = options.numa_nodes
    if nodes == 1:
        return ["-smp", str(options.cpus)]
    cpus = max(options.cpus, nodes)
    words = ["-smp", "%d,sockets=%d,cores=1,threads=1" % (cpus, cpus)]
    for node in range(nodes):
        words += ["-object", "memory-backend-ram,id=memory%d,size=%dM" % (
            node, options.memory_mib // nodes),
                  "-numa", "node,nodeid=%d,memdev=memory%d" % (node, node)]
    for cpu in range(cpus):
        words += ["-numa", "cpu,node-id=%d,socket-id=%d" % (cpu % nodes, cpu)]
    return words


def _memory_mib(options):
    """The nodes' parts together."""
    return options.memory_mib // options.numa_nodes * options.numa_nodes


def _bus(node):
    return "node%d" % node


def _cards(options):
    """A card for each device; without a cable it is plugged into a hub of its own. Of several nodes
    each has a bus, by which the kernel knows its cards."""
    words = []
    nodes = options.numa_nodes
    # The kernel finds the last bus first: eth0 is to be on node 0.
    for node in reversed(range(nodes if nodes > 1 else 0)):
        words += ["-device", "pxb,id=%s,bus=pci.0,bus_nr=%d,numa_node=%d" % (
            _bus(node), _FIRST_BUS + node * _BUSES, node)]
    for card in range(len(options.devices)):
        cable = options.cables[card] if options.cables else "hubport,hubid=%d" % card
        bus = ",bus=" + _bus(card % nodes) if nodes > 1 else ""
        words += ["-netdev", "%s,id=cable%d" % (cable, card), "-device",
                  "virtio-net-pci,id=card%d,netdev=cable%d,mac=%s,romfile=%s" % (
                      card, card, mac_address(options.number, card), bus)]
    return words


def _folder(name, path, read_only):
    """QEMU's options separate by commas: a comma in a path is written twice."""
    return ["-fsdev", "local,id=%s,path=%s,security_model=none,multidevs=remap%s" % (
        name, path.replace(",", ",,"), ",readonly=on" if read_only else ""),
            "-device", "virtio-9p-pci,fsdev=%s,mount_tag=%s" % (name, name)]


def command_line(options, *, agent_fd, monitor_fd, console_fd):
    """The arguments of QEMU; the three are inherited descriptors."""
    return [
        host.QEMU, "-M", "pc,hpet=off,usb=off", *_accelerator(options.accelerator),
        "-m", str(_memory_mib(options)), *_processors(options), "-nodefaults", "-no-user-config", "-display", "none",
        "-no-reboot", "-rtc", "base=utc",
        "-kernel", str(options.image / "vmlinux"), "-initrd", str(options.image / "initramfs"),
        "-append", kernel_line(options),
        "-chardev", "file,id=console,append=on,path=/proc/self/fd/%d" % console_fd,
        "-serial", "chardev:console",
        "-chardev", "socket,id=monitor,fd=%d" % monitor_fd, "-mon", "chardev=monitor,mode=control",
        "-device", "virtio-serial-pci", "-chardev", "socket,id=agent,fd=%d" % agent_fd,
        "-device", "virtserialport,chardev=agent,name=weft.lab",
        *_folder("host", "/", read_only=True), *_folder("shared", options.shared, read_only=False),
        *_cards(options)]


def _end_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Ctrl-C reaches the whole group of the terminal: ending machines is this process's work.
    os.setpgrp()


class Machine:
    """A running machine. Threads: the main one, on whose end QEMU ends."""

    def __init__(self, options):
        self.options = options
        self._console = os.memfd_create("weft-lab-console")
        fcntl.fcntl(self._console, fcntl.F_SETFL, os.O_APPEND)  # QEMU writes there in two ways
        ours_agent, theirs_agent = socket.socketpair()
        ours_monitor, theirs_monitor = socket.socketpair()
        inherited = dict(agent_fd=theirs_agent.fileno(), monitor_fd=theirs_monitor.fileno(),
                         console_fd=self._console)
        self._qemu = subprocess.Popen(
            command_line(options, **inherited), stdin=subprocess.DEVNULL, stdout=self._console,
            stderr=self._console, pass_fds=tuple(inherited.values()), preexec_fn=_end_with_parent)
        theirs_agent.close()
        theirs_monitor.close()
        self._monitor = Qmp(ours_monitor)
        self.agent = AgentLink(ours_agent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()

    def wait_ready(self, seconds=BOOT_SECONDS):
        """Waits until commands can be started. Raises MachineFailed with the console's end."""
        deadline = time.monotonic() + seconds
        if not (self.agent.wait_for("hello", deadline) and self._configure(deadline)):
            raise host.MachineFailed("machine %d did not start%s" % (
                self.options.number, self.console_tail() or " (it said nothing)"))

    def _configure(self, deadline):
        self.agent.send(do="configure", shared=self.options.shared)
        return self.agent.wait_for("ready", deadline)

    def console_tail(self, lines=8):
        """The last words of QEMU and of the machine's kernel, for an error message."""
        size = os.fstat(self._console).st_size
        text = os.pread(self._console, 4096, max(0, size - 4096)).decode(errors="replace")
        return "".join("\n  | " + line.rstrip() for line in text.splitlines()[-lines:])

    def running(self):
        return self._qemu.poll() is None

    # --- what can happen to a machine ---------------------------------------------------------

    def cut_cable(self, card=0):
        self._monitor.execute("set_link", name="card%d" % card, up=False)

    def mend_cable(self, card=0):
        self._monitor.execute("set_link", name="card%d" % card, up=True)

    def freeze(self):
        """Its processors stand still, and it takes nothing from its cables any more."""
        self._monitor.execute("stop")

    def thaw(self):
        self._monitor.execute("cont")

    def destroy(self):
        """Ends it as a power failure does. What commands wrote to the shared folder may be lost."""
        self._qemu.kill()
        self._qemu.wait()
        self.agent.close()
        self._monitor.close()
        if self._console is not None:
            os.close(self._console)
            self._console = None

    def leave(self):
        """Ends it once what commands wrote is in the shared folder."""
        if self.running():
            self.agent.send(do="leave")
            self.agent.wait_for("left", time.monotonic() + _LEAVE_SECONDS)
        self.destroy()
