"""Builds the image of the lab's machines, once for each set of package versions and scripts.

An image is a folder: vmlinux, initramfs, the name of its kernel and which modules that has. It is
built beside its final place and renamed when it is complete, so an interrupted build leaves nothing
that could be taken for an image; a lock keeps two builders apart. Its kernel is Debian 12's, with
siw, or one whose packages the caller has (`kernel_debs`).
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
_INGREDIENTS = ["debian.py", "image.py", "initramfs.py", "kernel.py", "modules.py", "zstd.py",
                "guest/init", "guest/start", "guest/agent.py"]
# Each is about 60 MB. The present one and the one before, for a branch switched to and fro; as many
# with another kernel.
_KEPT_IMAGES = 2


def key(versions, ingredients, debs=()):
    """The name of the image that these package versions, source bytes and package files make."""
    digest = hashlib.sha256()
    for deb in sorted(debs):
        digest.update(("%s %s\n" % (deb.name, _checksum(deb))).encode())
    for name, version in sorted(versions.items()):
        digest.update(("%s=%s\n" % (name, version)).encode())
    for content in ingredients:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def _checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


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


def _builtin(path):
    return [modules.module_name(os.path.basename(line)) for line in path.read_text().splitlines()]


def _copy_modules(plan, paths, folder):
    folder.mkdir()
    for group, names in plan.items():
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


def _first_root(work, plan, paths):
    """The tree of the machine's first root; guest/init is what runs there."""
    tree = work / "tree"
    for name in ["bin", "proc", "sys", "dev", "host", "writes", "root"]:
        (tree / name).mkdir(parents=True)
    shutil.copy2(work / "tools/bin/busybox", tree / "bin/busybox")
    shutil.copytree(_SOURCES / "guest", tree / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(_SOURCES / "guest/init", tree / "init")
    (tree / "init").chmod(0o755)
    _copy_modules(plan, paths, tree / "modules")
    _copy_tools(work / "tools", tree / "tools")
    return tree


def _build_siw(packages, debs, work, say):
    """Compiles siw for Debian 12's kernel; the folder that it is in."""
    for name in packages.headers() + [packages.source()]:
        debian.unpack(debs[name], work / "headers")
    say("compiling siw")
    tarball = work / "headers/usr/src" / (packages.source() + ".tar.xz")
    siw = kernel.build_siw(work / "headers", packages.kernel_release, tarball, work / "siw")
    return os.path.dirname(siw)


def _build(packages, kernel_debs, work, target, say):
    say("downloading %d packages (kernel %s)" % (
        len(packages.versions), packages.kernel_release or "from " + kernel_debs[0].name))
    debs = debian.download(packages, work / "debs", say)
    for name in debian.TOOLS:
        debian.unpack(debs[name], work / "tools")
    for deb in kernel_debs or [debs[packages.kernel()]]:
        debian.unpack(deb, work / "kernel")
    tree = kernel.Tree(work / "kernel")
    module_folders = [tree.modules]
    if not kernel_debs:
        module_folders.append(_build_siw(packages, debs, work, say))
    paths = modules.index(module_folders)
    plan = modules.plan(paths, _builtin(tree.builtin))
    target.mkdir()
    (target / "vmlinux").write_bytes(kernel.extract_vmlinux(tree.image.read_bytes()))
    (target / "initramfs").write_bytes(initramfs.archive(_first_root(work, plan, paths)))
    (target / "kernel_release").write_text(tree.release + "\n")
    (target / "module_groups").write_text("".join(group + "\n" for group in plan))


def check_devices(image, devices):
    """Raises CannotRun where the image's kernel has no module for one of the devices."""
    there = (image / "module_groups").read_text().split()
    release = (image / "kernel_release").read_text().strip()
    for device in devices:
        if device != "none" and not {"rdma", device} <= set(there):
            why = "; the lab compiles it for Debian 12's alone" if device == "siw" else ""
            raise CannotRun("the kernel %s has no device %s%s" % (release, device, why))


def _remove_old(folder, keep):
    kind = keep.name.rpartition("-")[0]
    images = [path for path in folder.glob(kind + "-*") if path != keep]
    for path in sorted(images, key=os.path.getmtime, reverse=True)[_KEPT_IMAGES - 1:]:
        shutil.rmtree(path, ignore_errors=True)


def ensure(say, kernel_debs=()):
    """The folder of the image for the packages and scripts of now; builds it if there is none.
    `kernel_debs`: the packages of another kernel than Debian 12's."""
    for deb in kernel_debs:
        if not deb.is_file():
            raise CannotRun("there is no file " + str(deb))
    packages = debian.choose(say, with_kernel=not kernel_debs)
    ingredients = [(_SOURCES / name).read_bytes() for name in _INGREDIENTS]
    folder = lab_folder()
    folder.mkdir(parents=True, exist_ok=True)
    kind = "kernel-image-" if kernel_debs else "image-"
    image = folder / (kind + key(packages.versions, ingredients, kernel_debs))
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
                _build(packages, kernel_debs, work, work / "image", say)
            except (ValueError, OSError, KeyError, subprocess.CalledProcessError) as error:
                raise CannotRun("building the lab's image failed: %s" % error) from error
            (work / "image").rename(image)
        _remove_old(folder, image)
        say("built %s in %.0f s" % (image, time.monotonic() - started))
    return image
