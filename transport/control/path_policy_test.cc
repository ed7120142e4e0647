#include "transport/control/path_policy.h"

#include <stdlib.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// Sets a variable for one test; all others are unset.
class PathPolicyTest : public testing::Test {
 protected:
  PathPolicyTest() { Clear(); }
  ~PathPolicyTest() override { Clear(); }
  static void Set(const char* name, const char* value) { setenv(name, value, /*overwrite=*/1); }
  static void Clear() {
    for (const char* name :
         {kPathsVariable, kDevicesVariable, kGidIndexVariable, kSubnetsVariable, kRoutedVariable}) {
      unsetenv(name);
    }
  }
};

TEST_F(PathPolicyTest, OptionsWinOverTheEnvironment) {
  Set("WEFT_PATHS", "tcp");
  Set("WEFT_DEVICES", "mlx5_0");
  Set("WEFT_GID_INDEX", "1");
  Set("WEFT_SUBNETS", "10.0.0.0/8");
  LinkOptions options;
  options.paths = {PathKind::kVerbs, PathKind::kShm};
  options.devices = {"mlx5_1:2"};
  options.gid_index = 3;
  options.subnets = {"fd00::/8"};
  const absl::StatusOr<PathPolicy> policy = ReadPathPolicy(options);
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->allowed, options.paths);
  EXPECT_EQ(policy->rdma.devices, options.devices);
  EXPECT_EQ(policy->rdma.gid_index, 3);
  ASSERT_EQ(policy->rdma.subnets.size(), 1u);
  EXPECT_EQ(policy->rdma.subnets[0].text, "fd00::/8");
}

TEST_F(PathPolicyTest, TheEnvironmentNamesDevicesGidAndSubnets) {
  Set("WEFT_DEVICES", "mlx5_0,rxe0:1");
  Set("WEFT_GID_INDEX", "0");
  Set("WEFT_SUBNETS", "10.1.0.0/16,fd00::/8");
  Set("WEFT_ROUTED", "1");
  const absl::StatusOr<PathPolicy> policy = ReadPathPolicy({});
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->rdma.devices, (std::vector<std::string>{"mlx5_0", "rxe0:1"}));
  EXPECT_EQ(policy->rdma.gid_index, 0);
  EXPECT_EQ(policy->rdma.subnets.size(), 2u);
  EXPECT_TRUE(policy->allow_routed);
}

TEST_F(PathPolicyTest, ValuesThatCannotBeAreNamedWithWhatIsAllowed) {
  const struct {
    const char* name;
    const char* value;
    const char* why;
  } kCases[] = {
      {"WEFT_PATHS", "ib", "the known ones are shm, verbs, tcp"},
      {"WEFT_DEVICES", "mlx5_0,", "\"\" is no RDMA device; use names as in mlx5_0"},
      {"WEFT_DEVICES", "../x", "\"../x\" is no RDMA device"},
      {"WEFT_GID_INDEX", "-1", "it must be a number, 0..4095"},
      {"WEFT_GID_INDEX", "4096", "it must be a number, 0..4095"},
      {"WEFT_GID_INDEX", "three", "it must be a number, 0..4095"},
      {"WEFT_SUBNETS", "10.1.0.0/33", "0..32 bits"},
      {"WEFT_SUBNETS", "eth0", "is no subnet"},
      {"WEFT_ROUTED", "yes", "it must be 0 or 1"},
  };
  for (const auto& c : kCases) {
    Clear();
    Set(c.name, c.value);
    const absl::Status status = ReadPathPolicy({}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name << "=" << c.value;
    const std::string text(status.message());
    EXPECT_NE(text.find(std::string(c.name) + "=" + c.value), std::string::npos) << text;
    EXPECT_NE(text.find(c.why), std::string::npos) << text;
  }
}

TEST_F(PathPolicyTest, OptionsThatCannotBeAreNamed) {
  const struct {
    void (*change)(LinkOptions&);
    const char* why;
  } kCases[] = {
      {[](LinkOptions& o) { o.devices = {""}; }, "LinkOptions::devices"},
      {[](LinkOptions& o) { o.devices.resize(65, "mlx5_0"); }, "has 65 names; the limit is 64"},
      {[](LinkOptions& o) { o.gid_index = -2; }, "LinkOptions::gid_index is -2"},
      {[](LinkOptions& o) { o.gid_index = 4096; }, "LinkOptions::gid_index is 4096"},
      {[](LinkOptions& o) { o.subnets = {"10.0.0.1/8"}; }, "LinkOptions::subnets"},
  };
  for (const auto& c : kCases) {
    LinkOptions options;
    c.change(options);
    const absl::Status status = ReadPathPolicy(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_NE(std::string(status.message()).find(c.why), std::string::npos) << status;
  }
}

TEST_F(PathPolicyTest, WhatIsDeniedIsOneOfferHoweverManyDevicesThereAre) {
  std::vector<PathOffer> all(4);
  all[0].kind = PathKind::kShm;
  for (size_t i = 1; i < 3; ++i) {
    all[i].kind = PathKind::kVerbs;
    all[i].device = "mlx5_" + std::to_string(i);
  }
  LinkOptions options;
  options.paths = {PathKind::kTcp};
  const std::vector<PathOffer> offers = ApplyPolicy(*ReadPathPolicy(options), all);
  ASSERT_EQ(offers.size(), 3u);
  EXPECT_EQ(offers[0].kind, PathKind::kTcp);
  EXPECT_EQ(offers[2].kind, PathKind::kVerbs);
  EXPECT_EQ(offers[2].device, "");
  EXPECT_EQ(offers[2].unavailable, "denied by its options (paths = tcp)");
}

TEST_F(PathPolicyTest, WhatTheProgramLacksIsSaid) {
  const std::vector<PathOffer> offers = ApplyPolicy(*ReadPathPolicy({}), {});
  ASSERT_EQ(offers.size(), 3u);
  EXPECT_EQ(offers[1].unavailable, "this path is not part of the program");
}

TEST_F(PathPolicyTest, TheEnvironmentIsDescribed) {
  Set("WEFT_DEVICES", "mlx5_0");
  const std::string text = DescribeEnvironment();
  EXPECT_NE(text.find("WEFT_DEVICES=mlx5_0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("WEFT_PATHS is not set: all paths"), std::string::npos) << text;
}

}  // namespace
}  // namespace weft
