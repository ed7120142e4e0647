// The usual call takes nothing from the heap and no lock, at neither end, protobuf included.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "core/testing/hot_path_meter.h"
#include "rpc/client/balancer.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_connection.h"
#include "rpc/server/policy_file.h"
#include "rpc/server/server.h"
#include "rpc/testing/ledger_service.h"
#include "rpc/testing/loopback.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/signal_service.h"
#include "weft/coroutine.h"

namespace weft::test {
namespace {

class AllocationTest : public testing::Test {
 protected:
  AllocationTest() {
    engine_ = *OpenLoopbackEngine();
    server_ = *Server::Create(*engine_);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->AddService(&ledger_).ok());
    EXPECT_TRUE(server_->AddService(&signals_).ok());
    EXPECT_TRUE(server_->Listen("loopback").ok());
    channel_ = *Channel::Open(*engine_, "loopback");
  }

  // What 100 runs of `action` take, after some to warm up.
  HotPathCounts Count(const std::function<void()>& action) {
    for (int i = 0; i < 100; ++i) action();
    const HotPathMeter meter;
    for (int i = 0; i < 100; ++i) action();
    return meter.counts();
  }

  std::unique_ptr<EngineCore> engine_;
  ProbeService service_;
  LayoutLedger ledger_;
  class CountedSignals final : public Signals::Service {
   public:
    absl::Status Notify(ServerContext&, const Data& request) override {
      bytes += request.payload().size();
      return absl::OkStatus();
    }
    uint64_t bytes = 0;
  } signals_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(AllocationTest, ABlockingCallAllocatesNothing) {
  Probe::Stub stub(*channel_);
  const Data request = MakeData(1, 64);
  Data reply;
  EXPECT_EQ(Count([&] { ASSERT_TRUE(stub.Echo(request, &reply).ok()); }), HotPathCounts());
  EXPECT_EQ(reply.payload(), request.payload());
}

// Nor does one that the server has to permit, by a file. (Once in a second it looks at the file.)
TEST_F(AllocationTest, APermittedCallAllocatesNothing) {
  class AtOneTime final : public Authorizer {
   public:
    explicit AtOneTime(Authorizer& asked) : asked_(asked) {}
    Decision Decide(const PathInfo& path, std::string_view service,
                    std::string_view method) override {
      return asked_.Decide(path, service, method);
    }
    uint64_t Generation(uint64_t) override { return asked_.Generation(0); }

   private:
    Authorizer& asked_;
  };
  const std::string path = testing::TempDir() + "allocation_test.policy";
  std::ofstream(path) << "allow anyone weft.test.Probe/Echo\n";
  const auto policy = *PolicyFile::Open(path);
  AtOneTime authorizer(*policy);
  ServerOptions options;
  options.authorizer = &authorizer;
  auto server = *Server::Create(*engine_, options);
  ASSERT_TRUE(server->AddService(&service_).ok());
  ASSERT_TRUE(server->Listen("permitted").ok());
  auto channel = *Channel::Open(*engine_, "permitted");
  Probe::Stub stub(*channel);
  const Data request = MakeData(1, 64);
  Data reply;
  EXPECT_EQ(Count([&] { ASSERT_TRUE(stub.Echo(request, &reply).ok()); }), HotPathCounts());
  EXPECT_TRUE(absl::IsPermissionDenied(stub.Make(Size(), &reply)));
}

// Whichever of many servers it goes to, and however that is chosen.
TEST_F(AllocationTest, ACallToOneOfManyServersAllocatesNothing) {
  for (const auto policy : {BalancingPolicy::kRoundRobin, BalancingPolicy::kLeastLoaded,
                            BalancingPolicy::kConsistentHash}) {
    BalancingOptions balancing;
    balancing.policy = policy;
    auto channel = *OpenBalanced(*engine_, "list:loopback:1,loopback:2,loopback:3", {}, balancing);
    Probe::Stub stub(*channel);
    const auto all_ready = [&] {
      for (const ServerFacts& facts : internal::ConnectionOf(*channel).balancer()->Facts()) {
        if (facts.state != ChannelState::kReady) return false;
      }
      return true;
    };
    ASSERT_TRUE(engine_->RunUntil(all_ready));
    const Data request = MakeData(1, 64);
    Data reply;
    CallOptions options = {.timeout_us = 60'000'000};
    EXPECT_EQ(Count([&] {
                ++options.server_key;
                ASSERT_TRUE(stub.Echo(request, &reply, options).ok());
              }),
              HotPathCounts());
    Data replies[32];
    EXPECT_EQ(Count([&] {
                int left = 32;
                Waiter all;
                for (Data& one : replies) {
                  stub.Echo(request, &one, {}, [&](const absl::Status& status) {
                    ASSERT_TRUE(status.ok());
                    if (--left == 0) engine_->Finish(all);
                  });
                }
                engine_->Wait(all);
              }),
              HotPathCounts());
    for (const ServerFacts& facts : ServersOf(*channel)) EXPECT_GT(facts.answers_ok, 100u);
  }
}

TEST_F(AllocationTest, ADeadlineAllocatesNothing) {
  Probe::Stub stub(*channel_);
  const Data request = MakeData(1, 64);
  Data reply;
  EXPECT_EQ(
      Count([&] { ASSERT_TRUE(stub.Echo(request, &reply, {.timeout_us = 60'000'000}).ok()); }),
      HotPathCounts());
}

TEST_F(AllocationTest, CallbackCallsAllocateNothing) {
  Probe::Stub stub(*channel_);
  const Data request = MakeData(1, 64);
  constexpr int kWindow = 32;
  Data replies[kWindow];
  EXPECT_EQ(Count([&] {
              int left = kWindow;
              Waiter all;
              for (Data& reply : replies) {
                stub.Echo(request, &reply, {}, [&](const absl::Status& status) {
                  ASSERT_TRUE(status.ok());
                  if (--left == 0) engine_->Finish(all);
                });
              }
              engine_->Wait(all);
            }),
            HotPathCounts());
}

// Neither an await nor a handler that is a coroutine: its frame lies in the memory of its call.
TEST_F(AllocationTest, CallsAmongCoroutinesAllocateNothing) {
  class CoProbe final : public Probe::CoService {
   public:
    Task<absl::Status> CoEcho(ServerContext&, const Data& request, Data* reply) override {
      // Once at once, once later.
      if (++calls_ % 2 == 0) {
        co_await Await<int>([this](Function<void(int)> done) {
          later_ = std::move(done);
          EXPECT_TRUE(engine->Post([this] { std::exchange(later_, nullptr)(0); }));
        });
      }
      *reply = request;
      co_return absl::OkStatus();
    }
    EngineCore* engine = nullptr;

   private:
    int calls_ = 0;
    Function<void(int)> later_;
  };
  CoProbe probe;
  probe.engine = engine_.get();
  auto server = *Server::Create(*engine_);
  ASSERT_TRUE(server->AddService(&probe).ok());
  ASSERT_TRUE(server->Listen("coroutines").ok());
  auto channel = *Channel::Open(*engine_, "coroutines");
  Probe::Stub stub(*channel);
  const auto calls = [](Probe::Stub& of, HotPathCounts* counts) -> Task<absl::Status> {
    const Data request = MakeData(1, 64);
    Data reply;
    std::optional<HotPathMeter> meter;
    for (int i = 0; i < 200; ++i) {
      if (i == 100) meter.emplace();
      const absl::Status status = co_await of.CoEcho(request, &reply);
      if (!status.ok()) co_return status;
    }
    *counts = meter->counts();
    co_return absl::OkStatus();
  };
  HotPathCounts counts;
  counts.allocations = 1;
  EXPECT_EQ(Wait(*engine_, calls(stub, &counts)), absl::OkStatus());
  EXPECT_EQ(counts, HotPathCounts());
}

TEST_F(AllocationTest, CallsWithStructsAllocateNothing) {
  Ledger::Stub stub(*channel_);
  BalanceLayout balance;
  EXPECT_EQ(Count([&] { ASSERT_TRUE(stub.Move(MakePayment(2, 3), &balance).ok()); }),
            HotPathCounts());
  EXPECT_EQ(Count([&] {
              Waiter done;
              stub.Move(MakePayment(2, 4), &balance, {}, [&](const absl::Status& status) {
                ASSERT_TRUE(status.ok());
                engine_->Finish(done);
              });
              engine_->Wait(done);
            }),
            HotPathCounts());
  EXPECT_EQ(balance.amount, 6);
}

TEST_F(AllocationTest, OneWayMessagesAllocateNothing) {
  Signals::Stub stub(*channel_);
  const Data message = MakeData(1, 64);
  EXPECT_EQ(Count([&] { ASSERT_TRUE(stub.Notify(message).ok()); }), HotPathCounts());
  EXPECT_EQ(Count([&] { ASSERT_TRUE(stub.Notify(message, {.timeout_us = 60'000'000}).ok()); }),
            HotPathCounts());
  EXPECT_EQ(Count([&] {
              Waiter done;
              stub.Notify(message, {}, [&](const absl::Status& status) {
                ASSERT_TRUE(status.ok());
                engine_->Finish(done);
              });
              engine_->Wait(done);
            }),
            HotPathCounts());
  engine_->Poll();
  EXPECT_EQ(signals_.bytes, 3 * 200 * 64u);
}

// What one thread takes in a row of calls, over and over. To begin with everything grows, and now
// and then a thread has something else to do, for a timer say: what is left in the best row is what
// each call takes.
class CallRows {
 public:
  static constexpr int kCalls = 128;

