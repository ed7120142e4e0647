#!/usr/bin/env python3
"""dqlite's own programs, unmodified, replicate over Weft: the benchmark over shared memory and over
tcp, and the demonstration over the former."""
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import xml.etree.ElementTree as xml

import compare

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libweft_dqlite.so")
OPTIONS = types.SimpleNamespace(seconds=3, workload="kvreadwrite", folder=None)
# Until a node serves, on a busy machine.
PATIENCE_SECONDS = 60


@unittest.skipUnless(shutil.which("dqlite-benchmark"), "there is no package go-dqlite here")
class Dqlite(unittest.TestCase):
    def replicate(self, path):
        turn = {"WEFT_DQLITE": "on", "WEFT_PATHS": path, "WEFT_LOG": "info"}
        figures, said = compare.run_turn(LIBRARY, path, turn, OPTIONS, with_log=True)
        self.assertIsNotNone(figures, said)
        self.assertIn("path %s chosen" % path, said)

    def test_over_shared_memory(self):
        self.replicate("shm")

    def test_over_tcp(self):
        self.replicate("tcp")

    def test_what_one_node_of_the_demonstration_is_told_another_one_knows(self):
        folder = tempfile.mkdtemp(prefix="weft-dqlite-demo-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        addresses = ["127.0.0.1:%d" % port for port in compare.free_ports(2 * compare.NODES)]
        nodes, interfaces = addresses[:compare.NODES], addresses[compare.NODES:]
        environment = dict(os.environ, LD_PRELOAD=LIBRARY, WEFT_PATHS="shm", WEFT_LOG="info",
                           WEFT_DQLITE_PORT_OFFSET=str(compare.PORT_OFFSET))
        logs = [os.path.join(folder, "%d.log" % i) for i in range(len(nodes))]

        def said():
            texts = []
            for log in filter(os.path.exists, logs):
                with open(log) as lines:
                    texts.append(lines.read())
            return "\n".join(texts)

        for i, (node, interface) in enumerate(zip(nodes, interfaces)):
            with open(logs[i], "w") as log:
                process = subprocess.Popen(
                    [*compare.ENDS_WITH_US, "dqlite-demo", "--api", interface, "--db", node,
                     "--dir", os.path.join(folder, str(i)), *(["--join", nodes[0]] if i else [])],
                    env=environment, stdout=log, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.send_signal, signal.SIGKILL)
            # A node serves when it is one of the cluster, and then the next one may join.
            self.assertIsNotNone(self.ask(interface, "GET"), said())
        # Members get their roles meanwhile, and the leader may change.
        self.assertIsNotNone(self.ask(interfaces[0], "PUT", "a value", wanted="done"), said())
        self.assertIsNotNone(self.ask(interfaces[2], "GET", wanted="a value"), said())
        self.assertIn("path shm chosen", said())

    def ask(self, interface, method, body=None, wanted=None):
        """The answer about one key, or the one that is wanted; None: there is none in time."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection(interface, timeout=PATIENCE_SECONDS)
            try:
                connection.request(method, "/key", body)
                answer = connection.getresponse().read().decode().strip()
                if wanted is None or answer == wanted:
                    return answer
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.05)
        return None


def tell_bazel(result, count):
    """Skipped tests as such, with the reason."""
    path = os.environ.get("XML_OUTPUT_FILE")
    if not path or not result.skipped:
        return  # Bazel makes one by itself
    suite = xml.Element("testsuite", name="dqlite_test", tests=str(count))
    for case, reason in result.skipped:
        element = xml.SubElement(suite, "testcase", classname="Dqlite", name=str(case).split()[0])
        xml.SubElement(element, "skipped", message=reason)
    xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


if __name__ == "__main__":
    program = unittest.main(exit=False)
    tell_bazel(program.result, program.result.testsRun)
    sys.exit(not program.result.wasSuccessful())
