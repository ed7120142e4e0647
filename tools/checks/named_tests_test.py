#!/usr/bin/env python3
"""The check of docs/security.md finds tests that are not there."""
import unittest

from named_tests import cells_of_tests, complaints, tests_of

SOURCE = """
TEST(RingTest, AnyScribbleIsReadSafely) {
TEST_F(HostileClientTest,
       AHelloTakesNoConnection) {
TEST_P(ContractTest, AttackOutOfBounds) {
// TEST(Commented, Out)
"""
TABLE = """
| path | what holds | test |
|---|---|---|
| shm | much (`RingTest.Elsewhere`) | `RingTest.AnyScribbleIsReadSafely`, `tools/there.py` |
| tcp | nothing | - |

| threat | words |
|---|---|
| one | `Not.Looked` at |
"""


def there(path):
    return path == "tools/there.py"


class NamedTests(unittest.TestCase):
    def test_all_kinds_of_tests_are_known(self):
        self.assertEqual(tests_of(SOURCE), {
            "RingTest.AnyScribbleIsReadSafely", "HostileClientTest.AHelloTakesNoConnection",
            "ContractTest.AttackOutOfBounds"})

    def test_only_the_column_is_looked_at(self):
        self.assertEqual(len(cells_of_tests(TABLE)), 2)
        self.assertEqual(complaints(TABLE, tests_of(SOURCE), there), [])

    def test_a_test_that_is_not_there_is_reported(self):
        self.assertEqual(complaints(TABLE, set(), there), [
            "docs/security.md:4: there is no test RingTest.AnyScribbleIsReadSafely"])

    def test_a_file_that_is_not_there_is_reported(self):
        self.assertEqual(complaints(TABLE + "By `core/gone.h`.", tests_of(SOURCE), there), [
            "docs/security.md: there is no file core/gone.h"])

    def test_a_row_says_that_it_has_none(self):
        self.assertEqual(complaints(TABLE.replace("| - |", "|  |"), tests_of(SOURCE), there), [
            'docs/security.md:5: no test is named, and no "-"'])

    def test_a_document_without_a_table_is_reported(self):
        self.assertEqual(len(complaints("nothing", set(), there)), 1)


if __name__ == "__main__":
    unittest.main()
