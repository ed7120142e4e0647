// The usual call takes nothing from the heap and no lock, at neither end, protobuf included.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "core/testing/hot_path_meter.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/ledger_service.h"
#include "rpc/testing/loopback.h"
#include "rpc/testing/probe_service.h"

namespace weft::test {
namespace {

class AllocationTest : public testing::Test {
 protected:
  AllocationTest() {
    engine_ = *OpenLoopbackEngine();
    server_ = *Server::Create(*engine_);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->AddService(&ledger_).ok());
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

}  // namespace
}  // namespace weft::test
