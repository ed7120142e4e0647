// Which ports are offered, in which order, and each reason not to.
#include "transport/devices/rdma_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/devices/numa.h"
#include "transport/devices/testing/recorded_tree.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr uint64_t kMiB = uint64_t{1} << 20;

RdmaProcessFacts Unlimited() {
  RdmaProcessFacts facts;
  facts.memlock_bytes = ~uint64_t{0};
  facts.wanted_lock_bytes = 16 * kMiB;
  return facts;
}

RdmaFilter OnlyDevices(std::vector<std::string> devices) {
  RdmaFilter filter;
  filter.devices = std::move(devices);
  return filter;
}

// The reason of the host's first port, asked for alone.
std::string WhyNot(const RecordedTree& tree, const RdmaFilter& filter = {},
                   const RdmaProcessFacts& process = Unlimited()) {
  std::vector<RdmaPort> ports = tree.Ports();
  ports.resize(1);
  const std::vector<RdmaOffer> offers = ChooseRdma(ports, filter, process);
  return offers.empty() ? "nothing is offered" : offers[0].unusable;
}

std::string WhyNot(const std::string& tree, const std::string& changes = "",
                   const RdmaFilter& filter = {}) {
  RecordedTree recorded(tree);
  recorded.Add(changes);
  return WhyNot(recorded, filter);
}

// "mlx5_0:1 10.0.0.1", in the order of preference; what is not usable is in brackets.
std::vector<std::string> Order(const std::vector<RdmaOffer>& offers) {
  std::vector<std::string> names;
  for (const RdmaOffer& offer : offers) {
    const std::string name = offer.device + " " + offer.address.host;
    names.push_back(offer.unusable.empty() ? name : "[" + name + "]");
  }
  return names;
}

RdmaPort MakePort(const std::string& device, LinkKind link, const std::string& host) {
  RdmaPort port;
  port.device = device;
  port.node_type = link == LinkKind::kIwarp ? "4: RNIC" : "1: CA";
  port.link = link;
  port.state = "ACTIVE";
  port.gbit_per_s = 100;
  port.uverbs = port.rdma_cm = {"/dev/infiniband/x", true, true};
  RdmaAddress address;
  address.host = host;
  address.gid_index = 0;
  address.link = link;
  port.addresses.push_back(address);
  return port;
}

TEST(RdmaChoice, EveryRecordedHostsFirstPortIsUsableButTheDownOne) {
  for (const char* tree : {"infiniband_edr", "roce_v1", "roce_v2", "iwarp", "rxe", "siw"}) {
    EXPECT_EQ(WhyNot(tree), "") << tree;
  }
  EXPECT_NE(WhyNot("dual_port"), "");
}

TEST(RdmaChoice, AllAddressesOfAPortAreOfferedAndItsGidsWithThem) {
  const auto offers = ChooseRdma(RecordedTree("roce_v2").Ports(), {}, Unlimited());
  EXPECT_THAT(Order(offers),
              ElementsAre("mlx5_2:1 10.2.0.3", "mlx5_2:1 10.100.0.3", "mlx5_2:1 fd00:2::3"));
  EXPECT_EQ(offers[0].address.gid_index, 3);
  EXPECT_EQ(offers[0].link, LinkKind::kRoceV2);
}

TEST(RdmaChoice, UsablePortsComeFirstAndTheOthersKeepTheirReason) {
  const auto offers = ChooseRdma(RecordedTree("dual_port").Ports(), {}, Unlimited());
  EXPECT_THAT(Order(offers), ElementsAre("mlx4_0:2 10.3.0.9", "[mlx4_0:1 10.40.0.9]"));
}

