#!/usr/bin/env python3
"""A machine on which libfabric is not installed, or not whole, or what its verbs are made of is not
(libibverbs, librdmacm): programs with Weft start, talk over shm and tcp, and say what is missing to
who asks for a path of libfabric's."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.append("core/testing")
import told_skips  # pylint: disable=wrong-import-position

# Where the test is run, and not where its source is: Bazel links to that.
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
ECHO = os.path.join(HERE, "echo")
PATIENCE_SECONDS = 60


def files(library):
    """Where the loader finds it."""
    known = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True,
                           env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}).stdout
    return [line.split()[-1] for line in known.splitlines() if line.strip().startswith(library + " ")]


class Without:
    """Tests of the libraries that are not there: `missing`."""

    missing = []

    def setUp(self):
        for library in self.missing:
            if not files(library):
                self.skipTest("ldconfig lists no %s here: there is none to take away" % library)
        if shutil.which("unshare") is None or subprocess.run(self.without("true"),
                                                             stderr=subprocess.DEVNULL).returncode:
            self.skipTest("this machine permits no namespace of mounts (unshare --user --mount)")

    def without(self, *command):
        """The command in a namespace where their files are empty."""
        hide = "".join("mount --bind /dev/null %s && " % path for library in self.missing for path in files(library))
        return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", hide + 'exec "$@"', "sh",
                *command]

    def said(self, paths):
        """What the server and a client say that may use these paths only; empty: as they are by default."""
        environment = {**os.environ, "WEFT_PATHS": paths}
        if not paths:
            del environment["WEFT_PATHS"]
        server = subprocess.Popen(self.without(ECHO), stdout=subprocess.PIPE, text=True, env=environment)
        try:
            address = server.stdout.readline().strip()
            client = subprocess.run(self.without(ECHO, address, "hello"), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, env=environment,
                                    timeout=PATIENCE_SECONDS)
            return client.stdout.strip()
        finally:
            server.kill()
            server.communicate()

    def test_calls_go_over_tcp_and_shared_memory(self):
        for paths in ("tcp", "shm", ""):
            self.assertEqual(self.said(paths), "hello")


class WithoutLibfabric(Without, unittest.TestCase):

    missing = ["libfabric.so.1"]

    def test_a_path_of_libfabrics_says_what_is_missing(self):
        self.assertIn("libfabric is not there", self.said("ofi_tcp"))


class WithoutLibibverbs(Without, unittest.TestCase):
    """Debian's libfabric links both: the loader then takes libfabric for as little there as they are."""

    missing = ["libibverbs.so.1"]

    def test_a_path_of_libfabrics_says_which_library_is_missing(self):
        for libfabric in files("libfabric.so.1"):
            needed = subprocess.run(["ldd", libfabric], stdout=subprocess.PIPE, text=True, check=True).stdout
            if self.missing[0] not in needed:
                self.skipTest("libfabric does without %s here: its providers are loaded when they are used" %
                              self.missing[0])
            said = self.said("ofi_tcp")
            self.assertIn("libfabric is not there", said)
            self.assertIn(self.missing[0], said)


class WithoutLibrdmacm(WithoutLibibverbs):

    missing = ["librdmacm.so.1"]


if __name__ == "__main__":
    told_skips.main()
