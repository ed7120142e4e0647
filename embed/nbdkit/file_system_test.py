#!/usr/bin/env python3
"""ext4 on a device of nbdfuse, over the plugin and its server, which is killed while files are written
and synced. Afterwards fsck finds nothing wrong, and each synced file is there.

As root, where there are /dev/fuse and loop devices; mounts are in a namespace of this test's own.
"""
import filecmp
import os
import shutil
import subprocess
import sys
import time
import unittest

import blocks
import nbdkit_test
import told_skips  # which nbdkit_test has found

OWN_NAMESPACE = "WEFT_TEST_OWN_MOUNTS"
MKFS = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin")
FSCK = shutil.which("e2fsck", path="/usr/sbin:/sbin")


def why_not():
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse here"
    if os.geteuid() != 0 or OWN_NAMESPACE not in os.environ:
        return "mounting takes root, and a namespace of its own"
    if not (MKFS and FSCK):
        return "not installed here: e2fsprogs"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices here"
    return blocks.lacking("nbdkit", "nbdfuse")


@unittest.skipIf(why_not(), why_not())
class FileSystem(nbdkit_test.Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve(mib=64)
        self.kit = self.nbdkit(self.server)
        self.fuse = self.folder.file("fuse")
        self.mounted = self.folder.file("mounted")
        os.mkdir(self.fuse)
        os.mkdir(self.mounted)
        self.device = os.path.join(self.fuse, "nbd")
        nbdfuse = subprocess.Popen(blocks.ENDS_WITH_US + ["nbdfuse", self.device, self.kit.uri],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(nbdfuse.communicate)
        self.addCleanup(nbdfuse.terminate)
        self.addCleanup(run_quietly, "umount", "-l", self.fuse)
        while not os.path.exists(self.device):
            if nbdfuse.poll() is not None:
                self.skipTest("nbdfuse cannot mount here: " + nbdfuse.communicate()[0])
            time.sleep(0.01)  # there is nothing else to wait for

    def mount(self):
        status, said = nbdkit_test.run("mount", "-t", "ext4", "-o", "loop", self.device,
                                       self.mounted)
        if status != 0:
            self.skipTest("mount cannot here: " + said)
        self.addCleanup(run_quietly, "umount", "-l", self.mounted)

    def test_synced_files_survive_kills_of_the_server(self):
        self.done(MKFS, "-q", "-F", self.device)
        self.mount()
        kept = self.folder.file("kept")
        os.mkdir(kept)
        for number in range(12):
            name = "file%d" % number
            with open(os.path.join(kept, name), "wb") as file:
                file.write(os.urandom((number + 1) * 100_000))
            writing = subprocess.Popen(blocks.ENDS_WITH_US + [
                "dd", "if=" + os.path.join(kept, name), "of=" + os.path.join(self.mounted, name),
                "bs=64k", "conv=fsync"], stderr=subprocess.DEVNULL)
            if number % 3 == 0:
                self.server.kill()
                self.server.start()
            self.assertEqual(writing.wait(nbdkit_test.PATIENCE_SECONDS), 0, self.kit.said())
        self.done("umount", self.mounted)
        self.done(FSCK, "-f", "-n", self.device)
        self.mount()
        same, different, _ = filecmp.cmpfiles(kept, self.mounted, os.listdir(kept), shallow=False)
        self.assertEqual((len(same), different), (12, []))
        self.done("umount", self.mounted)


def run_quietly(*command):
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    if os.geteuid() == 0 and OWN_NAMESPACE not in os.environ:
        os.environ[OWN_NAMESPACE] = "1"
        if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0:
            os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable,
                                  os.path.abspath(__file__)] + sys.argv[1:])
        del os.environ[OWN_NAMESPACE]
    told_skips.main()
