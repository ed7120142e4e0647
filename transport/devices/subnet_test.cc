#include "transport/devices/subnet.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ParseSubnet, KnowsBothFamilies) {
  const absl::StatusOr<Subnet> v4 = ParseSubnet("10.1.0.0/16");
  ASSERT_TRUE(v4.ok()) << v4.status();
  EXPECT_TRUE(v4->Contains("10.1.255.7"));
  EXPECT_FALSE(v4->Contains("10.2.0.1"));
  EXPECT_FALSE(v4->Contains("fd00::1"));
  EXPECT_FALSE(v4->Contains("host"));
  const absl::StatusOr<Subnet> v6 = ParseSubnet("fd80::/9");
  ASSERT_TRUE(v6.ok()) << v6.status();
  EXPECT_TRUE(v6->Contains("fdff::1"));
  EXPECT_FALSE(v6->Contains("fd00::1"));
  EXPECT_FALSE(v6->Contains("10.1.0.1"));
}

TEST(ParseSubnet, AnAddressIsTheSubnetOfItself) {
  const absl::StatusOr<Subnet> one = ParseSubnet("10.1.0.7");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(one->Contains("10.1.0.7"));
  EXPECT_FALSE(one->Contains("10.1.0.6"));
}

TEST(ParseSubnet, EverythingIsASubnetToo) {
  const absl::StatusOr<Subnet> all = ParseSubnet("0.0.0.0/0");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->Contains("255.1.2.3"));
}

TEST(ParseSubnet, SaysWhatIsWrong) {
  const struct {
    const char* text;
    const char* why;
  } kCases[] = {{"", "numeric address"},
                {"eth0", "numeric address"},
                {"10.1.0.0/33", "0..32 bits"},
                {"fd00::/129", "0..128 bits"},
                {"10.1.0.0/", "0..32 bits"},
                {"10.1.0.0/-1", "0..32 bits"},
                {"10.1.0.7/16", "after the prefix"}};
  for (const auto& c : kCases) {
    const absl::Status status = ParseSubnet(c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_NE(std::string(status.message()).find(c.why), std::string::npos) << status;
  }
}

TEST(ShareSubnet, TheShorterPrefixCounts) {
  EXPECT_TRUE(ShareSubnet("10.1.2.3", 24, "10.1.2.200", 24));
  EXPECT_TRUE(ShareSubnet("10.1.2.3", 24, "10.1.9.9", 16));
  EXPECT_FALSE(ShareSubnet("10.1.2.3", 24, "10.1.9.9", 24));
  EXPECT_TRUE(ShareSubnet("fd77::1", 64, "fd77::2", 64));
  EXPECT_FALSE(ShareSubnet("fd77::1", 64, "fd78::1", 64));
}

TEST(ShareSubnet, WhatIsNoAddressSharesNothing) {
  EXPECT_FALSE(ShareSubnet("", 0, "", 0));
  EXPECT_FALSE(ShareSubnet("10.1.2.3", 33, "10.1.2.3", 24));
  EXPECT_FALSE(ShareSubnet("10.1.2.3", 0, "fd77::1", 0));
  EXPECT_FALSE(ShareSubnet("rxe0", 24, "rxe0", 24));
}

}  // namespace
}  // namespace weft
