// Bulk payloads between real engines, over every path of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/operation/on_engine.h"
#include "rpc/server/server.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/two_threads.h"
#include "transport/network.h"

namespace weft::test {
namespace {

using State = BulkCall::State;

constexpr size_t kPayload = 1 << 20;
// Part::offset() of a message to Carry().
constexpr uint64_t kFetch = 1;
constexpr uint64_t kPush = 2;

// Handlers that block, as they may on an executor; each call has a place of its own.
class BlockingService final : public Payloads::Service {
 public:
  explicit BlockingService(size_t places) : memory_(places * kPayload) {
    for (size_t place = 0; place < places; ++place) free_.push_back(place);
  }

  // Places went round once, one call after the other: on a busy machine a handler that was not run
  // for a while found that the one beside it had come round to its place, and sent the bytes of
  // another call. So a place is a call's until it has ended.
  absl::Status Exchange(ServerContext& context, const Parcel& request, Parcel* reply) override {
    const size_t place = TakePlace();
    const Slice memory = memory_.slice(place * kPayload, kPayload);
    absl::Status status = context.bulk().Fetch(request.data(), memory);
    if (status.ok()) {
      status = context.bulk().Push({memory.memory, memory.offset, request.data().length()},
                                   reply->mutable_data(), push_options);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(place);
    return status;
  }
  // Holds the caller up until the test lets go, then pushes all the same.
  absl::Status Hold(ServerContext& context, const Parcel&, Parcel* reply) override {
    std::unique_lock<std::mutex> lock(mutex_);
    ++holding;
    changed_.notify_all();
    changed_.wait(lock, [this] { return released_; });
    late = context.bulk().Push(memory_.slice(0, kPayload), reply->mutable_data());
    --holding;
    changed_.notify_all();
    return absl::OkStatus();
  }

  // Each message tells of a part to be fetched, or of room for what was fetched last.
  absl::Status Carry(ServerContext& context, ServerReaderWriter<Part, Part>& stream) override {
    const size_t place = TakePlace();
    const Slice memory = memory_.slice(place * kPayload, kPayload);
    absl::Status status;
    Part part;
    while (status.ok() && stream.Read(&part)) {
      if (part.offset() == kFetch) {
        status = context.bulk().Fetch(part.data(), memory);
      } else {
        const Bulk room = part.data();
        status = context.bulk().Push({memory.memory, memory.offset, room.length()}, room,
                                     part.mutable_data());
      }
      if (status.ok() && !stream.Write(part)) break;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(place);
    return status;
  }

  void WaitForHolding(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return holding == count; });
  }
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  GuardedMemory memory_;
  BulkOptions push_options;  // Exchange()'s
  absl::Status late;
  int holding = 0;

 private:
  size_t TakePlace() {
    const std::lock_guard<std::mutex> lock(mutex_);
    WEFT_CHECK(!free_.empty());  // there are fewer threads than places
    const size_t place = free_.back();
    free_.pop_back();
    return place;
  }

  std::mutex mutex_;
  std::vector<size_t> free_;
  std::condition_variable changed_;
  bool released_ = false;
};

class BulkNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  static constexpr size_t kPlaces = 8;