TEST(RdmaChoice, KindsOfLinkHaveAnOrder) {
  const auto offers = ChooseRdma(
      {MakePort("a", LinkKind::kIwarp, "10.0.0.1"), MakePort("b", LinkKind::kRoceV1, "10.0.0.2"),
       MakePort("c", LinkKind::kRoceV2, "10.0.0.3"),
       MakePort("d", LinkKind::kInfiniBand, "10.0.0.4")},
      {}, Unlimited());
  EXPECT_THAT(Order(offers),
              ElementsAre("d:1 10.0.0.4", "c:1 10.0.0.3", "b:1 10.0.0.2", "a:1 10.0.0.1"));
}

TEST(RdmaChoice, NearPortsComeFirstThenTheFaster) {
  RdmaPort near = MakePort("near", LinkKind::kRoceV2, "10.0.0.1");
  RdmaPort fast_and_near = MakePort("fast", LinkKind::kRoceV2, "10.0.0.2");
  RdmaPort far = MakePort("far", LinkKind::kRoceV2, "10.0.0.3");
  near.numa_node = fast_and_near.numa_node = 1;
  fast_and_near.gbit_per_s = 200;
  far.numa_node = 0;
  far.gbit_per_s = 400;
  RdmaProcessFacts process = Unlimited();
  process.near_nodes = {1};
  EXPECT_THAT(Order(ChooseRdma({far, near, fast_and_near}, {}, process)),
              ElementsAre("fast:1 10.0.0.2", "near:1 10.0.0.1", "far:1 10.0.0.3"));
  process.near_nodes = {};  // unknown: all are alike
  EXPECT_THAT(Order(ChooseRdma({far, near, fast_and_near}, {}, process)),
              ElementsAre("far:1 10.0.0.3", "fast:1 10.0.0.2", "near:1 10.0.0.1"));
}

TEST(RdmaChoice, PortsThatAreAlikeBeginWithTheOneThatIsAskedFor) {
  const std::vector<RdmaPort> ports = {MakePort("a", LinkKind::kRoceV2, "10.0.0.1"),
                                       MakePort("b", LinkKind::kRoceV2, "10.0.1.1"),
                                       MakePort("c", LinkKind::kRoceV2, "10.0.2.1")};
  const auto order = [&](uint32_t first_port) {
    RdmaFilter filter;
    filter.first_port = first_port;
    return Order(ChooseRdma(ports, filter, Unlimited()));
  };
  EXPECT_THAT(order(0), ElementsAre("a:1 10.0.0.1", "b:1 10.0.1.1", "c:1 10.0.2.1"));
  EXPECT_THAT(order(1), ElementsAre("b:1 10.0.1.1", "c:1 10.0.2.1", "a:1 10.0.0.1"));
  EXPECT_THAT(order(2), ElementsAre("c:1 10.0.2.1", "a:1 10.0.0.1", "b:1 10.0.1.1"));
  EXPECT_EQ(order(3), order(0));
  EXPECT_EQ(order(~uint32_t{0}), order(~uint32_t{0} % 3));
}

// Whichever is asked for: what is better comes first, and what is worse is the last resort.
TEST(RdmaChoice, ThePortThatIsAskedForComesBeforeNoBetterOne) {
  RdmaPort slow = MakePort("a", LinkKind::kRoceV2, "10.0.0.1");
  slow.gbit_per_s = 10;
  const std::vector<RdmaPort> ports = {slow, MakePort("b", LinkKind::kRoceV2, "10.0.1.1"),
                                       MakePort("c", LinkKind::kRoceV2, "10.0.2.1"),
                                       MakePort("d", LinkKind::kIwarp, "10.0.3.1")};
  RdmaFilter filter;
  filter.first_port = 1;
  EXPECT_THAT(Order(ChooseRdma(ports, filter, Unlimited())),
              ElementsAre("c:1 10.0.2.1", "b:1 10.0.1.1", "a:1 10.0.0.1", "d:1 10.0.3.1"));
}

