// Processes that are killed, and what the survivors notice.

#include <signal.h>

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "transport/control/testing/peer_client.h"

namespace weft {
namespace {

class PeerDeathTest : public PeerClientTest {
 protected:
  void SetUp() override {
    client_ = NewNetworkEngine();
    ASSERT_NE(client_, nullptr);
  }
};

TEST_P(PeerDeathTest, TheSurvivorLearnsItAndItsOtherConnectionGoesOn) {
  Peer victim("127.0.0.1:0");
  Peer other("127.0.0.1:0");
  NetworkEnd* const dying = Open(victim);
  NetworkEnd* const living = Open(other);
  ExpectEcho(dying);
  ExpectEcho(living);
  victim.Kill();
  ASSERT_TRUE(RunClient([&] { return dying->closed(); }));
  EXPECT_EQ(dying->why().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(dying->why().message()).find("peer process ended"), std::string::npos)
      << dying->why();
  EXPECT_FALSE(living->closed());
  ExpectEcho(living);
}

TEST_P(PeerDeathTest, ManyDeathsInARowLeaveTheSurvivorWell) {
  Peer other("127.0.0.1:0");
  NetworkEnd* const living = Open(other);
  for (int round = 0; round < 10; ++round) {
    Peer victim("127.0.0.1:0");
    NetworkEnd* const dying = Open(victim);
    ExpectEcho(dying);
    victim.Kill();
    ASSERT_TRUE(RunClient([&] { return dying->closed(); })) << "round " << round;
    ExpectEcho(living);
  }
}

TEST_P(PeerDeathTest, AnOrderlyEndIsToldApart) {
  auto peer = std::make_unique<Peer>("127.0.0.1:0");
  NetworkEnd* const end = Open(*peer);
  ExpectEcho(end);
  peer.reset();
  ASSERT_TRUE(RunClient([&] { return end->closed(); }));
  EXPECT_EQ(end->why(), absl::UnavailableError("peer closed: its engine ends"));
}

TEST_P(PeerDeathTest, AServerThatDiedWhileConnectingIsUnavailable) {
  Peer victim("127.0.0.1:0");
  // Stopped: the kernel takes the connection in, and nobody answers.
  victim.Signal(SIGSTOP);
  NetworkEnd* const end = DialAt(victim.address(), Over({GetParam()}));
  for (int turn = 0; turn < 1'000; ++turn) client_->Poll();
  EXPECT_FALSE(end->opened());
  victim.Kill();
  ASSERT_TRUE(RunClient([&] { return end->closed(); }));
  EXPECT_EQ(end->why().code(), absl::StatusCode::kUnavailable) << end->why();
}

INSTANTIATE_TEST_SUITE_P(Network, PeerDeathTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp, PathKind::kOfiTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft
