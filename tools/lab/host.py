"""What the host must offer before a machine of the lab can be built or started."""
import os
import pathlib
import shutil

# Exit statuses of the lab's own, next to those of the command that ran inside.
USAGE = 2
CANNOT_RUN_HERE = 77
TIMED_OUT = 124
MACHINE_FAILED = 125

QEMU = "qemu-system-x86_64"


class CannotRun(Exception):
    """This host can't run the lab; the text says why, for a person."""


class MachineFailed(Exception):
    """A machine did not start, or ended by itself."""


def lab_folder():
    """Where images are kept between runs: outside of the source tree."""
    chosen = os.environ.get("WEFT_LAB_DIR")
    if chosen:
        return pathlib.Path(chosen).resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache).resolve() / "weft" / "lab"


def read_os_release(text):
    """The settings of an os-release file, as a dictionary."""
    lines = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip().strip('"') for name, value in lines}


def unsupported(release, architecture):
    """Why a host with this os-release can't build the image, or None."""
    if architecture != "x86_64":
        return "the lab's kernel and machine are x86-64 only, this host is " + architecture
    if release.get("ID") == "debian" and release.get("VERSION_ID") == "12":
        return None
    return ("the lab's image is made of Debian 12's packages (kernel, its headers and its source), "
            "and so far only there; this host is " + release.get("PRETTY_NAME", "unknown"))


def check_system():
    """Raises CannotRun where the lab isn't made for this system, before anything is installed."""
    with open("/etc/os-release") as file:
        reason = unsupported(read_os_release(file.read()), os.uname().machine)
    if reason:
        raise CannotRun(reason)


def check():
    """Raises CannotRun where the lab can't work, before anything slow is tried."""
    check_system()
    if not shutil.which(QEMU):
        raise CannotRun("%s is not installed (apt-get install qemu-system-x86)" % QEMU)