  // After each call, on that thread.
  void OnCall() {
    if (++calls_ % kCalls != 0) return;
    if (meter_.has_value()) {
      const HotPathCounts counts = meter_->counts();
      const uint64_t taken = counts.allocations + counts.locks;
      if (taken < fewest_.load(std::memory_order_relaxed)) fewest_ = taken;
    }
    meter_.emplace();
  }
  // Allocations and locks, in the best row so far. Any thread.
  uint64_t fewest() const { return fewest_; }

 private:
  uint64_t calls_ = 0;
  std::optional<HotPathMeter> meter_;
  std::atomic<uint64_t> fewest_{~uint64_t{0}};
};

// With several engines at both ends, over real paths. What engines share is counted where it takes
// a lock; words that several of them write are not: engines_apart_test finds those.
class SeveralEnginesTest : public testing::TestWithParam<PathKind> {
 protected:
  static constexpr uint32_t kEngines = 2;
  static constexpr int kMostCalls = 10'000;  // until a row takes nothing: some hundred do

  class CountedProbe final : public Probe::Service {
   public:
    absl::Status Echo(ServerContext& context, const Data& request, Data* reply) override {
      const uint32_t engine = context.path().server_engine;
      *reply = request;
      reply->set_number(engine);
      rows[engine].OnCall();
      return absl::OkStatus();
    }
    std::array<CallRows, kEngines> rows;  // [of the server's engine]
  };

