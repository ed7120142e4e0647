// What is read from the trees of real and of well-documented hosts (testdata/).
#include "transport/devices/rdma_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/devices/port_mtu.h"
#include "transport/devices/testing/recorded_tree.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Hosts(const RdmaPort& port) {
  std::vector<std::string> hosts;
  for (const RdmaAddress& address : port.addresses) hosts.push_back(address.host);
  return hosts;
}

std::vector<int> GidIndexes(const RdmaPort& port) {
  std::vector<int> indexes;
  for (const RdmaAddress& address : port.addresses) indexes.push_back(address.gid_index);
  return indexes;
}

TEST(RdmaPort, InfiniBandIsFoundByItsIpoibInterface) {
  const std::vector<RdmaPort> ports = RecordedTree("infiniband_edr").Ports();
  ASSERT_EQ(ports.size(), 1u);
  const RdmaPort& port = ports[0];
  EXPECT_EQ(port.name(), "mlx5_0:1");
  EXPECT_EQ(port.link, LinkKind::kInfiniBand);
  EXPECT_EQ(port.state, "ACTIVE");
  EXPECT_EQ(port.physical_state, "LinkUp");
  EXPECT_EQ(port.rate, "100 Gb/sec (4X EDR)");
  EXPECT_EQ(port.gbit_per_s, 100);
  EXPECT_EQ(port.numa_node, 1);
  EXPECT_EQ(port.driver, "mlx5_core");
  EXPECT_EQ(port.firmware, "16.35.4030");
  EXPECT_EQ(port.mtu_bytes, 2048u);
  EXPECT_EQ(port.cm_gid_type(), "");
  EXPECT_THAT(port.interfaces, ElementsAre("ib0"));
  EXPECT_THAT(Hosts(port), ElementsAre("10.40.0.17"));
  EXPECT_EQ(port.addresses[0].prefix_bits, 16u);
  EXPECT_EQ(port.addresses[0].gid_index, 0);
  EXPECT_EQ(port.addresses[0].link, LinkKind::kInfiniBand);
}

TEST(RdmaPort, AnInfiniBandBondLeadsToThePort) {
  RecordedTree tree("infiniband_edr");
  tree.Add("[class/net/ib0]\nmaster -> ../bond0\n@ bond0 10.41.0.1/16");
  const std::vector<RdmaPort> ports = tree.Ports();
  EXPECT_THAT(ports[0].interfaces, ElementsAre("ib0", "bond0"));
  EXPECT_THAT(Hosts(ports[0]), ElementsAre("10.40.0.17", "10.41.0.1"));
  EXPECT_THAT(GidIndexes(ports[0]), ElementsAre(0, 0));
}

TEST(RdmaPort, ADeviceInSoftwareHasTheNodeOfItsCard) {
  RecordedTree tree("rxe");
  EXPECT_EQ(tree.Ports()[0].numa_node, -1);
  // As the kernel has it of a virtual card: the one on the bus is the folder above "device".
  tree.Add("[class/net/eth0]\nnuma_node = 1");
  EXPECT_EQ(tree.Ports()[0].numa_node, 1);
  tree.Add("[class/net/eth0/device]\nnuma_node = 2");
  EXPECT_EQ(tree.Ports()[0].numa_node, 2);
}

TEST(RdmaPort, RoceWithoutV2IsV1) {
  const std::vector<RdmaPort> ports = RecordedTree("roce_v1").Ports();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].link, LinkKind::kRoceV1);
  EXPECT_EQ(ports[0].cm_gid_type(), kTypeRoceV1);
  EXPECT_EQ(ports[0].mtu_bytes, 4096u);
  EXPECT_THAT(Hosts(ports[0]), ElementsAre("10.1.0.5"));
  EXPECT_THAT(GidIndexes(ports[0]), ElementsAre(1));
}

TEST(RdmaPort, RoceWithBothIsV2AndChoosesTheGidByItsType) {
  const std::vector<RdmaPort> ports = RecordedTree("roce_v2").Ports();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].link, LinkKind::kRoceV2);
  EXPECT_EQ(ports[0].gids.size(), 8u);
  EXPECT_EQ(ports[0].gids[2].link, LinkKind::kRoceV1);
  EXPECT_THAT(ports[0].interfaces, ElementsAre("enp65s0f0", "enp65s0f0.100"));
  EXPECT_THAT(Hosts(ports[0]), ElementsAre("10.2.0.3", "fd00:2::3", "10.100.0.3"));
  EXPECT_THAT(GidIndexes(ports[0]), ElementsAre(3, 5, 7));
  EXPECT_EQ(ports[0].uverbs.path.substr(ports[0].uverbs.path.rfind('/')), "/uverbs2");
}

