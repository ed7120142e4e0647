// Peers that say nothing more, and are not dead: stopped, cut off, not driven.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/peer_watch.h"
#include "transport/control/testing/peer_client.h"
#include "transport/control/testing/relay.h"

namespace weft {
namespace {

constexpr uint64_t kTimeoutNs = LinkOptions().peer_timeout_ns;

bool Contains(const absl::Status& status, const std::string& part) {
  return status.ToString().find(part) != std::string::npos;
}

// A client whose time goes slowly, unless the test moves it: nobody is declared dead because this
// machine is busy.
class PeerSilenceTest : public PeerClientTest {
 protected:
  void SetUp() override {
    client_ = NewNetworkEngine({}, &clock_);
    ASSERT_NE(client_, nullptr);
  }
  // Time passes for an engine that is driven all the while.
  void PassDriven(uint64_t ns, const NetworkEnd& end) {
    constexpr uint64_t kStepNs = 20 * kNsPerMs;
    for (uint64_t at = 0; at < ns && !end.closed(); at += kStepNs) {
      clock_.Advance(kStepNs);
      client_->Poll();
    }
  }

  // The clock would go before the engine otherwise, which the base has.
  void TearDown() override { client_.reset(); }

  FakeClock clock_;

 private:
  void OnTurn() override {
    const uint64_t now_ns = Clock::Real().NowNs();
    clock_.Advance((now_ns - std::exchange(real_ns_, now_ns)) / 10);
  }