  void SetUp() override {
    ServerOptions of_server;
    of_server.engines = kEngines;
    of_server.max_sessions = 0;
    of_server.rebalance_us = 0;
    of_server.link.peer_timeout_ns = 0;  // the machine may be busy
    server_ = *Server::Create(of_server);
    ASSERT_TRUE(server_->AddService(&probe_).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
    ChannelOptions of_channel;
    of_channel.engines = kEngines;
    of_channel.link.paths = {GetParam()};
    of_channel.link.peer_timeout_ns = 0;
    channel_ = *Channel::Open(server_->address(), of_channel);
  }

  // On new threads, one after the other: each of them has another of the channel's engines.
  template <class F>
  void OnEachEngine(F calls) {
    std::set<Channel*> lanes;
    for (uint32_t i = 0; i < kEngines; ++i) {
      std::thread([&] {
        lanes.insert(&channel_->here());
        calls();
      }).join();
    }
    EXPECT_EQ(lanes.size(), kEngines);
    for (const CallRows& rows : probe_.rows) EXPECT_EQ(rows.fewest(), 0u) << "at the server";
  }
  // That which has answered with `reply` has had a row that took nothing.
  bool ServerTookNothing(const Data& reply) const {
    return reply.number() < kEngines && probe_.rows[reply.number()].fewest() == 0;
  }

  CountedProbe probe_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
};

TEST_P(SeveralEnginesTest, ABlockingCallTakesNothingAtEitherEnd) {
  OnEachEngine([&] {
    Probe::Stub stub(*channel_);
    const Data request = MakeData(kEngines, 64);
    Data reply = request;
    CallRows rows;
    for (int i = 0; i < kMostCalls && (rows.fewest() > 0 || !ServerTookNothing(reply)); ++i) {
      ASSERT_TRUE(stub.Echo(request, &reply).ok());
      rows.OnCall();
    }
    EXPECT_EQ(rows.fewest(), 0u);
  });
}

TEST_P(SeveralEnginesTest, CallbackCallsTakeNothingAtEitherEnd) {
  OnEachEngine([&] {
    Probe::Stub stub(*channel_);
    const Data request = MakeData(kEngines, 64);
    Data replies[32];
    replies[0] = request;
    CallRows rows;
    for (int i = 0; i < kMostCalls && (rows.fewest() > 0 || !ServerTookNothing(replies[0]));
         i += 32) {
      int left = 32;
      for (Data& reply : replies) {
        stub.Echo(request, &reply, {}, [&](const absl::Status& status) {
          EXPECT_TRUE(status.ok());
          rows.OnCall();
          --left;
        });
      }
      ASSERT_TRUE(channel_->engine().RunUntil([&] { return left == 0; }));
    }
    EXPECT_EQ(rows.fewest(), 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, SeveralEnginesTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