TEST(RdmaChoice, AllAddressesOfAPortHaveItsTurn) {
  std::vector<RdmaPort> ports = {MakePort("a", LinkKind::kRoceV2, "10.0.0.1"),
                                 MakePort("b", LinkKind::kRoceV2, "10.0.1.1")};
  for (RdmaPort& port : ports) {
    RdmaAddress v6 = port.addresses[0];
    v6.host = port.device == "a" ? "fd00::1" : "fd00:1::1";
    port.addresses.push_back(v6);
  }
  RdmaFilter filter;
  filter.first_port = 1;
  EXPECT_THAT(Order(ChooseRdma(ports, filter, Unlimited())),
              ElementsAre("b:1 10.0.1.1", "a:1 10.0.0.1", "b:1 fd00:1::1", "a:1 fd00::1"));
}

// A machine of two nodes with a card on each, made up: there was none to record.
class TwoNodes : public testing::Test {
 protected:
  TwoNodes() : tree_("roce_v2") {
    tree_.Add(
        "[devices/system/node/node0]\ncpulist = 0-3,8\n"
        "[devices/system/node/node1]\ncpulist = 4-7\n"
        "[devices/system/node/node2]\ncpulist = \n"  // memory alone
        "[devices/system/node]\nonline = 0-2\n");
  }
  const std::string& sysfs() { return tree_.sources().sysfs; }

  RecordedTree tree_;
};

