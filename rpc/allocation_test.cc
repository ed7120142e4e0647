// The usual call takes nothing from the heap and no lock, at neither end, protobuf included.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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

}  // namespace
}  // namespace weft::test
