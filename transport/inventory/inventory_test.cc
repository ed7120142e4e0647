// What an operator is told of recorded hosts.
#include "transport/inventory/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/strings.h"
#include "transport/devices/testing/recorded_tree.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

InventoryFacts FactsOf(const RecordedTree& tree) {
  InventoryFacts facts;
  facts.order = {PathKind::kShm, PathKind::kVerbs, PathKind::kTcp};
  facts.available_memory_bytes = uint64_t{1} << 30;
  facts.ports = tree.Ports();
  facts.process.memlock_bytes = ~uint64_t{0};
  facts.interfaces = ReadNetInterfaces(tree.sources());
  return facts;
}

// "2 verbs mlx5_0:1 10.40.0.17/16": a path in one line.
std::vector<std::string> Lines(const std::vector<HostPath>& paths) {
  std::vector<std::string> lines;
  for (const HostPath& path : paths) {
    lines.push_back(StrCat(path.place, " ", PathKindName(path.kind), " ", path.device,
                           path.port == 0 ? "" : StrCat(":", path.port),
                           path.address.empty() ? "" : " ", path.address));
  }
  return lines;
}

const HostPath& First(PathKind kind, const std::vector<HostPath>& paths) {
  for (const HostPath& path : paths) {
    if (path.kind == kind) return path;
  }
  ADD_FAILURE() << "no path of this kind";
  return paths.front();
}

FabricDevice DeviceOfFabric(const std::string& name) {
  FabricDevice device;
  device.provider = "verbs";
  device.name = name;
  return device;
}

TEST(Inventory, AHostWithoutRdmaOffersTheOthers) {
  const auto paths = DescribeHost(FactsOf(RecordedTree("no_rdma")));
  EXPECT_THAT(Lines(paths), ElementsAre("1 shm memory", "2 tcp eth0 10.0.2.15/24"));
  EXPECT_EQ(paths[0].free_bytes, uint64_t{1} << 30);
  EXPECT_EQ(paths[1].driver, "virtio_net");
  EXPECT_EQ(paths[1].mtu_bytes, 1500u);
  EXPECT_EQ(paths[1].gbit_per_s, 0);
}

TEST(Inventory, EachAddressOfAPortHasAPlaceAndTcpAltogetherHasOne) {
  const auto paths = DescribeHost(FactsOf(RecordedTree("roce_v2")));
  EXPECT_THAT(
      Lines(paths),
      ElementsAre("1 shm memory", "2 verbs mlx5_2:1 10.2.0.3/24", "4 verbs mlx5_2:1 fd00:2::3/64",
                  "3 verbs mlx5_2:1 10.100.0.3/24", "5 tcp enp65s0f0 10.2.0.3/24",
                  "5 tcp enp65s0f0 fd00:2::3/64", "5 tcp enp65s0f0.100 10.100.0.3/24"));
  EXPECT_EQ(paths[1].link, LinkKind::kRoceV2);
  EXPECT_EQ(paths[1].gid, "0000:0000:0000:0000:0000:ffff:0a02:0003");
  EXPECT_EQ(paths[1].gid_index, 3);
  EXPECT_EQ(paths[1].gid_type, "RoCE v2");
  EXPECT_EQ(paths[3].interface, "enp65s0f0.100");
}

TEST(Inventory, APortThatIsDownHasItsReasonAndNoPlace) {
  const auto paths = DescribeHost(FactsOf(RecordedTree("dual_port")));
  EXPECT_THAT(Lines(paths), ElementsAre("1 shm memory", "0 verbs mlx4_0:1 10.40.0.9/16",
                                        "2 verbs mlx4_0:2 10.3.0.9/24", "3 tcp ens2d1 10.3.0.9/24",
                                        "0 tcp ib0 10.40.0.9/16"));
  EXPECT_THAT(paths[1].reason, HasSubstr("opensm"));
  EXPECT_THAT(paths[4].reason, HasSubstr("ip link set ib0 up"));
}

TEST(Inventory, TheOrderIsThatOfThePolicyAndWhatIsDeniedSaysSo) {
  InventoryFacts facts = FactsOf(RecordedTree("siw"));
  facts.order = {PathKind::kTcp, PathKind::kShm};
  facts.kinds[PathKind::kVerbs].denied = "denied by WEFT_PATHS=tcp,shm";
  const auto paths = DescribeHost(facts);
  EXPECT_THAT(Lines(paths), ElementsAre("2 shm memory", "0 verbs siw0:1 192.168.77.1/24",
                                        "0 verbs siw0:1 fd77::1/64", "1 tcp eth0 192.168.77.1/24",
                                        "1 tcp eth0 fd77::1/64"));
  EXPECT_EQ(paths[1].reason, "denied by WEFT_PATHS=tcp,shm");
}

TEST(Inventory, OfiTcpIsListedForThoseWhoNameIt) {
  InventoryFacts facts = FactsOf(RecordedTree("no_rdma"));
  facts.order = {PathKind::kTcp, PathKind::kOfiTcp};
  facts.kinds[PathKind::kShm].denied = "denied by WEFT_PATHS=tcp,ofi_tcp";
  EXPECT_THAT(Lines(DescribeHost(facts)), ElementsAre("0 shm memory", "1 tcp eth0 10.0.2.15/24",
                                                      "2 ofi_tcp eth0 10.0.2.15/24"));
}

