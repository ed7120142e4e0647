#include "transport/ofi/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

namespace weft {
namespace {

using ::testing::HasSubstr;

// Found on a host without verbs: "no interface that it can use" was said of a provider that the
// library did not have, because libfabric answers for all providers, whatever name is asked for.
TEST(DeviceList, AProviderThatIsNotThereSaysWhichAre) {
  const auto devices = ListFabricDevices("no_such_provider");
  ASSERT_EQ(devices.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(devices.status().ToString(), HasSubstr("not in this library (present: "));
}

// libfabric lists a provider that FI_PROVIDER excludes as if it could be used.
TEST(DeviceList, AProviderThatTheEnvironmentExcludesSaysSo) {
  const auto why = [](const char* filter) {
    ::setenv("FI_PROVIDER", filter, /*overwrite=*/1);
    return ListFabricDevices("no_such_provider").status().ToString();
  };
  EXPECT_THAT(why("tcp,shm"), HasSubstr("excluded by FI_PROVIDER=tcp,shm"));
  EXPECT_THAT(why("^no_such_provider"), HasSubstr("excluded by FI_PROVIDER=^no_such_provider"));
  EXPECT_THAT(why("^tcp"), HasSubstr("not in this library"));
  EXPECT_THAT(why(""), HasSubstr("not in this library"));
  ::unsetenv("FI_PROVIDER");
}

TEST(DeviceList, NamesOfTcpAreInterfacesOfThisHostAndComeOnce) {
  const auto devices = ListFabricDevices("tcp");
  ASSERT_TRUE(devices.ok()) << devices.status();
  std::set<std::string> names;
  for (const FabricDevice& device : *devices) {
    EXPECT_EQ(device.provider, "tcp");
    EXPECT_TRUE(std::filesystem::exists("/sys/class/net/" + device.name)) << device.name;
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
  }
}

TEST(DeviceList, RdmaDevicesOfVerbsAreThoseOfTheKernel) {
  const auto devices = ListFabricDevices("verbs");
  if (!devices.ok()) GTEST_SKIP() << "no verbs here: " << devices.status();
  for (const FabricDevice& device : *devices) {
    EXPECT_TRUE(std::filesystem::exists("/sys/class/infiniband/" + device.name)) << device.name;
    EXPECT_GT(device.mtu_bytes, 0u);
  }
}

}  // namespace
}  // namespace weft
