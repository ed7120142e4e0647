// A channel over two RDMA ports that are alike, as `./dev lab --device rxe,rxe` has them: it uses
// both, moves stripes over both, and goes on by one when the other is gone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/client/client_connection.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/host_paths.h"

namespace weft::test {
namespace {

constexpr size_t kBytes = size_t{4} << 20;

// Of the usable RDMA ports.
std::vector<HostPath> Ports() {
  LinkOptions options;
  options.paths = {PathKind::kVerbs};
  const auto host = ListHostPaths(options);
  std::vector<HostPath> ports;
  if (!host.ok()) return ports;
  std::set<std::string> devices;
  for (const HostPath& path : host->paths) {
    if (path.kind != PathKind::kVerbs || path.place == 0) continue;
    if (devices.insert(path.device).second) ports.push_back(path);
  }
  return ports;
}

TEST(TwoCardsVerbsTest, AChannelUsesBothAndGoesOnByOneWhenTheOtherIsGone) {
  const std::vector<HostPath> ports = Ports();
  // It takes a card down, and nobody brings that up again: not outside of a machine of the lab.
  if (std::getenv("WEFT_LAB_IP_CARD1") == nullptr) GTEST_SKIP() << "this is no machine of the lab";
  if (ports.size() < 2) GTEST_SKIP() << ports.size() << " RDMA ports: there are no two cards";
  ProbeService service;
  std::vector<std::byte> owned(kBytes);
  for (size_t i = 0; i < kBytes; ++i) owned[i] = static_cast<std::byte>(i * 31 >> 3);
  auto server = Server::Create();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->AddService(&service).ok());
  ASSERT_TRUE((*server)->Listen("127.0.0.1:0").ok());
  const auto exported = (*server)->Export(owned, {.rights = kAllRights});
  ASSERT_TRUE(exported.ok()) << exported.status();

  ChannelOptions options;
  options.engines = 2;
  options.link.paths = {PathKind::kVerbs};
  auto channel = Channel::Open((*server)->address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  ChannelLanes& lanes = *internal::LanesOf(**channel);
  const auto device = [&lanes](uint32_t lane) {
    const auto path = lanes.all()[lane]->path();
    return path.ok() ? path->device : path.status().ToString();
  };
  EXPECT_NE(device(0), device(1)) << lanes.all()[1]->Explain();

  std::vector<std::byte> local(kBytes);
  const auto memory = RemoteMemory::Open(**channel, (*exported)->handle());
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto buffer = (*memory)->BufferOf(local);
  ASSERT_EQ((*memory)->Read(0, buffer->slice()), absl::OkStatus());
  EXPECT_EQ(std::memcmp(local.data(), owned.data(), kBytes), 0);
  EXPECT_EQ((*exported)->leases(), 2u);

  // The card of this thread's lane goes down. Soft-RoCE says nothing of that to connections, as
  // cards do that give up: so they are told.
  Channel& lane = (*channel)->here();
  const uint32_t home = lanes.NumberOfThisThread();
  const std::string gone = device(home);
  const std::string left = device(1 - home);
  for (const HostPath& port : ports) {
    if (gone.rfind(port.device, 0) != 0) continue;
    ASSERT_EQ(std::system(StrCat("ip link set ", port.interface, " down").c_str()), 0);
  }
  ASSERT_TRUE(lane.engine().Post([&lane] {
    internal::ConnectionOf(lane).EndConnection(absl::UnavailableError("the card is gone"), "gone");
  }));
  ASSERT_TRUE(lane.engine().RunUntil(
      [&lane] { return internal::ConnectionOf(lane).open_connection() == nullptr; }));
  Probe::Stub stub(**channel);
  Data reply;
  int calls = 0;
  for (; !lanes.states().IsReady(home); ++calls) {
    ASSERT_EQ(stub.Echo(MakeData(1, 100), &reply), absl::OkStatus()) << "call " << calls;
  }
  EXPECT_GT(calls, 0);
  EXPECT_EQ(device(home), left) << lane.Explain();
  std::memset(local.data(), 0, kBytes);
  ASSERT_EQ((*memory)->Read(0, buffer->slice()), absl::OkStatus());
  EXPECT_EQ(std::memcmp(local.data(), owned.data(), kBytes), 0);
}

}  // namespace
}  // namespace weft::test
