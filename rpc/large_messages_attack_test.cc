// One client with several connections that asks for large replies and takes none, or has many
// requests that run: the memory for them is shared, and others have a part of it.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/payload_test.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/wire/frame.h"
#include "transport/network.h"

namespace weft::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint16_t kHold = 2;  // the numbers of Probe's methods
constexpr uint16_t kMake = 4;

class LargeMessagesAttackTest : public RpcTest {
 protected:
  ~LargeMessagesAttackTest() override {
    for (RawPeer& peer : hostile_) {
      if (peer.connection != nullptr) peer.connection->Close("done");
    }
    network_.RunFor(kNsPerSec);  // they hear of it before they are gone
  }
  // All from one node: one client.
  void Dial() {
    RawPeer& peer = hostile_.emplace_back();
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(16);
    hello.set_max_reply_bytes(kMaxPayloadBytes);
    peer.DialWith(CoreOf(network_.Node("hostile")).transport(), hello);
    EXPECT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
  }
  void Ask(RawPeer& peer, uint32_t slot, size_t bytes) {
    Size size;
    size.set_bytes(bytes);
    peer.Send(Request({slot, 1}, kMake, size.SerializeAsString()));
  }
  // An honest client has its replies all the same, on the connection that it has.
  void ExpectServed(size_t bytes) {
    for (int round = 0; round < 3; ++round) {
      Outcome outcome;
      stub_->Echo(MakeData(1, bytes), &outcome.reply, {}, outcome.Callback());
      ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
      EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
    }
    EXPECT_EQ(channel_->stats().connects, 1u);
    EXPECT_EQ(server_->stats().slow_readers, 0u);
  }

  std::deque<RawPeer> hostile_;
};

// Six connections had the whole pool for a minute, and the honest client was ended as one that took
// no replies, which waited for the pool.
TEST_F(LargeMessagesAttackTest, SixConnectionsOfOneClientDoNotHaveTheWholePool) {
  Start();
  for (int i = 0; i < 6; ++i) Dial();
  network_.SlowDown("hostile", /*ns_per_batch=*/1000 * kNsPerSec);
  for (int i = 0; i < 3; ++i) Ask(hostile_[i], 0, 60 * kMiB);
  Ask(hostile_[3], 0, 20 * kMiB);
  for (int i = 4; i < 6; ++i) {
    for (uint32_t slot = 0; slot < 16; ++slot) Ask(hostile_[i], slot, 900'000);
  }
  network_.RunFor(100 * kNsPerMs);
  ExpectServed(100'000);
  network_.SlowDown("hostile", 0);
}

TEST_F(LargeMessagesAttackTest, NorDoTheyWithinTheBoundsForTheInternet) {
  ServerOptions options;
  options.max_connections_of_one = 16;
  options.limits.per_client = 64;
  options.max_request_bytes = 1 << 20;
  Start({}, options);
  for (int i = 0; i < 16; ++i) Dial();
  network_.SlowDown("hostile", /*ns_per_batch=*/1000 * kNsPerSec);
  for (RawPeer& peer : hostile_) {
    for (uint32_t slot = 0; slot < 16; ++slot) Ask(peer, slot, 1'000'000);
  }
  network_.RunFor(100 * kNsPerMs);
  ExpectServed(20'000);
  network_.SlowDown("hostile", 0);
}

// Eight connections had 191 MiB of 256: who had 127, a little less than half, got 64 more. The
// largest reply of another client waited for them.
TEST_F(LargeMessagesAttackTest, RepliesLeaveRoomForTheLargestOfAnother) {
  Start();
  for (int i = 0; i < 8; ++i) Dial();
  network_.SlowDown("hostile", /*ns_per_batch=*/1000 * kNsPerSec);
  // Each takes a buffer of the next power of two: 64, 32, 16, 8, 4, 2 and 1 MiB.
  const size_t sizes[] = {60 * kMiB, 30 * kMiB, 15 * kMiB, 7 * kMiB,
                          3 * kMiB,  kMiB + 1,  900'000,   60 * kMiB};
  for (size_t i = 0; i < hostile_.size(); ++i) {
    Ask(hostile_[i], 0, sizes[i]);
    network_.RunFor(kNsPerMs);
  }
  network_.RunFor(100 * kNsPerMs);
  const uint64_t start_ns = network_.clock().NowNs();
  ExpectServed(60 * kMiB);
  EXPECT_LT(network_.clock().NowNs() - start_ns, kNsPerSec);
  network_.SlowDown("hostile", 0);
}

// 16 requests of 64 MiB had all of max_running_bytes for as long as their handlers took, and
// others' calls were refused.
TEST_F(LargeMessagesAttackTest, RequestsThatRunLeaveRoomToOthers) {
  ServerOptions options;
  options.max_request_bytes = 64 << 10;
  options.max_running_bytes = kMiB;
  Start({}, options);
  Dial();
  Dial();
  const std::string request = MakeData(1, 60 << 10).SerializeAsString();
  for (uint32_t slot = 0; slot < 16; ++slot) {
    for (RawPeer& peer : hostile_) peer.Send(Request({slot, 1}, kHold, request));
    network_.RunFor(kNsPerMs);
  }
  EXPECT_EQ(service_.held.size(), 8u) << "half of it";
  Outcome outcome;
  stub_->Echo(MakeData(1, 60'000), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
  while (!service_.held.empty()) service_.Release();
  network_.Settle();
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

// Over shared memory each large message has a region that its receiver reads. 4,096 replies had all
// of them, and every connection that a message above 8 KiB was to be sent on was ended.
TEST(LargeRepliesOverSharedMemory, RepliesThatNobodyTakesLeaveRegionsToOthers) {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ProbeService service;
  const auto server = *Server::Create();
  ASSERT_TRUE(server->AddService(&service).ok());
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  // Who dials an address is one client, and a user of a socket another.
  std::string folder = "/tmp/weft_replies_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string address = "unix:" + folder + "/server";
  ASSERT_TRUE(server->Listen(address).ok());
  ChannelOptions shm;
  shm.link.paths = {PathKind::kShm};
  const auto honest = *Channel::Open(address, shm);
  const Probe::Stub stub(*honest);
  Size size;
  size.set_bytes(9000);
  Data reply;
  ASSERT_TRUE(stub.Make(size, &reply).ok());

  EngineOptions nobody_drives;
  nobody_drives.drive = EngineOptions::Drive::kCaller;
  const auto engine = *OpenNetworkEngine(nobody_drives);
  std::deque<Data> replies;
  std::deque<std::unique_ptr<Channel>> hostile;
  for (int i = 0; i < 256; ++i) {
    auto channel = Channel::Open(*engine, server->address(), shm);
    ASSERT_TRUE(channel.ok()) << i << " " << channel.status();
    hostile.push_back(*std::move(channel));
  }
  for (const auto& channel : hostile) {
    const Probe::Stub theirs(*channel);
    for (int i = 0; i < 16; ++i) {
      theirs.Make(size, &replies.emplace_back(), {}, [](const absl::Status&) {});
    }
  }
  while (server->stats().requests < replies.size()) std::this_thread::yield();
  for (int i = 0; i < 5; ++i) {
    const absl::Status status = stub.Make(size, &reply);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(honest->stats().connects, 1u);
  hostile.clear();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::test
