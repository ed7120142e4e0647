#!/usr/bin/env python3
"""The check of reasons finds each check that has none, and takes each place where one may stand."""
import unittest

from check_reasons import checks, complaints


class CheckReasons(unittest.TestCase):

    def good(self, *lines):
        self.assertEqual(complaints("a.cc", "\n".join(lines)), [])

    def bad(self, number, *lines):
        found = complaints("a.cc", "\n".join(lines))
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("a.cc:%d: " % number), found)

    def test_a_check_without_a_reason_is_reported(self):
        self.bad(2, "int a;", "WEFT_CHECK(a == 0);")
        self.bad(1, "A::~A() { WEFT_CHECK(empty()); }")
        self.bad(1, "WEFT_DCHECK(a == 0);")

    def test_another_comment_is_no_reason(self):
        self.bad(1, "WEFT_CHECK(a == 0);  // one writer at a time")
        self.bad(2, "// Ours", "WEFT_CHECK(a == 0);")
        self.bad(1, "WEFT_CHECK(a == 0);  // Ours: ")

    def test_a_reason_stands_behind_the_check_or_above_it(self):
        self.good("WEFT_CHECK(a == 0);  // Ours: it is reset before")
        self.good("  // User: ends first", "  WEFT_CHECK(a == 0);")
        self.good("WEFT_CHECK(p != nullptr);  // System: gives memory")

    def test_a_reason_holds_for_a_run_of_checks(self):
        self.good("// Ours: sums", "WEFT_CHECK(a ==", "           b);", "WEFT_CHECK(c);")

    def test_a_run_ends_with_the_first_other_line(self):
        self.bad(4, "// Ours: sums", "WEFT_CHECK(a);", "++b;", "WEFT_CHECK(b);")
        self.bad(3, "WEFT_CHECK(a);  // Ours: a", "", "WEFT_CHECK(b);")
        self.bad(2, "WEFT_CHECK(a);  // Ours: of a alone", "WEFT_CHECK(b);")

    def test_what_ends_a_process_without_exceptions_is_a_check(self):
        for line in ("std::abort();", "abort();", "std::terminate();", "assert(a == 0);",
                     "auto& dial = std::get<Dial>(handshake_);", "Session& session = sessions_.at(id);"):
            self.bad(1, line)
            self.good("// Ours: it is there", line)
        self.good("static_assert(a == 0);", "auto* dial = std::get_if<Dial>(&handshake_);", "FormatAt(a);")

    def test_a_value_that_may_not_be_there_is_forbidden(self):
        for line in ("Use(found.value());", "return std::move(found).value();", "Use(Find(a)->value());"):
            self.bad(1, line)
            self.bad(2, "// Ours: it is there", line)
        self.good("if (pair.value().empty()) return;", "Use(*found);", "// found.value() would end it")

    def test_what_is_no_check_is_left_alone(self):
        self.good("// WEFT_CHECK(a) would end the process", "#define WEFT_CHECK(...)",
                  "CheckAttempt(call);", "int a;  // where WEFT_CHECK(a) is none")

    def test_the_list_has_each_reason(self):
        self.assertEqual(checks("int a;\nWEFT_CHECK(a);  // Ours: counted"), [(2, "Ours: counted")])


if __name__ == "__main__":
    unittest.main()
