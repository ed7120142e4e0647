// The usual operation on remote memory takes nothing from the heap and no lock. (The thread that
// counts drives the client. The server's does not matter, its program sleeps.)
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/testing/hot_path_meter.h"
#include "rpc/client/channel.h"
#include "rpc/memory/remote_array.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/records.weft.h"
#include "transport/buffer.h"

namespace weft::test {
namespace {

class RemoteAllocationTest : public testing::Test {
 protected:
  RemoteAllocationTest() : accounts_(1000) {
    server_ = *Server::Create();
    EXPECT_TRUE(server_->Listen("127.0.0.1:0").ok());
    exported_ = *server_->Export(BytesOf(accounts_), ExportAs<AccountLayout>(kAllRights));
    ChannelOptions options;
    options.link.paths = {PathKind::kShm};
    channel_ = *Channel::Open(server_->address(), options);
    arena_ = Buffer::Of(channel_->engine(), bytes_);
    // Renewals are not the usual operation.
    array_ =
        *RemoteArray<AccountLayout>::Open(*channel_, exported_->handle(), {.lease_us = 60'000'000});
  }

  // What 100 runs of `action` take, after some to warm up.
  HotPathCounts Count(const std::function<void()>& action) {
    for (int i = 0; i < 100; ++i) action();
    const HotPathMeter meter;
    for (int i = 0; i < 100; ++i) action();
    return meter.counts();
  }

  RemoteMemory& memory() { return array_->memory(); }
  Slice slice(size_t offset, size_t length) { return arena_->slice(offset, length); }

  std::array<std::byte, 8192> bytes_ = {};
  std::vector<AccountLayout> accounts_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Buffer> arena_;
  std::unique_ptr<RemoteArray<AccountLayout>> array_;
};

TEST_F(RemoteAllocationTest, BlockingOperationsAllocateNothing) {
  EXPECT_EQ(Count([&] { ASSERT_TRUE(memory().Read(64, slice(0, 64)).ok()); }), HotPathCounts());
  EXPECT_EQ(Count([&] { ASSERT_TRUE(memory().Write(64, slice(0, 64)).ok()); }), HotPathCounts());
  EXPECT_EQ(Count([&] { ASSERT_TRUE(memory().FetchAdd(64, 1).ok()); }), HotPathCounts());
  const RemotePiece pieces[] = {{0, slice(0, 64)}, {512, slice(64, 64)}};
  EXPECT_EQ(Count([&] { ASSERT_TRUE(memory().ReadBatch(pieces).ok()); }), HotPathCounts());
}

TEST_F(RemoteAllocationTest, CallbackOperationsAllocateNothing) {
  constexpr int kWindow = 32;
  AccountLayout accounts[kWindow];
  EXPECT_EQ(Count([&] {
              int left = 2 * kWindow;
              Waiter all;
              const auto done = [&](const absl::Status& status) {
                ASSERT_TRUE(status.ok());
                if (--left == 0) CoreOf(channel_->engine()).Finish(all);
              };
              for (int i = 0; i < kWindow; ++i) {
                memory().Read(i * 64, slice(i * 64, 64), done);
                array_->Read(i, &accounts[i], done);
              }
              CoreOf(channel_->engine()).Wait(all);
            }),
            HotPathCounts());
}

TEST_F(RemoteAllocationTest, RecordsAllocateNothing) {
  AccountLayout accounts[100];
  uint64_t indices[100];
  for (uint64_t i = 0; i < 100; ++i) indices[i] = i * 7;
  EXPECT_EQ(Count([&] { ASSERT_TRUE(array_->Read(9, accounts).ok()); }), HotPathCounts());
  EXPECT_EQ(Count([&] { ASSERT_TRUE(array_->ReadMany(indices, accounts).ok()); }), HotPathCounts());
  EXPECT_EQ(Count([&] { ASSERT_TRUE(array_->Write(9, accounts[9]).ok()); }), HotPathCounts());
}

}  // namespace
}  // namespace weft::test
