"""Debian's packages, downloaded and unpacked but never installed.

apt decides the versions, and with them the kernel that the lab runs.
"""
import os
import re
import shutil
import subprocess

from host import CannotRun

# What the machine's kernel and tools come from, next to the kernel's own packages.
TOOLS = ["busybox-static", "ibverbs-utils", "rdmacm-utils", "perftest", "libibumad3", "libpci3"]


def _lines(*command):
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            universal_newlines=True, env=dict(os.environ, LC_ALL="C"))
    return answer.stdout.splitlines() if answer.returncode == 0 else []


def depends(package):
    """The names of the packages on which `package` depends; [] if apt doesn't know it."""
    found = (re.match(r"\s*\|?Depends: (\S+)$", line) for line in _lines("apt-cache", "depends", package))
    return [match.group(1) for match in found if match]


def candidates(policy):
    """{package: version that apt would install}, read from apt-cache policy's output."""
    found, name = {}, None
    for line in policy:
        if not line.startswith(" "):
            name = line.split(":")[0]
        elif line.startswith("  Candidate: ") and "(none)" not in line:
            found[name] = line.split()[1]
    return found


def kernel_release():
    """The newest packaged kernel for this architecture, such as 6.1.0-9-amd64, or None."""
    for name in depends("linux-image-amd64"):
        if re.match(r"linux-image-\d", name):
            return name[len("linux-image-"):]
    return None


def source_package(release):
    """linux-source-6.1 for 6.1.0-9-amd64."""
    return "linux-source-" + ".".join(release.split(".")[:2])


def header_packages(release):
    """The headers of a kernel and what building a module against them takes."""
    headers = "linux-headers-" + release
    return [headers] + [name for name in depends(headers) if name.startswith("linux-")]


class Packages:
    """The packages of one image: names and versions."""

    def __init__(self, release, versions):
        self.kernel_release = release  # None where the caller has a kernel of its own
        self.versions = versions  # name -> version

    def kernel(self):
        return "linux-image-" + self.kernel_release

    def headers(self):
        return [name for name in self.versions
                if name.startswith(("linux-headers-", "linux-kbuild-", "linux-compiler-"))]

    def source(self):
        return source_package(self.kernel_release)


def _choose(with_kernel):
    release = kernel_release() if with_kernel else None
    if with_kernel and release is None:
        return None
    names = list(TOOLS)
    if with_kernel:
        names += ["linux-image-" + release, source_package(release), *header_packages(release)]
    versions = candidates(_lines("apt-cache", "policy", *names))
    return Packages(release, versions) if set(names) <= set(versions) else None


def update_lists(say):
    """apt-get update, where that is allowed; says whether it worked."""
    command = ["apt-get", "-q", "update"]
    if os.geteuid() != 0:
        if not shutil.which("sudo"):
            return False
        command = ["sudo", "-n"] + command
    say("updating apt's lists")
    return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def choose(say, with_kernel=True):
    """The packages to build an image from, as apt knows them now."""
    packages = _choose(with_kernel)
    if packages is None and update_lists(say):
        packages = _choose(with_kernel)
    if packages is None:
        raise CannotRun("apt knows no linux-image-amd64, its source or the rdma tools: are the "
                        "distribution's sources complete, and was apt-get update run?")
    return packages


def _try_download(packages, folder):
    wanted = ["%s=%s" % item for item in sorted(packages.versions.items())]
    return subprocess.run(["apt-get", "-q", "download", *wanted], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)


def download(packages, folder, say):
    """Puts the packages' files into `folder`; {name: path}."""
    folder.mkdir()
    answer = _try_download(packages, folder)
    if answer.returncode != 0 and update_lists(say):
        answer = _try_download(packages, folder)
    if answer.returncode != 0:
        last = (answer.stdout.strip().splitlines() or ["no message"])[-1]
        raise CannotRun("apt-get could not download the lab's packages: " + last)
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}


def unpack(deb, folder):
    subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
