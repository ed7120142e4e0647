#!/usr/bin/env python3
"""The check of docs/errors.md finds words that no source has."""
import unittest

from error_texts import complaints, literals, texts

TABLE = """
| code | words | where |
|---|---|---|
| UNAVAILABLE | `no server at ...: gone`, `try later` | `Open` |

`prose` is not looked at.
"""
SOURCE = 'return Error(StrCat("no server at ", address,\n    ": go" "ne for \\"good\\", try later"));'


class ErrorTexts(unittest.TestCase):
    def test_neighbouring_literals_are_one(self):
        self.assertEqual(literals(SOURCE), ["no server at ", ': gone for "good", try later'])

    def test_words_are_taken_from_their_column_alone(self):
        self.assertEqual(texts(TABLE), [["no server at ", ": gone"], ["try later"]])

    def test_words_that_are_in_the_sources_pass(self):
        self.assertEqual(complaints(TABLE, [SOURCE]), [])

    def test_words_that_are_nowhere_are_reported(self):
        self.assertEqual(len(complaints(TABLE, ['"no server at "', '"try later"'])), 1)

    def test_the_words_of_the_system_are_not_looked_for(self):
        table = TABLE.replace("`try later`", "`Broken pipe` (the system's words)")
        self.assertEqual(complaints(table, [SOURCE]), [])

    def test_a_document_without_a_table_is_reported(self):
        self.assertEqual(len(complaints("nothing", [SOURCE])), 1)


if __name__ == "__main__":
    unittest.main()
