#!/usr/bin/env python3
"""Virtual machines with RDMA devices; ./dev lab --help and docs/lab.md tell more."""
import argparse
import os
import pathlib
import resource
import signal
import sys

import host
import image
import pair_command
import raftkv_command
import run

DEVICES = ("rxe", "siw")
# Of one machine, each on a card of its own: two are several.
MOST_DEVICES = 4
# Each has a processor of the emulator's at least.
MOST_NODES = 4
# A forgotten machine would use a processor for ever.
DEFAULT_TIMEOUT_SECONDS = 600
DEFAULT_MEMORY_MIB = 1024
# Four processes for each device, each with its pools, and all of it registered in the kernel.
PERF_MEMORY_MIB = 3072
# Many short rounds: where an emulated processor has to wait for a real one, a whole leg is lost.
PERF_OPTIONS = ["--quick", "--repeat=9", "--seconds=0.1"]
# A patient run over two devices; a quick one takes half a minute, more where others work.
PERF_TIMEOUT_SECONDS = 1800

USAGE = """./dev lab [OPTION]... -- COMMAND [ARGUMENT]...

Runs COMMAND in a virtual machine with software RDMA devices and ends with its status. One word is a
line for the shell. The machine sees this host's files; what it writes is forgotten, except in
$WEFT_LAB_SHARED. Inside: $WEFT_LAB_IP, $WEFT_LAB_IP6.

  ./dev lab --device rxe -- ibv_devinfo
  ./dev lab --device rxe,siw -- 'rdma link; ip -brief address'
  ./dev lab --device rxe,rxe -- 'weft devices'
  ./dev lab --device none --kernel linux-image-6.12.deb -- 'uname -r'

Status: COMMAND's; 77 this host can't run the lab; 124 it took too long; 125 the machine failed."""

PERF_USAGE = """./dev lab perf [--device rxe|siw|rxe,siw] [-- OPTION...]

Measures raw libfabric and Weft in turns, over Soft-RoCE and Soft-iWARP in one machine. All of it is
emulated: only ratios come out. OPTIONs are those of ./dev perf; --quick --repeat=9 --seconds=0.1 if there are none."""


def say(text):
    print("lab: " + text, file=sys.stderr, flush=True)


def parse_devices(text):
    devices = text.split(",")
    if text == "none" or (set(devices) <= set(DEVICES) and len(devices) <= MOST_DEVICES):
        return devices
    raise argparse.ArgumentTypeError("'%s': rxe, siw, rxe,siw, rxe,rxe, ... or none" % text)


def parse_memlock(text):
    if text == "unlimited":
        return resource.RLIM_INFINITY
    if text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError("'%s': a number of bytes, or unlimited" % text)


def parse_files(text):
    if all(text.split(",")):
        return [pathlib.Path(name) for name in text.split(",")]
    raise argparse.ArgumentTypeError("'%s': files, with commas between" % text)


def parse_nodes(text):
    if text in [str(nodes) for nodes in range(1, MOST_NODES + 1)]:
        return int(text)
    raise argparse.ArgumentTypeError("'%s': 1 to %d NUMA nodes" % (text, MOST_NODES))


def parse_run(arguments):
    parser = argparse.ArgumentParser(prog="./dev lab", usage=USAGE)
    parser.add_argument("--device", type=parse_devices, default=["rxe"], dest="devices",
                        help="rxe (Soft-RoCE, the default), siw (Soft-iWARP), up to four "
                        "with commas, as rxe,siw or rxe,rxe, or none")
    parser.add_argument("--mtu", type=int, help="of the cards, in bytes")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT_SECONDS,
                        help="seconds that COMMAND may take; %(default)s")
    parser.add_argument("--memlock", type=parse_memlock, default=resource.RLIM_INFINITY,
                        help="bytes that COMMAND may lock in memory; unlimited")
    parser.add_argument("--memory", type=int, default=DEFAULT_MEMORY_MIB, dest="memory_mib",
                        help="of the machine, in MiB; %(default)s")
    parser.add_argument("--numa", type=parse_nodes, default=1, dest="numa_nodes", metavar="NODES",
                        help="NUMA nodes of the machine, up to four; %(default)s")
    parser.add_argument("--shared", help="a folder that the machine may write")
    parser.add_argument("--kernel", type=parse_files, default=[], dest="kernel_debs",
                        metavar="DEB[,DEB...]",
                        help="another kernel than Debian 12's: its package's files, downloaded")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    return parser.parse_args(arguments)


def parse_perf(arguments):
    parser = argparse.ArgumentParser(prog="./dev lab perf", usage=PERF_USAGE)
    parser.add_argument("--device", type=parse_devices, default=list(DEVICES), dest="devices")
    parser.add_argument("--program", default="bazel-bin/bench/weft_perf", help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", metavar="OPTION")
    options = parser.parse_args(arguments)
    if "none" in options.devices:
        parser.error("without a device there is nothing to measure")
    if len(set(options.devices)) < len(options.devices):
        parser.error("each device is measured once")
    return options


def perf_words(options):
    """weft_perf, as it runs in the machine."""
    return [options.program, "--paths=" + ",".join(options.devices),
            *(options.options or PERF_OPTIONS)]


def main_run(arguments, folder):
    options = vars(parse_run(arguments))
    options["kernel_debs"] = [pathlib.Path(folder, name) for name in options["kernel_debs"]]
    return run.run(options.pop("command"), folder=folder, say=say, **options)


def main_check(arguments, folder):
    """./dev asks before it installs anything."""
    host.check_system()
    return 0


def main_image(arguments, folder):
    """Builds the image, so that nothing that comes later waits for it."""
    host.check()
    print(image.ensure(say))
    return 0


def main_pair(arguments, folder):
    return pair_command.main(arguments, say)


def main_raftkv(arguments, folder):
    return raftkv_command.main(arguments, say)


def main_perf(arguments, folder):
    options = parse_perf(arguments)
    return run.run(perf_words(options), devices=options.devices, shared=None,
                   timeout=PERF_TIMEOUT_SECONDS, memlock=resource.RLIM_INFINITY, mtu=None,
                   memory_mib=PERF_MEMORY_MIB, folder=folder, say=say)


COMMANDS = {"check": main_check, "image": main_image, "pair": main_pair, "perf": main_perf,
            "raftkv": main_raftkv}


def end_on(number, _):
    """Leaves through every `with`, so that machines and folders go as well."""
    raise SystemExit(128 + number)


def end_on_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_on)


def main():
    end_on_signals()
    folder = os.environ.get("WEFT_LAB_CALLER") or os.getcwd()
    try:
        command = COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
        return command(sys.argv[2:], folder) if command else main_run(sys.argv[1:], folder)
    except host.CannotRun as error:
        say("cannot run here: %s" % error)
        return host.CANNOT_RUN_HERE
    except host.MachineFailed as error:
        say(str(error))
        return host.MACHINE_FAILED


if __name__ == "__main__":
    sys.exit(main())
