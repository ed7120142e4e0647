"""The machine's kernel: a Debian package's, unpacked for a direct start, and siw, which Debian leaves
out."""
import lzma
import os
import shutil
import subprocess
import tarfile

import zstd

_XZ = b"\xfd7zXZ\0"
_ELF = b"\x7fELF"

SIW = "drivers/infiniband/sw/siw"

_WHERE = ("it is in linux-image-* up to Debian 13, and in linux-binary-*, linux-modules-* and "
          "linux-base-* of one version since")


def extract_vmlinux(image):
    """The ELF kernel inside of a compressed one. QEMU starts it as it is, and an emulated
    processor would take seconds to decompress it."""
    for magic, decompress in ((_XZ, _decompress_xz), (zstd.MAGIC, zstd.decompress)):
        start = image.find(magic)
        while start >= 0:
            kernel = decompress(image[start:])
            if kernel.startswith(_ELF):
                return kernel
            start = image.find(magic, start + 1)
    raise ValueError("no kernel compressed with xz or zstd in this image")


def _decompress_xz(content):
    try:
        return lzma.LZMADecompressor().decompress(content)
    except lzma.LZMAError:
        return b""  # these bytes were not the start of a stream


class Tree:
    """Where a kernel's parts are below the folder that its packages were unpacked into."""

    def __init__(self, root):
        releases = sorted({path.name for path in root.glob("lib/modules/*")}
                          | {path.name for path in root.glob("usr/lib/modules/*")})
        if len(releases) > 1:
            raise ValueError("these packages have several kernels: " + ", ".join(releases))
        if not releases:
            raise ValueError("these packages have no kernel; " + _WHERE)
        self.release = releases[0]
        folders = [root / "lib/modules" / self.release, root / "usr/lib/modules" / self.release]
        self.image = _first([root / "boot" / ("vmlinuz-" + self.release)]
                            + [folder / "vmlinuz" for folder in folders], "no kernel (vmlinuz)")
        self.builtin = _first([folder / "modules.builtin" for folder in folders],
                              "no list of what is built in (modules.builtin)")
        self.modules = _first([folder / "kernel" for folder in folders], "no modules")


def _first(paths, otherwise):
    for path in paths:
        if path.exists():
            return path
    raise ValueError("these packages have %s; %s" % (otherwise, _WHERE))


def _extract_siw(tarball, folder):
    """Copies siw's source from the kernel's source archive, reading no further than needed."""
    with subprocess.Popen(["xz", "-dc", tarball], stdout=subprocess.PIPE) as xz:
        with tarfile.open(fileobj=xz.stdout, mode="r|") as source:
            for member in source:
                if member.isfile() and os.path.dirname(member.name).endswith("/" + SIW):
                    path = os.path.join(folder, os.path.basename(member.name))
                    with open(path, "wb") as file:
                        shutil.copyfileobj(source.extractfile(member), file)
                elif os.path.exists(os.path.join(folder, "Makefile")) and SIW not in member.name:
                    break
        xz.kill()
    if not os.path.exists(os.path.join(folder, "Makefile")):
        raise ValueError("%s has no %s" % (tarball, SIW))


def build_siw(root, release, tarball, folder):
    """Compiles siw.ko against the headers unpacked below `root`; returns its path."""
    os.makedirs(folder)
    _extract_siw(tarball, folder)
    sources = os.path.join(root, "usr/src")
    headers = os.path.join(sources, "linux-headers-" + release)
    makefile = os.path.join(headers, "Makefile")
    with open(makefile) as file:
        text = file.read()
    with open(makefile, "w") as file:  # it expects to be installed
        file.write(text.replace("include /usr/src/", "include %s/" % sources))
    answer = subprocess.run(
        ["make", "-s", "-j2", "-C", headers, "M=" + str(folder), "CONFIG_RDMA_SIW=m", "modules"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True)
    module = os.path.join(folder, "siw.ko")
    if answer.returncode != 0 or not os.path.exists(module):
        raise ValueError("siw did not compile:\n" + answer.stdout)
    return module