  void SetUp() override { Serve({}); }
  // Over the paths that are named only if they are.
  void Serve(const std::vector<PathKind>& paths) {
    engine_ = *OpenNetworkEngine({});
    service_ = std::make_unique<BlockingService>(kPlaces);
    ServerOptions options;
    options.executor = &executor_;
    options.link.paths = paths;
    server_ = *Server::Create(*engine_, options);
    ASSERT_TRUE(server_->AddService(service_.get()).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }
  void TearDown() override {
    server_.reset();
    EXPECT_TRUE(service_->memory_.CanariesLive());
    // Registered memory goes on the engine that has registered it.
    RunOnEngine(CoreOf(*engine_), [this] { service_.reset(); });
  }

  std::unique_ptr<Channel> Open() {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    auto channel = Channel::Open(server_->address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }

  // One exchange, with memory of its own.
  static absl::Status Exchange(Channel& channel, uint8_t seed, size_t bytes,
                               const BulkOptions& options = {}) {
    GuardedMemory sent(bytes);
    GuardedMemory received(bytes);
    sent.Fill(seed);
    BulkCall bulk(channel);
    Parcel request;
    Parcel reply;
    bulk.Send(sent.all(), request.mutable_data(), options);
    bulk.Receive(received.all());
    const absl::Status status = Payloads::Stub(channel).Exchange(request, &reply, {.bulk = &bulk});
    if (!status.ok()) return status;
    EXPECT_EQ(bulk.state(), State::kReclaimed);
    const absl::StatusOr<MutableByteSpan> payload = bulk.Received(reply.data());
    if (!payload.ok()) return payload.status();
    EXPECT_EQ(payload->size(), bytes);
    EXPECT_TRUE(received.Holds(seed) && sent.Holds(seed));
    EXPECT_TRUE(received.CanariesLive() && sent.CanariesLive());
    return absl::OkStatus();
  }

  // So many exchanges, as many at a time as there are places.
  void RunAtOnce(int calls, size_t bytes) {
    auto channel = Open();
    struct Loop {
      Loop(Channel& channel, size_t bytes) : sent(bytes), received(bytes), bulk(channel) {}
      GuardedMemory sent;
      GuardedMemory received;
      BulkCall bulk;
      Parcel request;
      Parcel reply;
      uint8_t seed = 0;
    };
    std::vector<std::unique_ptr<Loop>> loops;
    for (size_t i = 0; i < kPlaces; ++i) loops.push_back(std::make_unique<Loop>(*channel, bytes));
    Payloads::Stub stub(*channel);
    int started = 0;
    int ended = 0;
    Waiter all;
    std::function<void(Loop&)> next = [&](Loop& loop) {
      loop.seed = static_cast<uint8_t>(started++);
      loop.sent.Fill(loop.seed);
      loop.bulk.Clear();
      loop.bulk.Send(loop.sent.all(), loop.request.mutable_data());
      loop.bulk.Receive(loop.received.all());
      stub.Exchange(loop.request, &loop.reply, {.bulk = &loop.bulk},
                    [&](const absl::Status& status) {
                      EXPECT_TRUE(status.ok()) << status;
                      EXPECT_TRUE(loop.bulk.Received(loop.reply.data()).ok());
                      EXPECT_TRUE(loop.received.Holds(loop.seed));
                      if (++ended == calls) CoreOf(channel->engine()).Finish(all);
                      if (started < calls) next(loop);
                    });
    };
    ASSERT_TRUE(CoreOf(channel->engine()).Enter());
    for (auto& loop : loops) next(*loop);
    EXPECT_TRUE(CoreOf(channel->engine()).Wait(all));
    CoreOf(channel->engine()).Leave();
  }

  TwoThreads executor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<BlockingService> service_;
  std::unique_ptr<Server> server_;
};

TEST_P(BulkNetworkTest, PayloadsOfEverySizeArriveUnchanged) {
  auto channel = Open();
  EXPECT_EQ(channel->path()->kind, GetParam());
  for (size_t bytes : {0, 1, 63, 4096, 8193, 65'536, 262'145, 1 << 20}) {
    SCOPED_TRACE(bytes);
    const absl::Status status = Exchange(*channel, static_cast<uint8_t>(bytes + 1), bytes);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(BulkNetworkTest, AStreamLendsItsMemoryOnce) {
  constexpr size_t kPart = 100'000;
  auto channel = Open();
  GuardedMemory sent(4 * kPart);
  GuardedMemory received(4 * kPart);
  BulkCall bulk(*channel);
  bulk.Lend(sent.all());
  bulk.Receive(received.all());
  auto stream = Payloads::Stub(*channel).Carry({.bulk = &bulk});
  for (uint8_t round = 0; round < 40; ++round) {
    const size_t at = round % 4 * kPart;
    const size_t back_at = (round + 1) % 4 * kPart;
    for (size_t i = 0; i < kPart; ++i) sent.bytes()[at + i] = static_cast<std::byte>(round + i);
    Part part;
    part.set_offset(kFetch);
    ASSERT_TRUE(bulk.Describe(sent.slice(at, kPart), part.mutable_data()).ok());
    ASSERT_TRUE(stream.Write(part));
    ASSERT_TRUE(stream.Read(&part));
    part.set_offset(kPush);
    ASSERT_TRUE(bulk.Describe(received.slice(back_at, kPart), part.mutable_data()).ok());
    ASSERT_TRUE(stream.Write(part));
    ASSERT_TRUE(stream.Read(&part));
    const absl::StatusOr<MutableByteSpan> payload = bulk.Received(part.data());
    ASSERT_TRUE(payload.ok()) << payload.status();
    ASSERT_EQ(payload->data(), received.bytes().data() + back_at);
    ASSERT_TRUE(std::equal(payload->begin(), payload->end(), sent.bytes().begin() + at));
  }
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  EXPECT_TRUE(sent.CanariesLive() && received.CanariesLive());
}

TEST_P(BulkNetworkTest, ThreadsShareAChannel) {
  auto channel = Open();
  std::vector<std::thread> threads;
  for (uint8_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint8_t i = 0; i < 40; ++i) {
        const absl::Status status =
            Exchange(*channel, static_cast<uint8_t>(thread * 50 + i), 50'000);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(channel->stats().connects, 1u);
}

// One thread talks, another one cancels, or drops the stream: at any moment.
TEST_P(BulkNetworkTest, StreamsThatEndAtAnyMomentLeaveMemoryAndConnectionWhole) {
  constexpr size_t kPart = 40'000;
  auto channel = Open();
  std::vector<std::thread> threads;
  for (uint8_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&channel, thread] {
      GuardedMemory memory(2 * kPart);
      BulkCall bulk(*channel);
      bulk.Lend(memory.slice(0, kPart));
      bulk.Receive(memory.slice(kPart, kPart));
      for (int round = 0; round < 60; ++round) {
        CallOptions options;
        options.bulk = &bulk;
        if (round % 3 == 0) options.timeout_us = 50 + 37 * round;
        {
          auto stream = Payloads::Stub(*channel).Carry(options);
          std::thread other([&stream, round, thread] {
            std::this_thread::sleep_for(std::chrono::microseconds(11 * round * (thread + 1)));
            if (round % 3 == 1) stream.Cancel();
          });
          for (int i = 0; i < 6; ++i) {
            Part part;
            part.set_offset(i % 2 == 0 ? kFetch : kPush);
            ASSERT_TRUE(
                bulk.Describe(memory.slice(i % 2 * kPart, kPart), part.mutable_data()).ok());
            if (!stream.Write(part) || !stream.Read(&part)) break;
            if (i % 2 == 0) continue;
            const absl::StatusOr<MutableByteSpan> payload = bulk.Received(part.data());
            EXPECT_TRUE(payload.ok()) << payload.status();
          }
          if (round % 2 == 0) {
            stream.WritesDone();
            const absl::Status status = stream.Finish();
            EXPECT_TRUE(status.ok() || absl::IsCancelled(status) ||
                        absl::IsDeadlineExceeded(status))
                << status;
          }
          other.join();
        }
        ASSERT_TRUE(bulk.WaitReclaimed(10'000'000)) << round;
        memory.Fill(static_cast<uint8_t>(round));
        EXPECT_TRUE(Exchange(*channel, 3, 1000).ok());
        EXPECT_TRUE(memory.Holds(static_cast<uint8_t>(round))) << round;
      }
      EXPECT_TRUE(memory.CanariesLive());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(channel->stats().connects, 1u);
}

TEST_P(BulkNetworkTest, ManyCallsOfOneEngineAreUnderWayAtOnce) { RunAtOnce(400, 20'000); }

// Over tcp their writes wait for the client's acknowledgements, and their places with them.
TEST_P(BulkNetworkTest, ManyLargePayloadsAreUnderWayAtOnce) { RunAtOnce(80, kPayload); }

TEST_P(BulkNetworkTest, ALateWriterDoesNotTouchMemoryThatWasReclaimed) {
  auto channel = Open();
  GuardedMemory received(kPayload);
  {
    BulkCall bulk(*channel);
    bulk.Receive(received.all());
    Parcel reply;
    CallOptions options;
    options.timeout_us = 20'000;
    options.bulk = &bulk;
    const absl::Status status = Payloads::Stub(*channel).Hold(Parcel(), &reply, options);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    service_->WaitForHolding(1);
    EXPECT_TRUE(bulk.WaitReclaimed(10'000'000)) << "though the handler goes on";
    EXPECT_EQ(channel->stats().abandoned, 1u);
  }
  received.Fill(9);
  service_->Release();
  service_->WaitForHolding(0);
  EXPECT_TRUE(absl::IsCancelled(service_->late)) << service_->late;
  EXPECT_TRUE(Exchange(*channel, 1, 1000).ok()) << "the connection is as good as before";
  EXPECT_TRUE(received.Holds(9));
  EXPECT_TRUE(received.CanariesLive());
  EXPECT_EQ(channel->stats().connects, 1u);
}

TEST_P(BulkNetworkTest, DeadlinesAtAnyMomentLeaveMemoryAndConnectionWhole) {
  auto channel = Open();
  Payloads::Stub stub(*channel);
  GuardedMemory memory(kPayload);
  int in_time = 0;
  for (uint64_t timeout_us = 20; timeout_us < 1500; timeout_us += 17) {
    memory.Fill(static_cast<uint8_t>(timeout_us), 1000);
    {
      BulkCall bulk(*channel);
      Parcel request;
      Parcel reply;
      bulk.Send(memory.slice(0, kPayload / 2), request.mutable_data(), {.crc32c = false});
      bulk.Receive(memory.slice(kPayload / 2, kPayload / 2));
      CallOptions options;
      options.timeout_us = timeout_us;
      options.bulk = &bulk;
      const absl::Status status = stub.Exchange(request, &reply, options);
      EXPECT_TRUE(status.ok() || absl::IsDeadlineExceeded(status)) << status;
      in_time += status.ok();
    }
    // Reclaimed: what is written here now, stays.
    memory.Fill(200);
    EXPECT_TRUE(Exchange(*channel, 3, 10'000).ok());
    EXPECT_TRUE(memory.Holds(200)) << timeout_us;
  }
  EXPECT_TRUE(memory.CanariesLive());
  EXPECT_EQ(channel->stats().connects, 1u);
  RecordProperty("in_time", in_time);
}

INSTANTIATE_TEST_SUITE_P(Paths, BulkNetworkTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

// --- checksums -----------------------------------------------------------------------------------

// An exchange of which neither side wants one: what the fields say all the same.
struct Fields {
  Bulk sent;
  Bulk received;
};

absl::StatusOr<Fields> ExchangeWithoutChecksums(Channel& channel) {
  constexpr size_t kBytes = 10'000;
  GuardedMemory sent(kBytes);
  GuardedMemory received(kBytes);
  sent.Fill(7);
  BulkCall bulk(channel);
  Parcel request;
  Parcel reply;
  bulk.Send(sent.all(), request.mutable_data(), {.crc32c = false});
  bulk.Receive(received.all());
  absl::Status status = Payloads::Stub(channel).Exchange(request, &reply, {.bulk = &bulk});
  if (!status.ok()) return status;
  const absl::StatusOr<MutableByteSpan> payload = bulk.Received(reply.data());
  if (!payload.ok()) return payload.status();
  EXPECT_TRUE(received.Holds(7));
  return Fields{request.data(), reply.data()};
}

TEST_P(BulkNetworkTest, ChecksumsAreLeftOutWhereNobodyWantsThem) {
  service_->push_options = {.crc32c = false};
  const auto channel = Open();
  const absl::StatusOr<Fields> fields = ExchangeWithoutChecksums(*channel);
  ASSERT_TRUE(fields.ok()) << fields.status();
  EXPECT_FALSE(fields->sent.has_crc32c() || fields->received.has_crc32c());
}

// libfabric's tcp tells no length of what a read has brought: a payload of which a part had not
// come was taken for whole if its sender had left the checksum out, and had what the memory held
// before in the place of that part.
class BulkOverOfiTcpTest : public BulkNetworkTest {
 protected:
  void SetUp() override { Serve({GetParam()}); }
};

TEST_P(BulkOverOfiTcpTest, ThereAreChecksumsThoughNobodyWantsThem) {
  service_->push_options = {.crc32c = false};
  const auto channel = Open();
  ASSERT_EQ(channel->path()->kind, GetParam());
  const absl::StatusOr<Fields> fields = ExchangeWithoutChecksums(*channel);
  ASSERT_TRUE(fields.ok()) << fields.status();
  EXPECT_TRUE(fields->sent.has_crc32c() && fields->received.has_crc32c());
}

TEST_P(BulkOverOfiTcpTest, APartOfAStreamHasOneToo) {
  const auto channel = Open();
  GuardedMemory sent(1000);
  BulkCall bulk(*channel);
  bulk.Lend(sent.all());
  Part part;
  ASSERT_TRUE(bulk.Describe(sent.slice(100, 50), part.mutable_data(), {.crc32c = false}).ok());
  EXPECT_TRUE(part.data().has_crc32c());
}

TEST_P(BulkOverOfiTcpTest, AServerFetchesNothingWithoutOne) {
  const auto channel = Open();
  GuardedMemory sent(1000);
  BulkCall bulk(*channel);
  Parcel request;
  Parcel reply;
  bulk.Send(sent.all(), request.mutable_data());
  request.mutable_data()->set_has_crc32c(false);
  const absl::Status status = Payloads::Stub(*channel).Exchange(request, &reply, {.bulk = &bulk});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("has no CRC32C"), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(Paths, BulkOverOfiTcpTest, testing::Values(PathKind::kOfiTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
