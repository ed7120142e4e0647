#!/usr/bin/env python3
"""The echoes in Go and Rust, built by their own compilers as a program outside of this tree is, serve and
call; so does the echo in C++, and each calls either. Skipped where there is no such compiler: the packages
are the group "languages" of third_party/packages.debian.

    languages_test.py LIBRARY ECHO     of the C interface, and the program of examples/echo
"""
import glob
import os
import select
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.append("core/testing")
import told_skips  # pylint: disable=wrong-import-position

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
LIBRARY, ECHO = (os.path.abspath(path) for path in sys.argv[1:3])
# Of one program, on a busy machine.
PATIENCE_SECONDS = 120
# From 1.20 on Go has no compiled library: it compiles all of it here, a minute on two slow processors.
COMPILER_SECONDS = 280


def make_prefix(folder):
    """As `./dev install` makes it, as far as programs in C need it."""
    for part in ("include", "lib/pkgconfig"):
        os.makedirs(os.path.join(folder, part))
    os.symlink(os.path.abspath("weft"), os.path.join(folder, "include/weft"))
    os.symlink(LIBRARY, os.path.join(folder, "lib/libweft_c.so"))
    for library in glob.glob(os.path.join(os.path.dirname(LIBRARY), "libweft*.so.*")):
        os.symlink(library, os.path.join(folder, "lib", os.path.basename(library)))
    with open("tools/install/weft-c.pc.in", encoding="utf-8") as template:
        text = template.read().replace("@VERSION@", "0")
    with open(os.path.join(folder, "lib/pkgconfig/weft-c.pc"), "w", encoding="utf-8") as file:
        file.write(text)


class Languages(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-languages-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        make_prefix(self.folder)
        self.program = os.path.join(self.folder, "program")

    def need(self, compiler):
        if shutil.which(compiler) is None:
            self.skipTest(compiler + ' is not installed (the group "languages" of third_party/packages.debian)')

    def compile(self, *command, **environment):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=COMPILER_SECONDS, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout)

    def serve(self, program):
        server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        said, _, _ = select.select([server.stdout], [], [], PATIENCE_SECONDS)
        self.assertTrue(said, "%s has not said its address in %d s" % (program, PATIENCE_SECONDS))
        return server, server.stdout.readline().strip()

    def said_by(self, program, address, text):
        return subprocess.run([program, address, text], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=PATIENCE_SECONDS).stdout

    def each_calls_either(self):
        for server_program in (self.program, ECHO):
            server, address = self.serve(server_program)
            for client in (self.program, ECHO):
                for text in ("hello, world", "", "x" * 127):
                    self.assertEqual(self.said_by(client, address, text), text + "\n", (server_program, client))
            if server_program == self.program:  # it ends well, with its input
                server.stdin.close()
                self.assertEqual(server.wait(PATIENCE_SECONDS), 0)
                server.stdin = None
        refused = subprocess.run([self.program, "127.0.0.1:1", "x"], stderr=subprocess.PIPE, text=True,
                                 timeout=PATIENCE_SECONDS)
        self.assertEqual((refused.returncode, "127.0.0.1:1" in refused.stderr), (1, True), refused)

    def test_go(self):
        self.need("go")
        rpath = "-Wl,-rpath," + os.path.join(self.folder, "lib")
        self.compile("go", "build", "-o", self.program, os.path.join(HERE, "weft_cgo.go"),
                     PKG_CONFIG_PATH=os.path.join(self.folder, "lib/pkgconfig"), CGO_LDFLAGS=rpath,
                     GO111MODULE="off", GOCACHE=os.path.join(self.folder, "cache"), GOFLAGS="")
        self.each_calls_either()

    def test_rust(self):
        self.need("rustc")
        library = os.path.join(self.folder, "lib")
        self.compile("rustc", "--edition", "2021", "-D", "warnings", "-o", self.program, "-L", library,
                     "-C", "link-arg=-Wl,-rpath," + library, os.path.join(HERE, "weft_rust.rs"))
        self.each_calls_either()


if __name__ == "__main__":
    del sys.argv[1:3]
    told_skips.main()