TEST(RdmaPort, ConfigfsDecidesAboutTheRoceVersion) {
  RecordedTree tree("roce_v2");
  tree.Add("[kernel/config/rdma_cm/mlx5_2/ports/1]\ndefault_roce_mode = IB/RoCE v1");
  const std::vector<RdmaPort> ports = tree.Ports();
  EXPECT_EQ(ports[0].roce_mode, kTypeRoceV1);
  EXPECT_EQ(ports[0].link, LinkKind::kRoceV1);
  EXPECT_EQ(ports[0].addresses[0].link, LinkKind::kRoceV1);
  EXPECT_THAT(GidIndexes(ports[0]), ElementsAre(2, 4, 6));
}

TEST(RdmaPort, AnAddressWithoutAGidOfTheWantedTypeHasNone) {
  RecordedTree tree("roce_v1");
  tree.Add("[kernel/config/rdma_cm/mlx4_0/ports/1]\ndefault_roce_mode = RoCE v2");
  EXPECT_THAT(GidIndexes(tree.Ports()[0]), ElementsAre(-1));
}

TEST(RdmaPort, IwarpIsFoundByItsHardwareAddressAndNotByTheNameOfItsGids) {
  const std::vector<RdmaPort> ports = RecordedTree("iwarp").Ports();
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0].gids[0].type, kTypeRoceV1);  // misleading
  EXPECT_EQ(ports[0].link, LinkKind::kIwarp);
  EXPECT_EQ(ports[0].gids[0].link, LinkKind::kIwarp);
  EXPECT_EQ(ports[0].mtu_bytes, 9000u);
  EXPECT_EQ(ports[0].cm_gid_type(), "");
  EXPECT_THAT(Hosts(ports[0]), ElementsAre("172.16.5.1"));
  EXPECT_EQ(ports[1].name(), "cxgb4_0:2");
  EXPECT_EQ(ports[1].state, "DOWN");
  EXPECT_THAT(Hosts(ports[1]), ElementsAre("172.16.6.1"));
}

// Without the GID's hint, port numbers tell the interfaces of one card apart.
TEST(RdmaPort, InterfacesOfOneCardBelongToThePortOfTheirNumber) {
  RecordedTree tree("iwarp");
  tree.Add("[class/net/enp2s0f4]\naddress = 02:00:00:00:00:01");
  tree.Add("[class/net/enp2s0f4d1]\naddress = 02:00:00:00:00:02");
  const std::vector<RdmaPort> ports = tree.Ports();
  EXPECT_THAT(ports[0].interfaces, ElementsAre("enp2s0f4"));
  EXPECT_THAT(ports[1].interfaces, ElementsAre("enp2s0f4d1"));
}

TEST(RdmaPort, PortsOfOneCardMayBeOfTwoKinds) {
  const std::vector<RdmaPort> ports = RecordedTree("dual_port").Ports();
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0].link, LinkKind::kInfiniBand);
  EXPECT_EQ(ports[0].state, "INIT");
  EXPECT_EQ(ports[0].mtu_bytes, 0u);  // connected mode hides it
  EXPECT_THAT(Hosts(ports[0]), ElementsAre("10.40.0.9"));
  EXPECT_FALSE(ports[0].addresses[0].interface_up);
  EXPECT_EQ(ports[1].link, LinkKind::kRoceV2);
  EXPECT_EQ(ports[1].mtu_bytes, 1024u);
  EXPECT_THAT(Hosts(ports[1]), ElementsAre("10.3.0.9"));
  EXPECT_THAT(GidIndexes(ports[1]), ElementsAre(3));
  EXPECT_EQ(ports[0].uverbs.path, ports[1].uverbs.path);
}

TEST(RdmaPort, SoftRoceIsV2AmongAThousandEmptyGids) {
  const std::vector<RdmaPort> ports = RecordedTree("rxe").Ports();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].link, LinkKind::kRoceV2);
  EXPECT_EQ(ports[0].gids.size(), 3u);
  EXPECT_EQ(ports[0].driver, "");
  EXPECT_EQ(ports[0].mtu_bytes, 1024u);
  EXPECT_THAT(Hosts(ports[0]), ElementsAre("192.168.77.1", "fd77::1"));
  EXPECT_THAT(GidIndexes(ports[0]), ElementsAre(1, 2));
}

