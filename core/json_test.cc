#include "core/json.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Json, EscapesWhatWouldEndOrBreakAString) {
  EXPECT_EQ(JsonString("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(JsonString("tab\tline\n"), R"("tab\u0009line\u000a")");
  EXPECT_EQ(JsonString("\xff\x7f"), R"("\ufffd\u007f")");
}

TEST(Json, WhatIsNotKnownIsNull) {
  JsonObject object;
  object.AddOrNull("text", "");
  object.AddOrNull("number", uint64_t{0});
  object.AddOrNull("speed", 0.0);
  object.AddIndexOrNull("index", -1);
  EXPECT_EQ(object.text(), R"({"text": null, "number": null, "speed": null, "index": null})");
}

TEST(Json, NumbersKeepNineDigitsAndWhatIsNoNumberIsNull) {
  JsonObject object;
  object.Add("rate", 12345678.9);
  object.Add("small", 1e-9);
  object.Add("broken", 0.0 / 0.0);
  EXPECT_EQ(object.text(), R"({"rate": 12345678.9, "small": 1e-09, "broken": null})");
}

TEST(Json, WhatIsKnownIsThere) {
  JsonObject object;
  object.AddOrNull("text", "x");
  object.AddOrNull("number", uint64_t{7});
  object.AddOrNull("speed", 2.5);
  object.AddIndexOrNull("index", 0);
  object.Add("yes", true);
  EXPECT_EQ(object.text(), R"({"text": "x", "number": 7, "speed": 2.5, "index": 0, "yes": true})");
}

TEST(Json, ArraysMayHaveAValueInEachLine) {
  EXPECT_EQ(JsonArray({"1", "2"}), "[1, 2]");
  EXPECT_EQ(JsonArray({"1", "2"}, "  "), "[\n  1,\n  2\n]");
  EXPECT_EQ(JsonArray({}, "  "), "[]");
}

}  // namespace
}  // namespace weft
