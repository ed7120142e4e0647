#include "rpc/wire/metadata.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

TEST(MetadataTest, KeepsKeysAndValuesInTheirOrderAndOneKeyMoreThanOnce) {
  Metadata metadata;
  ASSERT_TRUE(metadata.Add("b", "1").ok());
  ASSERT_TRUE(metadata.Add("a", "2").ok());
  ASSERT_TRUE(metadata.Add("b", "3").ok());
  std::vector<std::string> all;
  for (const Metadata::Entry& entry : metadata) all.push_back(entry.key + "=" + entry.value);
  EXPECT_EQ(all, (std::vector<std::string>{"b=1", "a=2", "b=3"}));
  EXPECT_EQ(*metadata.Find("b"), "1");
  EXPECT_EQ(metadata.Find("c"), nullptr);
  EXPECT_EQ(metadata.bytes(), 3 * (2 + kMetadataEntryBytes));
  metadata.Clear();
  EXPECT_TRUE(metadata.empty());
  EXPECT_EQ(metadata.bytes(), 0u);
}

TEST(MetadataTest, RefusesKeysThatAreNone) {
  Metadata metadata;
  for (const std::string& key :
       {std::string(), std::string("Upper"), std::string("a b"), std::string("a\n"),
        std::string("\xc3\xa4"), std::string(65, 'k')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(metadata.Add(key, "v"))) << key;
  }
  EXPECT_TRUE(metadata.empty());
  EXPECT_TRUE(metadata.Add(std::string(64, 'k'), "v").ok());
  EXPECT_TRUE(metadata.Add("x-y_z.0", "v").ok());
}

TEST(MetadataTest, TakesAnyBytesOnlyUnderAKeyThatEndsWithBin) {
  Metadata metadata;
  const std::string bytes("\0\xff\n", 3);
  EXPECT_TRUE(absl::IsInvalidArgument(metadata.Add("key", bytes)));
  EXPECT_TRUE(absl::IsInvalidArgument(metadata.Add("key", "\x7f")));
  EXPECT_TRUE(metadata.Add("key", " ~").ok());
  EXPECT_TRUE(metadata.Add("key-bin", bytes).ok());
  EXPECT_EQ(*metadata.Find("key-bin"), bytes);
}

TEST(MetadataTest, IsFullAtItsLimitAndNotBefore) {
  Metadata metadata;
  const size_t room = kMaxMetadataBytes - kMetadataEntryBytes - 1;
  EXPECT_TRUE(absl::IsResourceExhausted(metadata.Add("k", std::string(room + 1, 'v'))));
  EXPECT_TRUE(metadata.Add("k", std::string(room, 'v')).ok());
  EXPECT_EQ(metadata.bytes(), kMaxMetadataBytes);
  EXPECT_TRUE(absl::IsResourceExhausted(metadata.Add("k", "")));
  EXPECT_EQ(metadata.size(), 1u);
}

}  // namespace
}  // namespace weft
