// A server with several engines whose clients have become uneven: it asks some of them to come
// again, and no call of theirs fails.

#include "rpc/server/rebalance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/stream_service.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr uint32_t kMany = 1000;  // connections that the server may have
constexpr uint64_t kSoonUs = 1'000;

TEST(RebalanceExcessTest, AnEvenServerMovesNobody) {
  EXPECT_EQ(Rebalance::Excess(0, 0, 0, kMany), 0u);
  EXPECT_EQ(Rebalance::Excess(5, 5, 10, kMany), 0u);
  EXPECT_EQ(Rebalance::Excess(5, 9, 14, kMany), 0u);
}

// One that moves has a connection more for a while, and would only change sides.
TEST(RebalanceExcessTest, ADifferenceOfTwoStays) {
  EXPECT_EQ(Rebalance::Excess(2, 0, 2, kMany), 0u);
  EXPECT_EQ(Rebalance::Excess(3, 0, 3, kMany), 1u);
}

TEST(RebalanceExcessTest, ADifferenceOfAQuarterStays) {
  EXPECT_EQ(Rebalance::Excess(100, 75, 175, kMany), 0u);
  EXPECT_GT(Rebalance::Excess(100, 74, 174, kMany), 0u);
}

TEST(RebalanceExcessTest, AQuarterOfTheExcessMovesAndNotTooManyAtOnce) {
  EXPECT_EQ(Rebalance::Excess(8, 0, 8, kMany), 2u);
  EXPECT_EQ(Rebalance::Excess(40, 0, 40, kMany), 10u);
  EXPECT_EQ(Rebalance::Excess(500, 0, 500, kMany), Rebalance::kMostAtOnce);
}

// A client that moves has two connections for a while.
TEST(RebalanceExcessTest, AServerWithoutRoomMovesNobody) {
  EXPECT_EQ(Rebalance::Excess(40, 0, 40, 60), 10u);
  EXPECT_EQ(Rebalance::Excess(40, 0, 40, 59), 0u);
}

class EchoService final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
};

class RebalanceTest : public testing::TestWithParam<PathKind> {
 protected:
  void Serve(uint64_t rebalance_us) {
    ServerOptions options;
    options.engines = 2;
    options.max_sessions = 0;
    options.link.peer_timeout_ns = 0;  // the machine may be busy
    options.spin_ns = 0;
    options.rebalance_us = rebalance_us;
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->AddService(&echo_).ok());
    ASSERT_TRUE(server_->AddService(&streams_).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }
  // Of which every second one is the first engine's.
  void Open(int count) {
    auto engine = OpenNetworkEngine({.drive = EngineOptions::Drive::kOwnThread, .spin_ns = 0});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ChannelOptions options;
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    for (int i = 0; i < count; ++i) {
      auto channel = Channel::Open(*engine_, server_->address(), options);
      ASSERT_TRUE(channel.ok()) << channel.status();
      channels_.push_back(*std::move(channel));
    }
  }
  // The second engine's clients leave.
  void MakeUneven() {
    for (size_t i = 1; i < channels_.size(); i += 2) channels_[i].reset();
    std::erase(channels_, nullptr);
  }
  // The same where nobody is going to move there.
  void MakeUnevenForGood() {
    MakeUneven();
    while (Connections()[1] > 0) std::this_thread::yield();
  }
  std::vector<uint32_t> Connections() {
    std::vector<uint32_t> counts;
    for (const ServerStats& stats : server_->stats_by_engine()) counts.push_back(stats.connections);
    return counts;
  }
  // As even as it makes them, and nobody on the way.
  bool IsEven() {
    const std::vector<uint32_t> counts = Connections();
    return counts[0] + counts[1] == channels_.size() &&
           std::max(counts[0], counts[1]) - std::min(counts[0], counts[1]) <= Rebalance::kLeastGap;
  }
  void CallAll() {
    for (const auto& channel : channels_) {
      Data reply;
      ASSERT_EQ(Probe::Stub(*channel).Echo(MakeData(1, 10), &reply), absl::OkStatus());
    }
  }
  // Of the engine that has many.
  uint64_t Count(std::string_view name) {
    for (const auto& [counted, value] : server_->engine(0).counters().Snapshot()) {
      if (counted == name) return value;
    }
    return 0;
  }
  // In which clients would be asked that may be.
  void CallForManyLooks() {
    const uint64_t until = Count("rebalance.looks") + 10 * Rebalance::kLooks;
    while (Count("rebalance.looks") < until) CallAll();
  }