TEST(RdmaPort, SoftRoceWithoutGidsIsFoundByItsParent) {
  RecordedTree tree("rxe");
  tree.Remove("class/infiniband/rxe0/ports/1/gids");
  const std::vector<RdmaPort> ports = tree.Ports();
  EXPECT_THAT(ports[0].gids, IsEmpty());
  EXPECT_EQ(ports[0].link, LinkKind::kUnknown);
  EXPECT_THAT(ports[0].interfaces, ElementsAre("eth0"));
  EXPECT_THAT(GidIndexes(ports[0]), ElementsAre(-1, -1));
}

TEST(RdmaPort, SoftIwarpIsFoundByItsHardwareAddress) {
  const std::vector<RdmaPort> ports = RecordedTree("siw").Ports();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].link, LinkKind::kIwarp);
  EXPECT_EQ(ports[0].driver, "");
  EXPECT_EQ(ports[0].mtu_bytes, 1500u);
  EXPECT_THAT(Hosts(ports[0]), ElementsAre("192.168.77.1", "fd77::1"));
  EXPECT_THAT(GidIndexes(ports[0]), ElementsAre(0, 0));
}

TEST(RdmaPort, DeviceFilesAreLookedFor) {
  RecordedTree tree("rxe");
  RdmaPort port = tree.Ports()[0];
  EXPECT_TRUE(port.uverbs.exists);
  EXPECT_TRUE(port.uverbs.permitted);
  EXPECT_TRUE(port.rdma_cm.exists);
  tree.Remove("dev/infiniband/uverbs0");
  port = tree.Ports()[0];
  EXPECT_NE(port.uverbs.path, "");
  EXPECT_FALSE(port.uverbs.exists);
  tree.Remove("class/infiniband_verbs");
  tree.Remove("class/misc/rdma_cm");
  port = tree.Ports()[0];
  EXPECT_EQ(port.uverbs.path, "");
  EXPECT_EQ(port.rdma_cm.path, "");
}

TEST(RdmaPort, AHostWithoutRdmaHasNoPorts) {
  EXPECT_THAT(RecordedTree("no_rdma").Ports(), IsEmpty());
}

TEST(RdmaPort, DevicesComeInTheOrderOfTheirNumbers) {
  RecordedTree tree("no_rdma");
  for (const char* name : {"mlx5_10", "mlx5_2", "mlx5_1"}) {
    tree.Add(std::string("[class/infiniband/") + name + "/ports/1]\nstate = 4: ACTIVE");
  }
  std::vector<std::string> names;
  for (const RdmaPort& port : tree.Ports()) names.push_back(port.device);
  EXPECT_THAT(names, ElementsAre("mlx5_1", "mlx5_2", "mlx5_10"));
}

TEST(RdmaPort, GidsAreWrittenAsTheKernelDoes) {
  EXPECT_EQ(GidText("192.168.77.1"), "0000:0000:0000:0000:0000:ffff:c0a8:4d01");
  EXPECT_EQ(GidText("fd77::1"), "fd77:0000:0000:0000:0000:0000:0000:0001");
  EXPECT_EQ(GidText("eth0"), "");
}

TEST(PortMtu, RoceTakesTheLargestThatFitsBesideItsHeaders) {
  EXPECT_EQ(PortMtu(LinkKind::kRoceV2, 1500, ""), 1024u);
  EXPECT_EQ(PortMtu(LinkKind::kRoceV2, 4192, ""), 4096u);
  EXPECT_EQ(PortMtu(LinkKind::kRoceV2, 4191, ""), 2048u);
  EXPECT_EQ(PortMtu(LinkKind::kRoceV1, 9000, ""), 4096u);
  EXPECT_EQ(PortMtu(LinkKind::kRoceV2, 300, ""), 0u);
  EXPECT_EQ(PortMtu(LinkKind::kRoceV2, 0, ""), 0u);
}

TEST(PortMtu, ConnectedIpoibSaysNothing) {
  EXPECT_EQ(PortMtu(LinkKind::kInfiniBand, 4092, "datagram"), 4096u);
  EXPECT_EQ(PortMtu(LinkKind::kInfiniBand, 65520, "connected"), 0u);
}

TEST(InterfaceAddresses, LoopbackAndLinkLocalOnesAreLeftOut) {
  for (const InterfaceAddress& address : ReadInterfaceAddresses()) {
    EXPECT_NE(address.interface, "lo");
    EXPECT_NE(address.host.substr(0, 4), "fe80");
    EXPECT_NE(GidText(address.host), "");
    EXPECT_GT(address.prefix_bits, 0u);
  }
}

}  // namespace
}  // namespace weft
