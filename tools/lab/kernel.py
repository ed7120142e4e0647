"""The machine's kernel: Debian's, unpacked for a direct start, and siw, which Debian leaves out."""
import lzma
import os
import shutil
import subprocess
import tarfile

_XZ = b"\xfd7zXZ\0"
_ELF = b"\x7fELF"

SIW = "drivers/infiniband/sw/siw"


def extract_vmlinux(image):
    """The ELF kernel inside of a compressed one. QEMU starts it as it is, and an emulated
    processor would take seconds to decompress it."""
    start = image.find(_XZ)
    while start >= 0:
        try:
            kernel = lzma.LZMADecompressor().decompress(image[start:])
            if kernel.startswith(_ELF):
                return kernel
        except lzma.LZMAError:
            pass  # these bytes were not the start of a stream
        start = image.find(_XZ, start + 1)
    raise ValueError("no kernel compressed with xz in this image")


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
