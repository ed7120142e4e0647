// What generated CopyTo() and CopyFrom() do with fields that need care.

#include <gtest/gtest.h>

#include <cstddef>

#include "rpc/layout/record.h"
#include "rpc/plugin/testdata/layouts_proto2.weft.h"
#include "rpc/testing/records.weft.h"

namespace weft::test {
namespace {

using plugin::testdata::LARGE;
using plugin::testdata::Size;
using plugin::testdata::Sizes;
using plugin::testdata::SizesLayout;
using plugin::testdata::SMALL;

// A peer's struct may hold any number; protobuf's setters take those of a closed enum alone.
TEST(LayoutCopyTest, NumbersThatAClosedEnumDoesNotNameBecomeItsDefault) {
  SizesLayout sizes;
  sizes.one = static_cast<Size>(77);
  sizes.many = {LARGE, static_cast<Size>(-1), SMALL};
  Sizes message;
  sizes.CopyTo(&message);
  EXPECT_EQ(message.one(), SMALL);
  ASSERT_EQ(message.many_size(), 3);
  EXPECT_EQ(message.many(0), LARGE);
  EXPECT_EQ(message.many(1), SMALL);
  EXPECT_EQ(message.many(2), SMALL);
}

TEST(LayoutCopyTest, ARecordMadeOfAMessageIsWhole) {
  Snapshot message;
  message.set_version(4);
  message.add_numbers(7);
  SnapshotLayout record;
  ASSERT_TRUE(record.CopyFrom(message).ok());
  EXPECT_EQ(record.numbers[0], 7u);
  EXPECT_TRUE(IsWholeRecord(reinterpret_cast<const std::byte*>(&record), sizeof(record)));
}

}  // namespace
}  // namespace weft::test