TEST(Inventory, AProviderThatLibfabricLacksIsNamed) {
  InventoryFacts facts = FactsOf(RecordedTree("rxe"));
  facts.kinds[PathKind::kVerbs].missing = "provider \"verbs\" of libfabric 1.17: it is not in it";
  facts.kinds[PathKind::kTcp].missing = "no tcp";
  const auto paths = DescribeHost(facts);
  const HostPath& verbs = First(PathKind::kVerbs, paths);
  EXPECT_EQ(verbs.place, 0u);
  EXPECT_THAT(verbs.reason, AllOf(StartsWith("provider \"verbs\" of libfabric 1.17"),
                                  HasSubstr("ibverbs-providers")));
  EXPECT_EQ(First(PathKind::kTcp, paths).reason, "no tcp");
}

// A port that is down has nothing to hide behind libfabric's missing provider.
TEST(Inventory, TheKernelsReasonComesBeforeLibfabrics) {
  InventoryFacts facts = FactsOf(RecordedTree("dual_port"));
  facts.kinds[PathKind::kVerbs].missing = "no verbs";
  EXPECT_THAT(First(PathKind::kVerbs, DescribeHost(facts)).reason, HasSubstr("opensm"));
}

TEST(Inventory, WhatOnlyLibfabricKnowsIsFilledIn) {
  InventoryFacts facts = FactsOf(RecordedTree("infiniband_edr"));
  facts.ports[0].mtu_bytes = 0;
  FabricDevice device = DeviceOfFabric("mlx5_0");
  device.vendor_id = "0x02c9";
  device.device_id = "0x1017";
  device.mtu_bytes = 4096;
  device.gbit_per_s = 100;
  device.state = "up";
  facts.kinds[PathKind::kVerbs].devices = {device};
  const HostPath path = First(PathKind::kVerbs, DescribeHost(facts));
  EXPECT_EQ(path.vendor_id, "0x02c9");
  EXPECT_EQ(path.device_id, "0x1017");
  EXPECT_EQ(path.mtu_bytes, 4096u);
  EXPECT_THAT(path.notes, IsEmpty());
}

TEST(Inventory, WhereLibfabricDiffersTheKernelIsBelievedAndTheDifferenceTold) {
  InventoryFacts facts = FactsOf(RecordedTree("rxe"));
  FabricDevice device = DeviceOfFabric("rxe0");
  device.mtu_bytes = 4096;
  device.state = "down";
  facts.kinds[PathKind::kVerbs].devices = {device};
  const HostPath path = First(PathKind::kVerbs, DescribeHost(facts));
  EXPECT_EQ(path.mtu_bytes, 1024u);
  EXPECT_THAT(path.notes, ElementsAre("libfabric says MTU 4096, the kernel 1024",
                                      "libfabric says state down, the kernel ACTIVE"));
}

TEST(Inventory, IwarpsMtuIsTheInterfacesThoughVerbsKnowsOnlyRoundOnes) {
  InventoryFacts facts = FactsOf(RecordedTree("siw"));
  FabricDevice device = DeviceOfFabric("siw0");
  device.mtu_bytes = 1024;
  facts.kinds[PathKind::kVerbs].devices = {device};
  const HostPath path = First(PathKind::kVerbs, DescribeHost(facts));
  EXPECT_EQ(path.mtu_bytes, 1500u);
  EXPECT_THAT(path.notes, IsEmpty());
}

// libfabric describes the device by one of its ports, and does not say which.
TEST(Inventory, ADeviceWithTwoPortsTakesNoLinkFromLibfabric) {
  InventoryFacts facts = FactsOf(RecordedTree("dual_port"));
  FabricDevice device = DeviceOfFabric("mlx4_0");
  device.mtu_bytes = 2048;
  facts.kinds[PathKind::kVerbs].devices = {device};
  const HostPath path = First(PathKind::kVerbs, DescribeHost(facts));
  EXPECT_EQ(path.mtu_bytes, 0u);
  EXPECT_THAT(path.notes, IsEmpty());
}

TEST(Inventory, AUsablePortSaysWhetherItIsNear) {
  InventoryFacts facts = FactsOf(RecordedTree("infiniband_edr"));
  facts.process.near_nodes = {1};
  EXPECT_THAT(First(PathKind::kVerbs, DescribeHost(facts)).reason, HasSubstr("near to"));
  facts.process.near_nodes = {0};
  EXPECT_THAT(First(PathKind::kVerbs, DescribeHost(facts)).reason, HasSubstr("far from"));
}

TEST(Inventory, ACardWithoutAnAddressIsShown) {
  RecordedTree tree("no_rdma");
  tree.Add("[class/net/eth1]\noperstate = up\n[class/net/eth1/device]\ndriver -> ../virtio_net");
  const auto paths = DescribeHost(FactsOf(tree));
  EXPECT_EQ(paths.back().device, "eth1");
  EXPECT_EQ(paths.back().reason, "no IP address: ip addr add ADDRESS/BITS dev eth1");
}

TEST(Inventory, UsablePortsBeyondTheBoundSayWhyTheyAreNotUsed) {
  InventoryFacts facts = FactsOf(RecordedTree("infiniband_edr"));
  facts.ports.resize(kMaxRdmaOffers + 1, facts.ports[0]);
  for (size_t i = 0; i < facts.ports.size(); ++i) facts.ports[i].device = StrCat("mlx5_", i);
  const auto paths = DescribeHost(facts);
  const HostPath& last = paths[kMaxRdmaOffers + 1];
  EXPECT_EQ(last.device, "mlx5_8");
  EXPECT_EQ(last.place, 0u);
  EXPECT_THAT(last.reason, HasSubstr("WEFT_DEVICES"));
}

}  // namespace
}  // namespace weft