TEST_F(TwoNodes, HaveTheirProcessors) {
  EXPECT_THAT(ProcessorsOfNode(sysfs(), 0), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(ProcessorsOfNode(sysfs(), 1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ProcessorsOfNode(sysfs(), 2), IsEmpty());
  EXPECT_THAT(ProcessorsOfNode(sysfs(), 3), IsEmpty());
  EXPECT_THAT(ProcessorsOfNode(sysfs(), -1), IsEmpty());
  EXPECT_EQ(NodeOfProcessor(sysfs(), 8), 0);
  EXPECT_EQ(NodeOfProcessor(sysfs(), 4), 1);
  EXPECT_EQ(NodeOfProcessor(sysfs(), 9), -1);
  EXPECT_THAT(NodesOfProcessors(sysfs(), {3, 4}), ElementsAre(0, 1));
  EXPECT_THAT(NodesOfProcessors(sysfs(), {5, 6}), ElementsAre(1));
  EXPECT_THAT(NodesOfProcessors("/nothing/is/here", {0}), IsEmpty());
}

TEST_F(TwoNodes, AnEngineThatIsPinnedPrefersTheCardOfItsNode) {
  RdmaPort of_node0 = MakePort("mlx5_0", LinkKind::kRoceV2, "10.0.0.1");
  RdmaPort of_node1 = MakePort("mlx5_1", LinkKind::kRoceV2, "10.0.1.1");
  of_node0.numa_node = 0;
  of_node1.numa_node = 1;
  of_node0.gbit_per_s = 400;
  const auto order_on = [&](int cpu) {
    RdmaProcessFacts facts = Unlimited();
    facts.near_nodes = {NodeOfProcessor(sysfs(), cpu)};
    return Order(ChooseRdma({of_node0, of_node1}, {}, facts));
  };
  EXPECT_THAT(order_on(2), ElementsAre("mlx5_0:1 10.0.0.1", "mlx5_1:1 10.0.1.1"));
  EXPECT_THAT(order_on(5), ElementsAre("mlx5_1:1 10.0.1.1", "mlx5_0:1 10.0.0.1"));
}

TEST(RdmaProcess, ANodeThatTheEngineHasIsItsOnlyNearOne) {
  EXPECT_THAT(ReadRdmaProcessFacts(kMiB, /*numa_node=*/5).near_nodes, ElementsAre(5));
}

TEST(RdmaChoice, TheLeastPreferredOfManyAreCutOff) {
  std::vector<RdmaPort> ports = {MakePort("slow", LinkKind::kRoceV2, "10.0.0.1")};
  ports[0].gbit_per_s = 10;
  for (size_t i = 0; i < kMaxRdmaOffers; ++i) {
    ports.push_back(MakePort("m" + std::to_string(i), LinkKind::kRoceV2, "10.0.0.1"));
  }
  const auto offers = ChooseRdma(ports, {}, Unlimited());
  ASSERT_EQ(offers.size(), kMaxRdmaOffers);
  EXPECT_EQ(offers.front().device, "m0:1");
  EXPECT_EQ(offers.back().device, "m7:1");
}

TEST(RdmaChoice, NothingIsOfferedWhereThereIsNothing) {
  EXPECT_THAT(ChooseRdma({}, {}, Unlimited()), IsEmpty());
}

TEST(Reasons, DevicesAreNamedWithOrWithoutTheirPort) {
  EXPECT_EQ(WhyNot("rxe", "", OnlyDevices({"rxe0"})), "");
  EXPECT_EQ(WhyNot("rxe", "", OnlyDevices({"mlx5_0", "rxe0:1"})), "");
  EXPECT_THAT(WhyNot("rxe", "", OnlyDevices({"rxe0:2"})),
              AllOf(StartsWith("not in WEFT_DEVICES=rxe0:2"), HasSubstr("add rxe0:1")));
}

TEST(Reasons, OtherNodeTypesHaveNoReliableConnections) {
  EXPECT_THAT(WhyNot("rxe", "[class/infiniband/rxe0]\nnode_type = 6: usNIC UDP"),
              HasSubstr("\"6: usNIC UDP\" has no reliable connections"));
}

TEST(Reasons, ModulesThatAreNotLoadedAreNamed) {
  RecordedTree tree("rxe");
  tree.Remove("class/misc/rdma_cm");
  EXPECT_THAT(WhyNot(tree), HasSubstr("modprobe rdma_ucm"));
  tree.Remove("class/infiniband_verbs");
  EXPECT_THAT(WhyNot(tree), HasSubstr("modprobe ib_uverbs"));
}

TEST(Reasons, AContainerWithoutTheDeviceFilesSaysHowToGiveThem) {
  RecordedTree tree("rxe");
  tree.Remove("dev/infiniband/rdma_cm");
  EXPECT_THAT(WhyNot(tree), AllOf(HasSubstr("/rdma_cm is missing"), HasSubstr("--device=")));
  tree.Remove("dev/infiniband/uverbs0");
  EXPECT_THAT(WhyNot(tree), AllOf(HasSubstr("/uverbs0 is missing"), HasSubstr("--device=")));
}

TEST(Reasons, DeviceFilesThatThisUserMayNotOpenAreNamed) {
  RdmaPort port = MakePort("mlx5_0", LinkKind::kRoceV2, "10.0.0.1");
  port.uverbs = {"/dev/infiniband/uverbs0", /*exists=*/true, /*permitted=*/false};
  EXPECT_THAT(ChooseRdma({port}, {}, Unlimited())[0].unusable,
              AllOf(HasSubstr("no permission to open /dev/infiniband/uverbs0"),
                    HasSubstr("ls -l /dev/infiniband/uverbs0")));
}

TEST(Reasons, AnEthernetPortThatIsDownSaysHowToRaiseIt) {
  EXPECT_THAT(
      WhyNot("rxe", "[class/infiniband/rxe0/ports/1]\nstate = 1: DOWN\nphys_state = 3: Disabled"),
      AllOf(HasSubstr("the port is DOWN, Disabled"), HasSubstr("ip link set eth0 up")));
}

TEST(Reasons, AnInfiniBandPortWithoutASubnetManagerSaysSo) {
  EXPECT_THAT(WhyNot("dual_port"), AllOf(HasSubstr("the port is INIT, LinkUp"),
                                         HasSubstr("no subnet manager"), HasSubstr("opensm")));
  EXPECT_THAT(WhyNot("dual_port",
                     "[class/infiniband/mlx4_0/ports/1]\nstate = 1: DOWN\nphys_state = 2: Polling"),
              AllOf(HasSubstr("DOWN, Polling"), HasSubstr("cable")));
}

TEST(Reasons, WithoutAnAddressRdmaCmFindsNoPort) {
  RecordedTree tree("rxe");
  std::vector<RdmaPort> ports = tree.Ports();
  ports[0].addresses.clear();
  EXPECT_THAT(ChooseRdma(ports, {}, Unlimited())[0].unusable,
              AllOf(StartsWith("no IP address"), HasSubstr("dev eth0")));
}

TEST(Reasons, InfiniBandWithoutIpoibSaysHowToGetIt) {
  RdmaPort port = MakePort("mlx5_0", LinkKind::kInfiniBand, "");
  port.addresses.clear();
  EXPECT_THAT(ChooseRdma({port}, {}, Unlimited())[0].unusable, HasSubstr("modprobe ib_ipoib"));
  port.interfaces = {"ib3"};
  EXPECT_THAT(ChooseRdma({port}, {}, Unlimited())[0].unusable, HasSubstr("dev ib3"));
}

TEST(Reasons, AnIpoibInterfaceThatIsDownSaysHowToRaiseIt) {
  EXPECT_THAT(WhyNot("dual_port", "[class/infiniband/mlx4_0/ports/1]\nstate = 4: ACTIVE"),
              HasSubstr("ip link set ib0 up"));
}

TEST(Reasons, AddressesOutsideOfTheSubnetsAreDenied) {
  RdmaFilter filter;
  filter.subnets = {*ParseSubnet("10.0.0.0/8"), *ParseSubnet("fd00::/16")};
  EXPECT_THAT(WhyNot("rxe", "", filter),
              StartsWith("192.168.77.1 is in no subnet of WEFT_SUBNETS=10.0.0.0/8,fd00::/16"));
  filter.subnets.push_back(*ParseSubnet("fd77::/64"));
  const auto offers = ChooseRdma(RecordedTree("rxe").Ports(), filter, Unlimited());
  EXPECT_THAT(Order(offers), ElementsAre("rxe0:1 fd77::1"));
}

TEST(Reasons, AGidIndexSelectsTheAddressThatUsesIt) {
  RdmaFilter filter;
  filter.gid_index = 7;
  const auto offers = ChooseRdma(RecordedTree("roce_v2").Ports(), filter, Unlimited());
  EXPECT_THAT(Order(offers), ElementsAre("mlx5_2:1 10.100.0.3"));
}

TEST(Reasons, AGidIndexOfTheOtherRoceVersionNamesTheCommandThatChangesIt) {
  RdmaFilter filter;
  filter.gid_index = 2;
  EXPECT_THAT(WhyNot("roce_v2", "", filter),
              AllOf(HasSubstr("is of type IB/RoCE v1, but rdma_cm uses RoCE v2"),
                    HasSubstr("echo \"IB/RoCE v1\" > "
                              "/sys/kernel/config/rdma_cm/mlx5_2/ports/1/default_roce_mode")));
}

TEST(Reasons, AGidIndexThatIsEmptyNamesThoseInUse) {
  RdmaFilter filter;
  filter.gid_index = 100;
  EXPECT_THAT(WhyNot("roce_v2", "", filter),
              AllOf(HasSubstr("GID index 100"), HasSubstr("0, 1, 2, 3, 4, 5, 6, 7")));
}

TEST(Reasons, AGidIndexOfNoAddressIsExplained) {
  RdmaFilter filter;
  filter.gid_index = 1;  // link-local
  EXPECT_THAT(WhyNot("roce_v2", "", filter),
              AllOf(HasSubstr("GID index 1"), HasSubstr("fe80:"), HasSubstr("use index 3")));
}

TEST(Reasons, AModeWithoutGidsNamesTheCommandThatChangesIt) {
  EXPECT_THAT(
      WhyNot("roce_v1", "[kernel/config/rdma_cm/mlx4_0/ports/1]\ndefault_roce_mode = RoCE v2"),
      AllOf(StartsWith("no GID of type RoCE v2 for 10.1.0.5"), HasSubstr("index 1 has it"),
            HasSubstr("echo \"IB/RoCE v1\" > /sys/kernel/config/rdma_cm/mlx4_0/ports/1/")));
}

TEST(Reasons, AnAddressThatTheCardDoesNotKnowIsExplained) {
  RecordedTree tree("roce_v2");
  tree.Add("@ enp65s0f0 10.9.9.9/24");
  const std::vector<RdmaPort> ports = tree.Ports();
  const RdmaAddress& unknown = ports[0].addresses[2];
  ASSERT_EQ(unknown.host, "10.9.9.9");
  EXPECT_THAT(WhyNotUsable(ports[0], &unknown, {}, Unlimited()),
              StartsWith("no GID of type RoCE v2 for 10.9.9.9"));
}

TEST(Reasons, AnEmptyGidTableSaysHowToFillIt) {
  RecordedTree tree("rxe");
  tree.Remove("class/infiniband/rxe0/ports/1/gids");
  EXPECT_THAT(WhyNot(tree), AllOf(HasSubstr("GID table is empty"), HasSubstr("eth0")));
}

TEST(Reasons, TooLittleMemoryToLockNamesBothSizesAndTheCommands) {
  RdmaProcessFacts process = Unlimited();
  process.memlock_bytes = 8 * kMiB;
  EXPECT_THAT(WhyNot(RecordedTree("rxe"), {}, process),
              AllOf(StartsWith("memlock 8 MiB is too small for the pool of 16 MiB"),
                    HasSubstr("ulimit -l unlimited"), HasSubstr("LimitMEMLOCK=infinity"),
                    HasSubstr("/etc/security/limits.d")));
  process.memlock_bytes = 64 * 1024;
  EXPECT_THAT(WhyNot(RecordedTree("rxe"), {}, process), StartsWith("memlock 64 KiB"));
}

TEST(Reasons, ThePrivilegedLockWhatTheyLikeExceptOnSoftIwarp) {
  RdmaProcessFacts process = Unlimited();
  process.memlock_bytes = 8 * kMiB;
  process.may_lock_any = true;
  EXPECT_EQ(WhyNot(RecordedTree("rxe"), {}, process), "");
  EXPECT_EQ(WhyNot(RecordedTree("iwarp"), {}, process), "");
  EXPECT_THAT(WhyNot(RecordedTree("siw"), {}, process), StartsWith("memlock 8 MiB"));
}

TEST(NoRdma, AHostWithoutACardIsToldOfSoftRoce) {
  EXPECT_THAT(WhyNoRdma(RecordedTree("no_rdma").sources()),
              AllOf(StartsWith("no RDMA device: "), HasSubstr("type rxe")));
}

TEST(NoRdma, ACardWithoutItsModuleIsNamed) {
  RecordedTree tree("roce_v2");
  tree.Remove("class/infiniband/mlx5_2");
  EXPECT_THAT(WhyNoRdma(tree.sources()), AllOf(HasSubstr("core is loaded"), HasSubstr("enp65s0f0"),
                                               HasSubstr("modprobe mlx5_ib")));
}

TEST(NoRdma, AMissingSysfsIsNotTakenForAMissingDevice) {
  RdmaSources sources;
  sources.sysfs = "/nonexistent/sys";
  EXPECT_THAT(WhyNoRdma(sources), HasSubstr("mount -t sysfs"));
}

TEST(ProcessFacts, AreThoseOfThisProcess) {
  const RdmaProcessFacts facts = ReadRdmaProcessFacts(kMiB);
  EXPECT_EQ(facts.wanted_lock_bytes, kMiB);
  EXPECT_GT(facts.memlock_bytes, 0u);
  for (const int node : facts.near_nodes) EXPECT_GE(node, 0);
}

}  // namespace
}  // namespace weft
