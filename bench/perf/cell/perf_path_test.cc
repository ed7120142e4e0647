#include "bench/perf/cell/perf_path.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HostPath Rdma(const std::string& device, LinkKind link, const std::string& address, uint32_t place,
              const std::string& driver = "") {
  HostPath path;
  path.kind = PathKind::kVerbs;
  path.link = link;
  path.device = device;
  path.port = 1;
  path.address = address;
  path.place = place;
  path.driver = driver;
  if (place == 0) path.reason = "its port is DOWN";
  return path;
}

// A machine with these RDMA paths, and what every machine has.
HostPaths Host(std::vector<HostPath> rdma) {
  HostPaths host;
  host.paths.resize(2);
  host.paths[0].kind = PathKind::kShm;
  for (HostPath& path : rdma) host.paths.push_back(std::move(path));
  return host;
}

HostPath Rxe() { return Rdma("rxe0", LinkKind::kRoceV2, "192.168.77.1/24", 1); }
HostPath Siw() { return Rdma("siw0", LinkKind::kIwarp, "192.168.78.1/24", 2); }
HostPath Roce() { return Rdma("mlx5_2", LinkKind::kRoceV2, "10.2.0.3/16", 1, "mlx5_core"); }
HostPath Iwarp() { return Rdma("irdma0", LinkKind::kIwarp, "10.3.0.3/16", 1, "irdma"); }

// "rxe0:1 192.168.77.1", or why not.
std::string Found(const std::string& name, std::vector<HostPath> rdma) {
  const auto path = ChoosePerfPath(name, Host(std::move(rdma)));
  return path.ok() ? path->device + " " + path->host : std::string(path.status().message());
}

TEST(PerfPathTest, SharedMemoryAndTcpAreEverywhereAndNeedNoDevice) {
  for (const char* name : {"shm", "tcp"}) {
    const auto path = ChoosePerfPath(name, Host({}));
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(path->name, name);
    EXPECT_EQ(path->device, "");
    EXPECT_EQ(path->host, "127.0.0.1");
  }
}

TEST(PerfPathTest, RdmaPathsAreTheirDeviceAndAnAddressOfIt) {
  EXPECT_EQ(Found("rxe", {Rxe()}), "rxe0:1 192.168.77.1");
  EXPECT_EQ(Found("siw", {Siw()}), "siw0:1 192.168.78.1");
  EXPECT_EQ(Found("verbs", {Roce()}), "mlx5_2:1 10.2.0.3");
}

TEST(PerfPathTest, ADeviceOfAnotherKindIsNotTaken) {
  EXPECT_THAT(Found("siw", {Rxe()}), HasSubstr("no Soft-iWARP device"));
  EXPECT_THAT(Found("rxe", {Siw()}), HasSubstr("no Soft-RoCE device"));
  EXPECT_THAT(Found("verbs", {Rxe()}), HasSubstr("no RDMA hardware"));
}

// What is measured on a card must not come out as emulated, nor the other way round.
TEST(PerfPathTest, CardsAreNotEmulatedAndSoftwareIsNotHardware) {
  EXPECT_THAT(Found("rxe", {Roce()}), HasSubstr("no Soft-RoCE device"));
  EXPECT_THAT(Found("siw", {Iwarp()}), HasSubstr("no Soft-iWARP device"));
  EXPECT_TRUE(IsEmulated("rxe"));
  EXPECT_TRUE(IsEmulated("siw"));
  EXPECT_FALSE(IsEmulated("verbs"));
  EXPECT_FALSE(IsEmulated("tcp"));
}

TEST(PerfPathTest, WhereThereIsNoDeviceTheLabIsNamed) {
  for (const char* name : {"rxe", "siw"}) {
    EXPECT_THAT(Found(name, {}), HasSubstr(std::string("./dev lab perf --device ") + name));
  }
  EXPECT_THAT(Found("verbs", {}), HasSubstr("./dev lab perf"));
}

TEST(PerfPathTest, ADeviceThatCannotBeUsedSaysWhyNot) {
  const std::string why =
      Found("rxe", {Rdma("rxe0", LinkKind::kRoceV2, "192.168.77.1/24", /*place=*/0)});
  EXPECT_THAT(why, HasSubstr("rxe0:1"));
  EXPECT_THAT(why, HasSubstr("DOWN"));
  EXPECT_THAT(why, Not(HasSubstr("no Soft-RoCE")));
}

TEST(PerfPathTest, OfSeveralPortsTheOneIsMeasuredThatConnectionsWouldUse) {
  EXPECT_EQ(
      Found("verbs", {Rdma("mlx5_0", LinkKind::kRoceV2, "", 0, "mlx5_core"),
                      Rdma("mlx5_1", LinkKind::kRoceV2, "fd00::1/64", 2, "mlx5_core"), Roce()}),
      "mlx5_2:1 10.2.0.3");
}

TEST(PerfPathTest, NamesLeadToThePathsThatWeftHas) {
  PerfPath path;
  for (const auto& [name, kind] : {std::pair{"shm", PathKind::kShm},
                                   {"tcp", PathKind::kTcp},
                                   {"ofi_tcp", PathKind::kOfiTcp},
                                   {"verbs", PathKind::kVerbs},
                                   {"rxe", PathKind::kVerbs},
                                   {"siw", PathKind::kVerbs}}) {
    path.name = name;
    EXPECT_EQ(path.kind(), kind) << name;
  }
  EXPECT_EQ(PerfPathNames().size(), 6u);
  EXPECT_FALSE(IsPerfPath("ib"));
}

}  // namespace
}  // namespace weft::bench
