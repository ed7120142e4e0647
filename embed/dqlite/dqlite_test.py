#!/usr/bin/env python3
"""dqlite's own benchmark, unmodified, replicates over Weft: over shared memory and over tcp."""
import os
import shutil
import sys
import types
import unittest
import xml.etree.ElementTree as xml

import compare

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libweft_dqlite.so")
OPTIONS = types.SimpleNamespace(seconds=3, workload="kvreadwrite")


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
