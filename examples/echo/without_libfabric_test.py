#!/usr/bin/env python3
"""A machine on which libfabric is not installed, or not whole: programs with Weft start, talk over
shm and tcp, and say what is missing to who asks for a path of libfabric's."""
import os
import shutil
import subprocess
import sys
import unittest

# Where the test is run, and not where its source is: Bazel links to that.
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
ECHO = os.path.join(HERE, "echo")
PATIENCE_SECONDS = 60


def libraries():
    """Where the loader finds libfabric."""
    known = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True,
                           env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}).stdout
    return [line.split()[-1] for line in known.splitlines() if line.strip().startswith("libfabric.so.1 ")]


def without(*command):
    """The command in a namespace where those files are empty."""
    hide = "".join("mount --bind /dev/null %s && " % path for path in libraries())
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", hide + 'exec "$@"', "sh",
            *command]


class WithoutLibfabric(unittest.TestCase):

    def setUp(self):
        if shutil.which("unshare") is None or subprocess.run(without("true"), stderr=subprocess.DEVNULL).returncode:
            self.skipTest("this machine permits no namespace of mounts (unshare --user --mount)")

    def said(self, paths):
        """What the server and a client say that may use these paths only."""
        environment = {**os.environ, "WEFT_PATHS": paths}
        server = subprocess.Popen(without(ECHO), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=environment)
        try:
            address = server.stdout.readline().strip()
            client = subprocess.run(without(ECHO, address, "hello"), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, env=environment,
                                    timeout=PATIENCE_SECONDS)
            return client.stdout.strip()
        finally:
            server.kill()
            server.communicate()

    def test_calls_go_over_tcp_and_shared_memory(self):
        self.assertEqual(self.said("tcp"), "hello")
        self.assertEqual(self.said("shm"), "hello")

    def test_a_path_of_libfabrics_says_what_is_missing(self):
        self.assertIn("libfabric is not there", self.said("ofi_tcp"))


if __name__ == "__main__":
    unittest.main()
