"""Python's unittest under Bazel: tests that were skipped count as such, with the reason.

In a test, whose BUILD has //core/testing:told_skips.py among its data:

    sys.path.append("core/testing")  # tests run at the root of the workspace
    import told_skips
    ...
    if __name__ == "__main__":
        told_skips.main()
"""
import os
import sys
import unittest
import xml.etree.ElementTree as xml


def tell(result):
    """Bazel's file of results; where none was skipped, or one has failed, it makes one by itself."""
    path = os.environ.get("XML_OUTPUT_FILE")
    if not path or not result.skipped or not result.wasSuccessful():
        return
    suite = xml.Element("testsuite", name=os.path.basename(sys.argv[0]), tests=str(result.testsRun))
    for case, reason in result.skipped:
        element = xml.SubElement(suite, "testcase", classname=type(case).__name__, name=str(case).split()[0])
        xml.SubElement(element, "skipped", message=reason)
    xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def main():
    program = unittest.main(exit=False)
    tell(program.result)
    sys.exit(not program.result.wasSuccessful())
