#include "bench/perf/perf_path.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/devices/recorded_tree.h"

namespace weft::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RdmaProcessFacts Unlimited() {
  RdmaProcessFacts facts;
  facts.memlock_bytes = ~uint64_t{0};
  return facts;
}

absl::StatusOr<PerfPath> Choose(const std::string& name, const RecordedTree& tree) {
  return ChoosePerfPath(name, tree.Ports(), Unlimited());
}

// "rxe0:1 192.168.77.1", or why not.
std::string Found(const std::string& name, const std::string& tree) {
  const auto path = Choose(name, RecordedTree(tree));
  return path.ok() ? path->device + " " + path->host : std::string(path.status().message());
}

TEST(PerfPathTest, SharedMemoryAndTcpAreEverywhereAndNeedNoDevice) {
  for (const char* name : {"shm", "tcp"}) {
    const auto path = Choose(name, RecordedTree("no_rdma"));
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(path->name, name);
    EXPECT_EQ(path->device, "");
    EXPECT_EQ(path->host, "127.0.0.1");
  }
}

TEST(PerfPathTest, RdmaPathsAreTheirDeviceAndAnAddressOfIt) {
  EXPECT_EQ(Found("rxe", "rxe"), "rxe0:1 192.168.77.1");
  EXPECT_EQ(Found("siw", "siw"), "siw0:1 192.168.77.1");
  EXPECT_EQ(Found("verbs", "roce_v2"), "mlx5_2:1 10.2.0.3");
}

TEST(PerfPathTest, ADeviceOfAnotherKindIsNotTaken) {
  EXPECT_THAT(Found("siw", "rxe"), HasSubstr("no Soft-iWARP device"));
  EXPECT_THAT(Found("rxe", "siw"), HasSubstr("no Soft-RoCE device"));
  EXPECT_THAT(Found("verbs", "rxe"), HasSubstr("no RDMA hardware"));
}

// What is measured on a card must not come out as emulated, nor the other way round.
TEST(PerfPathTest, CardsAreNotEmulatedAndSoftwareIsNotHardware) {
  EXPECT_THAT(Found("rxe", "roce_v2"), HasSubstr("no Soft-RoCE device"));
  EXPECT_THAT(Found("siw", "iwarp"), HasSubstr("no Soft-iWARP device"));
  EXPECT_TRUE(IsEmulated("rxe"));
  EXPECT_TRUE(IsEmulated("siw"));
  EXPECT_FALSE(IsEmulated("verbs"));
  EXPECT_FALSE(IsEmulated("tcp"));
}

TEST(PerfPathTest, WhereThereIsNoDeviceTheLabIsNamed) {
  for (const char* name : {"rxe", "siw"}) {
    EXPECT_THAT(Found(name, "no_rdma"), HasSubstr(std::string("./dev lab perf --device ") + name));
  }
  EXPECT_THAT(Found("verbs", "no_rdma"), HasSubstr("./dev lab perf"));
}

TEST(PerfPathTest, ADeviceThatCannotBeUsedSaysWhyNot) {
  RecordedTree tree("rxe");
  tree.Add("[class/infiniband/rxe0/ports/1]\nstate = 1: DOWN");
  const auto path = Choose("rxe", tree);
  ASSERT_FALSE(path.ok());
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("rxe0:1"));
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("DOWN"));
  EXPECT_THAT(std::string(path.status().message()), Not(HasSubstr("no Soft-RoCE")));
}

TEST(PerfPathTest, NamesLeadToThePathsThatWeftHas) {
  PerfPath path;
  for (const auto& [name, kind] : {std::pair{"shm", PathKind::kShm},
                                   {"tcp", PathKind::kTcp},
                                   {"verbs", PathKind::kVerbs},
                                   {"rxe", PathKind::kVerbs},
                                   {"siw", PathKind::kVerbs}}) {
    path.name = name;
    EXPECT_EQ(path.kind(), kind) << name;
  }
  EXPECT_EQ(PerfPathNames().size(), 5u);
  EXPECT_FALSE(IsPerfPath("ib"));
}

}  // namespace
}  // namespace weft::bench
