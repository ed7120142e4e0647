// Many processes that claim one id, and dial one server again and again, over real paths.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/network.h"

namespace weft::test {
namespace {

class PeerClaimsTest : public testing::TestWithParam<PathKind> {};

// The server ended, after a thousand dials over tcp: a connection that was closed inside the
// handshake of another one went on with its own in the same turn.
TEST_P(PeerClaimsTest, AServerOutlivesThoseWhoClaimOneId) {
  constexpr int kClaimers = 4;
  constexpr int kDials = 400;  // of each
  ProbeService probe;
  ServerOptions options;
  options.peer_id = "server";
  options.link.paths = {GetParam()};
  auto server = *Server::Create(options);
  ASSERT_TRUE(server->AddService(&probe).ok());
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  const std::string address = server->address();
  std::vector<std::thread> claimers;
  for (int i = 0; i < kClaimers; ++i) {
    claimers.emplace_back([&] {
      ServerOptions own;
      own.peer_id = "x";
      own.link.paths = {GetParam()};
      const auto claimer = *Server::Create(own);
      ChannelOptions channel_options;
      channel_options.link.paths = {GetParam()};
      for (int dial = 0; dial < kDials; ++dial) {
        const auto channel = claimer->OpenPeer("server", address, channel_options);
        ASSERT_TRUE(channel.ok()) << channel.status();
      }
    });
  }
  for (std::thread& claimer : claimers) claimer.join();
  const auto client = Channel::Open(address);
  ASSERT_TRUE(client.ok()) << client.status();
  Data reply;
  EXPECT_EQ(Probe::Stub(**client).Echo(MakeData(7, 10), &reply), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Paths, PeerClaimsTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& path) {
                           return std::string(path.param == PathKind::kShm ? "shm" : "tcp");
                         });

}  // namespace
}  // namespace weft::test
