"""Builds the image of the lab's machines, once for each set of package versions and scripts.

An image is a folder: vmlinux, initramfs and the name of its kernel. It is built beside its final
place and renamed when it is complete, so an interrupted build leaves nothing that could be taken
for an image; a lock keeps two builders apart.
"""
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import debian
import initramfs
import kernel
import modules
from host import CannotRun, lab_folder

_SOURCES = pathlib.Path(__file__).resolve().parent
# What decides about an image's contents, next to the packages.
_INGREDIENTS = ["debian.py", "image.py", "initramfs.py", "kernel.py", "modules.py", "guest/init",
                "guest/start", "guest/agent.py"]
# Each is about 60 MB. The present one and the one before, for a branch switched to and fro.
_KEPT_IMAGES = 2


def key(versions, ingredients):
    """The name of the image that these package versions and source bytes make."""
    digest = hashlib.sha256()
    for name, version in sorted(versions.items()):
        digest.update(("%s=%s\n" % (name, version)).encode())
    for content in ingredients:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _lock(folder, say):
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another builder")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _strip(path):
    subprocess.run(["strip", "--strip-debug", path], check=True)


def _builtin(folder):
    text = (folder / "modules.builtin").read_text()
    return [modules.module_name(os.path.basename(line)) for line in text.splitlines()]


def _copy_modules(paths, builtin, folder):
    folder.mkdir()
    for group, names in modules.plan(paths, builtin).items():
        (folder / group).write_text("".join(name + "\n" for name in names))
        for name in names:
            target = folder / (name + ".ko")
            target.write_bytes(modules.read(paths[name]))
            _strip(target)


def _copy_tools(root, folder):
    """Programs that the host may lack, with their libraries."""
    shutil.copytree(root / "usr/bin", folder / "bin", symlinks=True)
    (folder / "lib").mkdir()
    for path in (root / "usr/lib/x86_64-linux-gnu").glob("lib*.so*"):
        shutil.copy2(path, folder / "lib", follow_symlinks=False)


def _first_root(work, packages, siw):
    """The tree of the machine's first root; guest/init is what runs there."""
    tree = work / "tree"
    for name in ["bin", "proc", "sys", "dev", "host", "writes", "root"]:
        (tree / name).mkdir(parents=True)
    shutil.copy2(work / "tools/bin/busybox", tree / "bin/busybox")
    shutil.copytree(_SOURCES / "guest", tree / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(_SOURCES / "guest/init", tree / "init")
    (tree / "init").chmod(0o755)
    packaged = work / "kernel/lib/modules" / packages.kernel_release
    _copy_modules(modules.index([packaged, os.path.dirname(siw)]), _builtin(packaged),
                  tree / "modules")
    _copy_tools(work / "tools", tree / "tools")
    return tree


def _build(packages, work, target, say):
    say("downloading %d packages (kernel %s)" % (len(packages.versions), packages.kernel_release))
    debs = debian.download(packages, work / "debs", say)
    debian.unpack(debs[packages.kernel()], work / "kernel")
    for name in packages.headers() + [packages.source()]:
        debian.unpack(debs[name], work / "headers")
    for name in debian.TOOLS:
        debian.unpack(debs[name], work / "tools")
    say("compiling siw")
    tarball = work / "headers/usr/src" / (packages.source() + ".tar.xz")
    siw = kernel.build_siw(work / "headers", packages.kernel_release, tarball, work / "siw")
    target.mkdir()
    image = (work / "kernel/boot" / ("vmlinuz-" + packages.kernel_release)).read_bytes()
    (target / "vmlinux").write_bytes(kernel.extract_vmlinux(image))
    tree = _first_root(work, packages, siw)
    (target / "initramfs").write_bytes(initramfs.archive(tree))
    (target / "kernel_release").write_text(packages.kernel_release + "\n")


def _remove_old(folder, keep):
    images = [path for path in folder.glob("image-*") if path != keep]
    for path in sorted(images, key=os.path.getmtime, reverse=True)[_KEPT_IMAGES - 1:]:
        shutil.rmtree(path, ignore_errors=True)


def ensure(say):
    """The folder of the image for the packages and scripts of now; builds it if there is none."""
    packages = debian.choose(say)
    ingredients = [(_SOURCES / name).read_bytes() for name in _INGREDIENTS]
    folder = lab_folder()
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / ("image-" + key(packages.versions, ingredients))
    if image.is_dir():
        return image
    with _lock(folder, say):
        if image.is_dir():
            return image
        started = time.monotonic()
        # Inside of the folder: the same file system, so that renaming is one step.
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
            work = pathlib.Path(work)
            try:
                _build(packages, work, work / "image", say)
            except (ValueError, OSError, KeyError, subprocess.CalledProcessError) as error:
                raise CannotRun("building the lab's image failed: %s" % error) from error
            (work / "image").rename(image)
        _remove_old(folder, image)
        say("built %s in %.0f s" % (image, time.monotonic() - started))
    return image
