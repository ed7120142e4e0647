// The usual call takes nothing from the heap, at neither end, protobuf included.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/testing/loopback.h"
#include "rpc/testing/probe_service.h"

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weft::test {
namespace {

class AllocationTest : public testing::Test {
 protected:
  AllocationTest() {
    engine_ = *OpenLoopbackEngine();
    server_ = *Server::Create(*engine_);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("loopback").ok());
    channel_ = *Channel::Open(*engine_, "loopback");
  }

  // Allocations of `action`, after `warm_up` runs of it.
  uint64_t Count(const std::function<void()>& action, int warm_up = 100) {
    for (int i = 0; i < warm_up; ++i) action();
    const uint64_t before = allocations;
    for (int i = 0; i < 100; ++i) action();
    return allocations - before;
  }

  std::unique_ptr<Engine> engine_;
  ProbeService service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(AllocationTest, ABlockingCallAllocatesNothing) {
  Probe::Stub stub(*channel_);
  const Data request = MakeData(1, 64);
  Data reply;
  EXPECT_EQ(Count([&] { ASSERT_TRUE(stub.Echo(request, &reply).ok()); }), 0u);
  EXPECT_EQ(reply.payload(), request.payload());
}

TEST_F(AllocationTest, ADeadlineAllocatesNothing) {
  Probe::Stub stub(*channel_);
  const Data request = MakeData(1, 64);
  Data reply;
  EXPECT_EQ(
      Count([&] { ASSERT_TRUE(stub.Echo(request, &reply, {.timeout_us = 60'000'000}).ok()); }), 0u);
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
            0u);
}

}  // namespace
}  // namespace weft::test
