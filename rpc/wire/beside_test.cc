#include "rpc/wire/beside.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

using Bytes = std::vector<std::byte>;

// What `beside` makes of a message.
Bytes Body(const Beside& beside, const std::string& message) {
  Bytes body(beside.bytes_before() + message.size() + beside.bytes_behind());
  std::byte* const at = beside.Encode(message.size(), body.data());
  EXPECT_EQ(static_cast<size_t>(at - body.data()), beside.bytes_before());
  std::memcpy(at, message.data(), message.size());
  return body;
}

TEST(BesideTest, NothingTakesNoBytes) {
  const Beside none;
  EXPECT_EQ(none.bits(), 0);
  EXPECT_EQ(Body(none, "message").size(), 7u);
}

TEST(BesideTest, WhatIsEncodedIsDecoded) {
  absl::Cord attachment("att");
  attachment.Append(absl::MakeCordFromExternal("achment", [] {}));
  for (const std::string& message : {std::string(), std::string("message")}) {
    const Beside beside = {"extras", &attachment};
    const Bytes frame = Body(beside, message);
    EXPECT_EQ(frame.size(), 8u + 8u + 8u + message.size() + 10u);
    ByteSpan body = frame;
    ByteSpan extras;
    ByteSpan behind;
    ASSERT_TRUE(DecodeBeside(beside.bits(), &body, &extras, &behind));
    EXPECT_EQ(AsStringView(extras), "extras");
    EXPECT_EQ(AsStringView(body), message);
    EXPECT_EQ(AsStringView(behind), "attachment");
  }
}

TEST(BesideTest, AnAttachmentHasItsMessagesLengthInFront) {
  const absl::Cord attachment("yz");
  const Bytes frame = Body({{}, &attachment}, "x");
  const char expected[] = "\1\0\0\0\0\0\0\0xyz";
  EXPECT_EQ(AsStringView(frame), std::string_view(expected, sizeof(expected) - 1));
}

TEST(BesideTest, WhatMakesNoSenseIsRefused) {
  const absl::Cord attachment("yz");
  const Bytes good = Body({{}, &attachment}, "x");
  const auto decodes = [](ByteSpan body) {
    ByteSpan extras;
    ByteSpan behind;
    return DecodeBeside(kAttachmentBit, &body, &extras, &behind);
  };
  EXPECT_TRUE(decodes(good));
  for (size_t bytes = 0; bytes < 10; ++bytes) {
    EXPECT_FALSE(decodes(ByteSpan(good).first(bytes))) << bytes;
  }
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{4}, uint64_t{0xFFFFFFFF}, uint64_t{1} << 32, ~uint64_t{0}}) {
    Bytes changed = good;
    StoreLe64(changed.data(), length);
    EXPECT_FALSE(decodes(changed)) << length;
  }
}

}  // namespace
}  // namespace weft