  uint64_t real_ns_ = Clock::Real().NowNs();
};

TEST_P(PeerSilenceTest, AStoppedProcessIsDeclaredDeadAndLearnsItWhenItGoesOn) {
  Peer peer("127.0.0.1:0", "thread");
  NetworkEnd* const end = Open(peer.address());
  ExpectEcho(end);
  peer.Signal(SIGSTOP);
  // The heartbeats on their way are heard first, and count.
  PassDriven(3 * kTimeoutNs, *end);
  ASSERT_TRUE(end->closed());
  EXPECT_EQ(end->why().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Contains(end->why(), "peer is silent: nothing heard for 3000 ms")) << end->why();
  peer.Signal(SIGCONT);
  EXPECT_EQ(peer.ReadLine(),
            "UNAVAILABLE: peer closed: it heard nothing of this side for 3000 ms "
            "(LinkOptions::peer_timeout_ns)");
  // And serves on.
  ExpectEcho(Open(peer.address()));
}

// Each connection of a silent peer was a line of the log: whoever may hold a thousand of them wrote
// a thousand lines whenever he liked.
TEST_P(PeerSilenceTest, AllConnectionsOfASilentPeerAreOneLineOfTheLog) {
  Peer peer("127.0.0.1:0", "thread");
  std::vector<NetworkEnd*> ends;
  for (int i = 0; i < 8; ++i) ends.push_back(Open(peer.address()));
  for (NetworkEnd* const end : ends) ExpectEcho(end);
  int lines = 0;
  SetLogSink([&lines](const LogRecord& record) {
    if (record.text.find("a peer is given up") != std::string_view::npos) ++lines;
  });
  peer.Signal(SIGSTOP);
  for (NetworkEnd* const end : ends) PassDriven(3 * kTimeoutNs, *end);
  SetLogSink(nullptr);
  for (NetworkEnd* const end : ends) EXPECT_TRUE(end->closed());
  // (The limit is of the process: tests before this one may have used it up.)
  EXPECT_LE(lines, 1);
  peer.Signal(SIGCONT);
}

TEST_P(PeerSilenceTest, AStoppedProcessThatPromisedNothingIsWaitedFor) {
  Peer peer("127.0.0.1:0", "external");
  NetworkEnd* const end = Open(peer.address());
  ExpectEcho(end);
  peer.Signal(SIGSTOP);
  PassDriven(100 * kTimeoutNs, *end);
  EXPECT_FALSE(end->closed()) << end->why();
  peer.Signal(SIGCONT);
  ExpectEcho(end);
}

TEST_P(PeerSilenceTest, WithATimeoutOfZeroNobodyIsDeclaredDead) {
  Peer peer("127.0.0.1:0", "thread");
  ConnectOptions options = Over({GetParam()});
  options.link.peer_timeout_ns = 0;
  NetworkEnd* const end = DialAt(peer.address(), options);
  ASSERT_TRUE(RunClient([&] { return end->opened() || end->closed(); }));
  peer.Signal(SIGSTOP);
  PassDriven(100 * kTimeoutNs, *end);
  peer.Signal(SIGCONT);
  ExpectEcho(end);
}

TEST_P(PeerSilenceTest, AnEngineThatNobodyDrivesKeepsItsConnection) {
  Peer peer("127.0.0.1:0", "thread");
  NetworkEnd* const end = Open(peer.address());
  for (int round = 0; round < 3; ++round) {
    ExpectEcho(end);
    clock_.Advance(1000 * kTimeoutNs);
  }
  ExpectEcho(end);
}

TEST_F(NetworkTest, TimeoutsOutOfBoundsAreRefused) {
  struct Case {
    uint64_t LinkOptions::*timeout;
    uint64_t ns;
    const char* name;
  };
  for (const Case& c :
       {Case{&LinkOptions::peer_timeout_ns, kMinPeerTimeoutNs - 1, "LinkOptions::peer_timeout_ns"},
        Case{&LinkOptions::peer_timeout_ns, kMaxPeerTimeoutNs + 1, "LinkOptions::peer_timeout_ns"},
        Case{&LinkOptions::transfer_timeout_ns, kMinTransferTimeoutNs - 1,
             "LinkOptions::transfer_timeout_ns"},
        Case{&LinkOptions::transfer_timeout_ns, kMaxTransferTimeoutNs + 1,
             "LinkOptions::transfer_timeout_ns"}}) {
    ConnectOptions options;
    options.link.*c.timeout = c.ns;
    NetworkEnd nobody;
    const absl::Status status =
        client_->transport().Connect("127.0.0.1:1", options, &nobody).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Contains(status, c.name)) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Network, PeerSilenceTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp, PathKind::kOfiTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

// --- with a hand on the wire ---------------------------------------------------------------------

std::vector<std::byte> Heartbeats(uint32_t count) {
  std::vector<std::byte> bytes;
  for (uint32_t i = 0; i < count; ++i) {
    AppendControlFrame(ControlType::kHeartbeat, kIgnorable, {}, &bytes);
  }
  return bytes;
}

class HeartbeatWireTest : public NetworkTest {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    acceptor_.echo = true;
    Listen("127.0.0.1:0");
    relay_ = std::make_unique<Relay>(listener_->address());
    end_ = DialAt(relay_->address(), Over({PathKind::kTcp}));
    ASSERT_TRUE(RunRelayed([&] { return end_->opened() || end_->closed(); }));
    ASSERT_TRUE(end_->opened()) << end_->why();
  }
  template <class Done>
  bool RunRelayed(Done done) {
    return Run([&] {
      relay_->Turn();
      return done();
    });
  }
  bool Echoes() {
    const size_t before = end_->received.size();
    return end_->Send("still here?") &&
           RunRelayed([&] { return end_->received.size() > before || end_->closed(); }) &&
           !end_->closed();
  }
  NetworkEnd& server_end() { return *acceptor_.ends.back(); }

  std::unique_ptr<Relay> relay_;
  NetworkEnd* end_ = nullptr;
};

TEST_F(HeartbeatWireTest, WhatWaitedDuringALongPauseIsTaken) {
  relay_->SayToServer(Heartbeats(PeerWatch::kMaxUnanswered));
  relay_->SayToClient(Heartbeats(PeerWatch::kMaxUnanswered));
  EXPECT_TRUE(Echoes());
}

TEST_F(HeartbeatWireTest, AFloodEndsTheConnectionThatItCameBy) {
  NetworkEnd* const other = Dial();
  ASSERT_TRUE(RunUntilDecided(*other));
  NetworkEnd& flooded = *acceptor_.ends.front();
  relay_->SayToServer(Heartbeats(10'000));
  ASSERT_TRUE(RunRelayed([&] { return flooded.closed() && end_->closed(); }));
  EXPECT_EQ(flooded.why().code(), absl::StatusCode::kDataLoss) << flooded.why();
  EXPECT_TRUE(Contains(flooded.why(), "floods")) << flooded.why();
  EXPECT_EQ(end_->why().code(), absl::StatusCode::kUnavailable) << end_->why();
  ASSERT_TRUE(other->Send("still here?"));
  ASSERT_TRUE(Run([&] { return !other->received.empty(); }));
}

}  // namespace
}  // namespace weft
