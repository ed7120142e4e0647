"""What a run of the lab came to: lines for a person, and XML for Bazel, which counts its cases."""
import os
import xml.etree.ElementTree as xml

from gtest_lines import FAILED, PASSED, SKIPPED


class Report:
    def __init__(self):
        self._cases = []  # (group, Case)

    def add(self, group, case):
        """A group is a device and a program: "rxe.link_test"."""
        self._cases.append((group, case))
        if case.outcome == FAILED:
            print("FAILED: %s.%s\n%s" % (group, case.name, case.text), flush=True)
        elif case.outcome == SKIPPED:
            print("SKIPPED: %s.%s: %s" % (group, case.name, " ".join(case.text.split())), flush=True)

    def count(self, outcome):
        return sum(case.outcome == outcome for _, case in self._cases)

    def last_line(self):
        """As tools/run_tests.py ends."""
        line = "%d passed, %d failed" % (self.count(PASSED), self.count(FAILED))
        return line + (", %d skipped" % self.count(SKIPPED) if self.count(SKIPPED) else "")

    def status(self):
        return 1 if self.count(FAILED) else 0

    def to_xml(self):
        root = xml.Element("testsuites")
        suite = xml.SubElement(root, "testsuite", name="lab", tests=str(len(self._cases)),
                               failures=str(self.count(FAILED)))
        for group, case in self._cases:
            element = xml.SubElement(suite, "testcase", classname=group, name=case.name)
            if case.outcome == FAILED:
                xml.SubElement(element, "failure", message="failed").text = _printable(case.text)
            elif case.outcome == SKIPPED:
                xml.SubElement(element, "skipped", message=_printable(case.text))
        return xml.tostring(root, encoding="unicode")

    def write_for_bazel(self):
        """Where Bazel asked for it, in a test that it runs."""
        path = os.environ.get("XML_OUTPUT_FILE")
        if path:
            with open(path, "w") as file:
                file.write(self.to_xml())


def _printable(text):
    """XML has no way to say most control characters."""
    return "".join(letter if letter >= " " or letter in "\n\t" else "?" for letter in text)