  EchoService echo_;
  StreamService streams_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

INSTANTIATE_TEST_SUITE_P(Paths, RebalanceTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

TEST_P(RebalanceTest, ClientsOfAnEngineWithManyMoveAndNoCallFails) {
  Serve(kSoonUs);
  Open(12);
  MakeUneven();
  EXPECT_EQ(channels_.size(), 6u);
  // Whose calls are always under way.
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (const auto& channel : channels_) {
    threads.emplace_back([&] {
      for (Data reply; !over;) {
        ASSERT_EQ(Probe::Stub(*channel).Echo(MakeData(1, 10), &reply), absl::OkStatus());
      }
    });
  }
  while (!IsEven()) std::this_thread::yield();
  over = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& channel : channels_) EXPECT_EQ(channel->stats().calls_failed, 0u);
}

TEST_P(RebalanceTest, IdleClientsMoveToo) {
  Serve(kSoonUs);
  Open(12);
  MakeUneven();
  while (!IsEven()) std::this_thread::yield();
  CallAll();
}

TEST_P(RebalanceTest, AClientWithAStreamStaysUntilItEnds) {
  Serve(kSoonUs);
  Open(6);
  std::vector<std::optional<ClientReaderWriter<Data, Data>>> talks;
  for (size_t i = 0; i < channels_.size(); i += 2) {
    talks.emplace_back(Streams::Stub(*channels_[i]).Talk());
    ASSERT_TRUE(talks.back()->Write(MakeData(1, 10)));
    CallAll();  // whose answers come behind the beginning of the stream
  }
  MakeUnevenForGood();
  CallForManyLooks();
  EXPECT_EQ(Connections(), (std::vector<uint32_t>{3, 0}));
  streams_.talks.clear();  // the handlers'
  talks.clear();
  while (!IsEven()) CallAll();
}

TEST_P(RebalanceTest, AClientOfRemoteMemoryStays) {
  Serve(kSoonUs);
  Open(6);
  auto exported = server_->AllocateExport(4096, {.rights = kAllRights});
  ASSERT_TRUE(exported.ok()) << exported.status();
  std::vector<std::unique_ptr<RemoteMemory>> memories;
  for (size_t i = 0; i < channels_.size(); i += 2) {
    auto memory = RemoteMemory::Open(*channels_[i], (*exported)->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    memories.push_back(*std::move(memory));
  }
  MakeUnevenForGood();
  CallForManyLooks();
  for (const auto& memory : memories) EXPECT_TRUE(memory->FetchAdd(0, 1).ok());
  EXPECT_EQ(Connections(), (std::vector<uint32_t>{3, 0}));
}

TEST_P(RebalanceTest, AClientThatHasAskedForItsEngineStays) {
  Serve(kSoonUs);
  Open(0);
  ChannelOptions options;
  options.link.paths = {GetParam()};
  options.link.peer_timeout_ns = 0;
  options.link.server_engine = 0;
  for (int i = 0; i < 6; ++i) {
    auto channel = Channel::Open(*engine_, server_->address(), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels_.push_back(*std::move(channel));
  }
  CallForManyLooks();
  EXPECT_EQ(Connections(), (std::vector<uint32_t>{6, 0}));
  EXPECT_EQ(Count("rebalance.asked"), 0u);
}

TEST_P(RebalanceTest, ItMayBeSwitchedOff) {
  Serve(/*rebalance_us=*/0);
  Open(6);
  MakeUnevenForGood();
  CallAll();
  EXPECT_EQ(Count("rebalance.looks"), 0u);
  EXPECT_EQ(Connections(), (std::vector<uint32_t>{3, 0}));
}

// Such a channel's connection to one server has no other one beside it: what is new would wait for
// the calls that are under way.
TEST_P(RebalanceTest, AClientThatWouldLeaveBeforeItHasTheNextConnectionStays) {
  Serve(kSoonUs);
  ChannelOptions options;
  options.link.paths = {GetParam()};
  options.link.peer_timeout_ns = 0;
  options.spin_ns = 0;
  for (int i = 0; i < 6; ++i) {
    auto channel = OpenBalanced("list:" + server_->address(), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels_.push_back(*std::move(channel));
  }
  MakeUnevenForGood();
  CallForManyLooks();
  EXPECT_EQ(Connections(), (std::vector<uint32_t>{3, 0}));
  EXPECT_EQ(Count("rebalance.asked"), 0u);
}

// They were asked first, counted as gone, and heard nothing of it: those that load the engine
// stayed.
TEST_P(RebalanceTest, ClientsThatNobodyDrivesKeepNoOthersFromMoving) {
  Serve(kSoonUs);
  ChannelOptions options;
  options.link.paths = {GetParam()};
  options.link.peer_timeout_ns = 0;
  options.spin_ns = 0;
  Open(0);
  // The first engine has 4 idle ones and 4 that move.
  for (int i = 0; i < 16; ++i) {
    auto channel = i < 8 ? Channel::Open(server_->address(), options)
                         : Channel::Open(*engine_, server_->address(), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels_.push_back(*std::move(channel));
  }
  MakeUneven();
  while (!IsEven()) std::this_thread::yield();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(channels_[i]->stats().connects, 1u);
  CallAll();
}

TEST_P(RebalanceTest, AShutdownEndsItInItsMidst) {
  Serve(kSoonUs);
  Open(16);
  MakeUneven();
  while (Count("rebalance.asked") == 0) std::this_thread::yield();
  server_->Shutdown(/*grace_us=*/60'000'000);
  EXPECT_EQ(server_->stats().connections, 0u);
}

}  // namespace
}  // namespace weft::test
