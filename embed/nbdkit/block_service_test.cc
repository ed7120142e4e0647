#include "embed/nbdkit/block_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "embed/nbdkit/block_limits.h"
#include "embed/nbdkit/testing/block_server.h"
#include "embed/nbdkit/testing/memory_device.h"
#include "weft/bulk.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/memory.h"
#include "weft/stream.h"

namespace weft::embed {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{2} << 20;
constexpr CallOptions kPatient = {.timeout_us = 60'000'000};

std::string IdOf(char client) { return std::string(kClientIdBytes, client); }

// One connection, by the protocol itself: what the plugin never sends, too.
class Client {
 public:
  explicit Client(const std::string& address)
      : channel_(*Channel::Open(*engine_, address)), stub_(*channel_) {}

  void BeginToAttach(char id) { BeginToAttach(IdOf(id)); }
  void BeginToAttach(const std::string& id) {
    wire::AttachRequest request;
    request.set_client(id);
    stream_ = std::make_unique<ClientReader<wire::AttachReply>>(stub_.Attach(request));
  }
  bool IsAttached() {
    if (!stream_->Read(&told_)) return false;
    session_ = told_.session();
    return true;
  }
  // How the session has ended.
  absl::Status End() {
    wire::AttachReply none;
    while (stream_->Read(&none)) {
    }
    return stream_->Finish();
  }

  absl::Status Write(uint64_t offset, const std::string& data, bool durable = false) {
    return stub_.Write(WriteOf(offset, data, durable), &write_reply_, kPatient);
  }
  // What has not ended when this returns, in the order in which it was sent.
  std::future<absl::Status> BeginWrite(uint64_t offset, const std::string& data,
                                       bool durable = false) {
    auto& call = calls_.emplace_back();
    stub_.Write(WriteOf(offset, data, durable), &call.write, kPatient,
                [&call](absl::Status status) { call.ended.set_value(std::move(status)); });
    return call.ended.get_future();
  }
  std::future<absl::Status> BeginFlush() {
    wire::FlushRequest request;
    request.set_session(session_);
    auto& call = calls_.emplace_back();
    stub_.Flush(request, &call.flush, kPatient,
                [&call](absl::Status status) { call.ended.set_value(std::move(status)); });
    return call.ended.get_future();
  }
  absl::StatusOr<std::string> Read(uint64_t offset, uint32_t bytes) {
    wire::ReadRequest request;
    request.set_session(session_);
    request.set_offset(offset);
    request.set_bytes(bytes);
    wire::ReadReply reply;
    const absl::Status status = stub_.Read(request, &reply, kPatient);
    if (!status.ok()) return status;
    return reply.inline_data();
  }
  // By memory of which so much is lent.
  absl::Status ReadLent(uint32_t bytes, size_t lent) {
    const auto buffer = *channel_->AllocateBuffer(lent);
    BulkCall bulk(*channel_);
    bulk.Receive(buffer->slice());
    wire::ReadRequest request;
    request.set_session(session_);
    request.set_bytes(bytes);
    wire::ReadReply reply;
    CallOptions options = kPatient;
    options.bulk = &bulk;
    return stub_.Read(request, &reply, options);
  }
  absl::Status WriteLent(size_t bytes, uint64_t claimed) {
    const auto buffer = *channel_->AllocateBuffer(bytes);
    BulkCall bulk(*channel_);
    wire::WriteRequest request;
    request.set_session(session_);
    bulk.Send(buffer->slice(), request.mutable_lent_data());
    request.mutable_lent_data()->set_length(claimed);
    wire::WriteReply reply;
    CallOptions options = kPatient;
    options.bulk = &bulk;
    return stub_.Write(request, &reply, options);
  }
  std::future<absl::Status> BeginWriteLent(size_t bytes) {
    auto& call = calls_.emplace_back();
    auto& lent = lent_.emplace_back(*channel_->AllocateBuffer(bytes), *channel_);
    wire::WriteRequest request;
    request.set_session(session_);
    lent.bulk.Send(lent.buffer->slice(), request.mutable_lent_data());
    CallOptions options = kPatient;
    options.bulk = &lent.bulk;
    stub_.Write(request, &call.write, options,
                [&call](absl::Status status) { call.ended.set_value(std::move(status)); });
    return call.ended.get_future();
  }
  absl::Status Zero(uint64_t offset, uint64_t bytes, bool durable = false) {
    return BeginZero(offset, bytes, durable).get();
  }
  std::future<absl::Status> BeginZero(uint64_t offset, uint64_t bytes, bool durable = false,
                                      const CallOptions& options = kPatient) {
    wire::ZeroRequest request;
    request.set_session(session_);
    request.set_offset(offset);
    request.set_bytes(bytes);
    request.set_durable(durable);
    auto& call = calls_.emplace_back();
    stub_.Zero(request, &call.zero, options,
               [&call](absl::Status status) { call.ended.set_value(std::move(status)); });
    return call.ended.get_future();
  }
  absl::Status Trim(uint64_t offset, uint64_t bytes) {
    wire::TrimRequest request;
    request.set_session(session_);
    request.set_offset(offset);
    request.set_bytes(bytes);
    wire::TrimReply reply;
    return stub_.Trim(request, &reply, kPatient);
  }
  absl::StatusOr<wire::ExtentsReply> Extents(uint64_t offset, uint64_t bytes, uint32_t most) {
    wire::ExtentsRequest request;
    request.set_session(session_);
    request.set_offset(offset);
    request.set_bytes(bytes);
    request.set_max_extents(most);
    wire::ExtentsReply reply;
    const absl::Status status = stub_.Extents(request, &reply, kPatient);
    if (!status.ok()) return status;
    return reply;
  }
  void Use(uint64_t session) { session_ = session; }
  uint64_t session() const { return session_; }
  const wire::AttachReply& told() const { return told_; }

 private:
  struct Call {
    wire::WriteReply write;
    wire::FlushReply flush;
    wire::ZeroReply zero;
    std::promise<absl::Status> ended;
  };

  struct Lent {
    Lent(std::unique_ptr<Buffer> buffer, Channel& channel)
        : buffer(std::move(buffer)), bulk(channel) {}
    const std::unique_ptr<Buffer> buffer;
    BulkCall bulk;
  };

  wire::WriteRequest WriteOf(uint64_t offset, const std::string& data, bool durable) const {
    wire::WriteRequest request;
    request.set_session(session_);
    request.set_offset(offset);
    request.set_durable(durable);
    request.set_inline_data(data);
    return request;
  }

  std::list<Call> calls_;                                          // outlive the channel
  const std::unique_ptr<Engine> engine_ = *OpenNetworkEngine({});  // with a thread, for futures
  const std::unique_ptr<Channel> channel_;
  const wire::Block::Stub stub_;
  std::list<Lent> lent_;  // of calls that are over when this is destroyed
  std::unique_ptr<ClientReader<wire::AttachReply>> stream_;
  wire::AttachReply told_;
  wire::WriteReply write_reply_;
  uint64_t session_ = 0;
};

class BlockServiceTest : public testing::Test {
 protected:
  ~BlockServiceTest() override { device_.Go(); }

  std::unique_ptr<Client> Attached(char id = 'a') {
    auto client = std::make_unique<Client>(server_.address());
    client->BeginToAttach(id);
    EXPECT_TRUE(client->IsAttached());
    return client;
  }

  // Until requests have so many of the server's buffers.
  void AwaitBuffers(uint64_t in_use) {
    while (server_.buffers().buffers() != in_use) std::this_thread::yield();
  }
  // All that come by an address are one client to the server, and a user of a socket is another.
  std::unique_ptr<Client> AttachedAsAnother() {
    std::string folder = "/tmp/weft-block-XXXXXX";  // TempDir() is too long for a socket
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    const std::string address = "unix:" + folder + "/socket";
    const absl::Status listening = server_.server().Listen(address);
    EXPECT_TRUE(listening.ok()) << listening;
    auto client = std::make_unique<Client>(address);
    client->BeginToAttach('z');
    EXPECT_TRUE(client->IsAttached());
    std::filesystem::remove_all(folder);
    return client;
  }

  MemoryDevice device_{kDeviceBytes};
  BlockServer server_{device_, /*threads=*/2};
};

testing::Matcher<absl::Status> Is(absl::StatusCode code) {
  return testing::Property(&absl::Status::code, code);
}

TEST_F(BlockServiceTest, ReadsWhatWasWritten) {
  const auto client = Attached();
  EXPECT_EQ(client->told().bytes(), kDeviceBytes);
  EXPECT_TRUE(client->Write(kDeviceBytes - 3, "abc").ok());
  EXPECT_EQ(*client->Read(kDeviceBytes - 4, 4), std::string("\0abc", 4));
  EXPECT_TRUE(client->Zero(kDeviceBytes - 3, 1).ok());
  const auto extents = client->Extents(kDeviceBytes - 8, 8, 8);
  ASSERT_TRUE(extents.ok()) << extents.status();
  ASSERT_EQ(extents->extents_size(), 2);
  EXPECT_EQ(extents->extents(0).bytes(), 6u);
  EXPECT_TRUE(extents->extents(0).is_hole());
}

TEST_F(BlockServiceTest, RangesBeyondTheDeviceAreRefusedAndTheClientGoesOn) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const auto client = Attached();
  EXPECT_THAT(client->Write(kDeviceBytes, "a"), Is(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(client->Write(kMost, "a"), Is(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(client->Read(kDeviceBytes - 1, 2).status(), Is(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(client->Zero(1, kMost), Is(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(client->Zero(kMost, kMost), Is(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(client->Extents(0, kDeviceBytes + 1, 1).status(), Is(absl::StatusCode::kOutOfRange));
  EXPECT_TRUE(client->Write(0, "a").ok());
  EXPECT_EQ(server_.server().stats().protocol_errors, 0u);
}

TEST_F(BlockServiceTest, PayloadsThatMakeNoSenseAreRefusedAndTheClientGoesOn) {
  const auto client = Attached();
  EXPECT_THAT(client->Write(0, std::string(kMaxInlineBytes + 1, 'a')),
              Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client->Write(0, std::string(kMaxPayloadBytes, 'a')),
              Is(absl::StatusCode::kResourceExhausted))
      << "the server takes no message of that size";
  EXPECT_THAT(client->Read(0, kMaxPayloadBytes + 1).status(),
              Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client->Read(0, kMaxInlineBytes + 1).status(), Is(absl::StatusCode::kInvalidArgument))
      << "it lends no memory";
  EXPECT_FALSE(client->ReadLent(100'000, 99'999).ok());
  EXPECT_THAT(client->WriteLent(100'000, 100'001), Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client->WriteLent(100'000, kMaxPayloadBytes + 1),
              Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client->Extents(0, 1, 0).status(), Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client->Extents(0, 1, kMaxExtents + 1).status(),
              Is(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(device_.writes(), 0);
  EXPECT_TRUE(client->ReadLent(100'000, 100'000).ok());
  EXPECT_TRUE(client->WriteLent(100'000, 100'000).ok());
}

// One request could name all of a raw device, and held a thread of the server's until its medium
// had written that many zeros, whatever its client had given up meanwhile; some of them held all
// threads.
TEST(BlockServiceRangeTest, WhatIsTooLongToTrimOrZeroIsRefusedAndTheClientGoesOn) {
  MemoryDevice device(2 * kMaxRangeBytes);
  BlockServer server(device);
  Client client(server.address());
  client.BeginToAttach('a');
  ASSERT_TRUE(client.IsAttached());
  EXPECT_TRUE(client.Write(kMaxRangeBytes, "abc").ok());
  const absl::Status zeroed = client.Zero(0, kMaxRangeBytes + 1);
  EXPECT_THAT(zeroed, Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(zeroed.message()), testing::HasSubstr("the limit is 33554432"));
  EXPECT_THAT(client.Zero(0, 2 * kMaxRangeBytes), Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client.Trim(0, kMaxRangeBytes + 1), Is(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(device.ranges(), testing::IsEmpty());
  EXPECT_TRUE(client.Zero(1, kMaxRangeBytes).ok());
  EXPECT_EQ(*client.Read(kMaxRangeBytes, 3), std::string("\0bc", 3));
  EXPECT_TRUE(client.Trim(2, kMaxRangeBytes).ok());
}

TEST_F(BlockServiceTest, WithoutASessionNothingIsCarriedOut) {
  Client client(server_.address());
  EXPECT_THAT(client.Write(0, "a"), Is(absl::StatusCode::kAborted));
  client.Use(0x1234567890abcdef);
  EXPECT_THAT(client.Write(0, "a"), Is(absl::StatusCode::kAborted));
  EXPECT_THAT(client.Read(0, 1).status(), Is(absl::StatusCode::kAborted));
  EXPECT_THAT(client.BeginFlush().get(), Is(absl::StatusCode::kAborted));
  EXPECT_EQ(device_.writes() + device_.flushes(), 0);
}

TEST_F(BlockServiceTest, ASessionEndsWithItsConnection) {
  auto lost = Attached();
  Client other(server_.address());
  other.Use(lost->session());
  EXPECT_TRUE(other.Write(0, "a").ok()) << "it has the number, so it may";
  lost.reset();
  absl::Status status;
  while (status.ok()) status = other.Write(0, "b");
  EXPECT_THAT(status, Is(absl::StatusCode::kAborted));
}

TEST(BlockServiceReadOnlyTest, AReadOnlyDeviceIsNotWritten) {
  MemoryDevice device(4096, /*read_only=*/true);
  BlockServer server(device);
  Client client(server.address());
  client.BeginToAttach('a');
  ASSERT_TRUE(client.IsAttached());
  EXPECT_TRUE(client.told().read_only());
  EXPECT_THAT(client.Write(0, "a"), Is(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(client.Zero(0, 1), Is(absl::StatusCode::kPermissionDenied));
  EXPECT_TRUE(client.Read(0, 1).ok());
}

// A disk that hangs must not stop the engine: other clients, and heartbeats, depend on it.
TEST_F(BlockServiceTest, ASlowDiskDoesNotStopTheEngine) {
  const auto client = Attached('a');
  device_.Hold();
  auto first = client->BeginWrite(0, "a");
  auto second = client->BeginWrite(1, "b");
  device_.AwaitHeld(1);  // all threads that one client has wait for the disk
  const auto other = Attached('b');
  EXPECT_THAT(other->Write(kDeviceBytes, "a"), Is(absl::StatusCode::kOutOfRange));
  device_.Go();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

// A client loses its connection while a write of its waits for the disk, connects again and sends
// the write again, and then writes something else there. The first copy must not come behind that.
TEST_F(BlockServiceTest, AClientThatAttachesAgainFindsNothingOfItsOldSessionUnderWay) {
  const auto before = Attached('a');
  device_.Hold();
  auto late = before->BeginWrite(0, "old");
  device_.AwaitHeld(1);
  Client after(server_.address());
  after.BeginToAttach('a');
  EXPECT_THAT(before->End(), Is(absl::StatusCode::kAborted));  // the server has seen the second
  EXPECT_THAT(before->Read(0, 1).status(), Is(absl::StatusCode::kAborted));
  EXPECT_EQ(device_.writes(), 0);
  device_.Go();
  ASSERT_TRUE(after.IsAttached());
  EXPECT_EQ(device_.writes(), 1);
  EXPECT_TRUE(after.Write(0, "new").ok());
  EXPECT_TRUE(late.get().ok());
  EXPECT_EQ(*after.Read(0, 3), "new");
}

TEST_F(BlockServiceTest, WhatWaitedForAThreadOfTheDiskEndsWithItsSession) {
  const auto before = Attached('a');
  device_.Hold();
  std::vector<std::future<absl::Status>> writes;
  for (int i = 0; i < 10; ++i) writes.push_back(before->BeginWrite(i, "x"));
  device_.AwaitHeld(1);
  Client after(server_.address());
  after.BeginToAttach('a');
  EXPECT_THAT(before->End(), Is(absl::StatusCode::kAborted));
  device_.Go();
  ASSERT_TRUE(after.IsAttached());
  EXPECT_EQ(device_.writes(), 1);
  int carried_out = 0;
  for (auto& write : writes) carried_out += write.get().ok();
  EXPECT_EQ(carried_out, 1);
}

TEST_F(BlockServiceTest, AClientThatGivesUpWaitingForItsOldSessionLeavesNothingBehind) {
  const auto before = Attached('a');
  device_.Hold();
  auto late = before->BeginWrite(0, "old");
  device_.AwaitHeld(1);
  {
    Client impatient(server_.address());
    impatient.BeginToAttach('a');
    EXPECT_THAT(before->End(), Is(absl::StatusCode::kAborted));
  }
  Client after(server_.address());
  after.BeginToAttach('a');
  device_.Go();
  EXPECT_TRUE(after.IsAttached());
  EXPECT_TRUE(late.get().ok());
}

// The server closed all earlier sessions of a client that attached, and it looked as if there could
// be many: there are two at most, for one that waits has nothing under way.
TEST_F(BlockServiceTest, AClientThatAttachesAgainAndAgainEndsTheOneBefore) {
  const auto before = Attached('a');
  device_.Hold();
  auto late = before->BeginWrite(0, "old");
  device_.AwaitHeld(1);
  std::list<Client> waiting;
  for (int i = 0; i < 5; ++i) {
    Client* const earlier = waiting.empty() ? before.get() : &waiting.back();
    waiting.emplace_back(server_.address()).BeginToAttach('a');
    EXPECT_THAT(earlier->End(), Is(absl::StatusCode::kAborted));
  }
  device_.Go();
  ASSERT_TRUE(waiting.back().IsAttached());
  EXPECT_TRUE(late.get().ok());
  EXPECT_TRUE(waiting.back().Write(0, "new").ok());
}

// Four connections of one client had all buffers of a server, as long as the disk was slow.
TEST_F(BlockServiceTest, AClientsPayloadsLeaveAnEighthOfTheBuffersToOthers) {
  constexpr size_t kPayload = size_t{1} << 20;  // two in a slab, of which the server has four
  const auto greedy = Attached('a');
  const auto again = Attached('b');
  device_.Hold();
  std::list<std::future<absl::Status>> held;
  for (int i = 0; i < 3; ++i) held.push_back(greedy->BeginWriteLent(kPayload));
  for (int i = 0; i < 3; ++i) held.push_back(again->BeginWriteLent(kPayload));
  AwaitBuffers(6);
  EXPECT_THAT(greedy->BeginWriteLent(kPayload).get(), Is(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(again->BeginWriteLent(kPayload).get(), Is(absl::StatusCode::kResourceExhausted));
  const auto other = AttachedAsAnother();
  auto last = other->BeginWriteLent(kPayload);
  AwaitBuffers(7);
  device_.Go();
  EXPECT_TRUE(last.get().ok());
  for (auto& write : held) EXPECT_TRUE(write.get().ok());
  EXPECT_TRUE(greedy->BeginWriteLent(kPayload).get().ok());
}

// The limit was one of bytes: a client that had a payload of another size in each slab had reached
// a fraction of it, and others' payloads found no slab.
TEST_F(BlockServiceTest, AClientsPayloadsOfAllSizesLeaveSlabsToOthers) {
  const auto greedy = Attached('a');
  device_.Hold();
  std::list<std::future<absl::Status>> held;
  for (const size_t bytes : {100'000, 200'000, 400'000}) {  // a slab for each
    held.push_back(greedy->BeginWriteLent(bytes));
  }
  AwaitBuffers(3);
  EXPECT_THAT(greedy->BeginWriteLent(800'000).get(), Is(absl::StatusCode::kResourceExhausted));
  held.push_back(greedy->BeginWriteLent(100'000));
  AwaitBuffers(4);
  const auto other = AttachedAsAnother();
  auto last = other->BeginWriteLent(800'000);
  AwaitBuffers(5);
  device_.Go();
  EXPECT_TRUE(last.get().ok());
  for (auto& write : held) EXPECT_TRUE(write.get().ok());
}

// Each left a session behind for as long as a request of it waited for the disk.
TEST_F(BlockServiceTest, WhoAttachesWithoutEndLeavesSessionsToOthers) {
  device_.Hold();
  constexpr uint32_t kMost = 2048 - 2048 / 8;
  std::list<std::unique_ptr<Client>> connections;
  uint32_t sessions = 0;
  while (true) {
    if (sessions % (kMaxRequests - 1) == 0) {
      connections.push_back(std::make_unique<Client>(server_.address()));
    }
    std::string id = std::to_string(sessions);
    id.resize(kClientIdBytes);
    connections.back()->BeginToAttach(id);
    if (!connections.back()->IsAttached()) break;
    ASSERT_LE(++sessions, kMost);
    connections.back()->BeginWrite(0, "a");
    // The server has the write when it has answered this, and the session stays.
    EXPECT_THAT(connections.back()->Read(kDeviceBytes, 1).status(),
                Is(absl::StatusCode::kOutOfRange));
  }
  EXPECT_THAT(connections.back()->End(), Is(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(sessions, kMost);
  AttachedAsAnother();
  device_.Go();
}

TEST_F(BlockServiceTest, FlushesThatWaitBecomeOne) {
  const auto client = Attached();
  device_.Hold();
  std::vector<std::future<absl::Status>> flushes;
  flushes.push_back(client->BeginFlush());
  device_.AwaitHeld(1);
  for (int i = 0; i < 20; ++i) flushes.push_back(client->BeginFlush());
  // Small messages keep their order: the server has them all when it has answered this one.
  EXPECT_THAT(client->Write(kDeviceBytes, "a"), Is(absl::StatusCode::kOutOfRange));
  device_.Go();
  for (auto& flush : flushes) EXPECT_TRUE(flush.get().ok());
  EXPECT_EQ(device_.flushes(), 2);
}

// A medium that has to write zeros takes its time, and the system carries out one such call on a
// file at a time: each of the others held a thread of the pool, and nobody could read.
TEST_F(BlockServiceTest, WhatIsZeroedHoldsUpNeitherReadsNorWritesNorFlushes) {
  const auto client = Attached('a');
  device_.Hold(MemoryDevice::Held::kRanges);
  std::vector<std::future<absl::Status>> zeros;
  for (int i = 0; i < 10; ++i) zeros.push_back(client->BeginZero(i, 1));
  device_.AwaitHeld(1);
  const auto other = Attached('b');
  EXPECT_TRUE(other->Write(100, "abc").ok());
  EXPECT_TRUE(client->Write(103, "def").ok());
  EXPECT_EQ(*other->Read(100, 6), "abcdef");
  EXPECT_TRUE(client->BeginFlush().get().ok());
  EXPECT_THAT(device_.ranges(), testing::IsEmpty());
  device_.Go();
  for (auto& zero : zeros) EXPECT_TRUE(zero.get().ok());
}

// What was zeroed durably was flushed by the thread that had zeroed it: as many flushes at once as
// there were threads, and each waited for all that anybody had written.
TEST_F(BlockServiceTest, WhatIsZeroedDurablyHasPartInTheNextFlush) {
  const auto client = Attached();
  EXPECT_TRUE(client->Zero(0, 1, /*durable=*/true).ok());
  EXPECT_EQ(device_.flushes(), 1);
  device_.Hold(MemoryDevice::Held::kFlushes);
  auto flush = client->BeginFlush();
  device_.AwaitHeld(1);
  std::vector<std::future<absl::Status>> zeros;
  for (int i = 0; i < 10; ++i) zeros.push_back(client->BeginZero(i, 1, /*durable=*/true));
  EXPECT_TRUE(client->Zero(10, 1).ok()) << "all before it wait for the flush, and not for a thread";
  EXPECT_THAT(device_.ranges(), testing::SizeIs(12));
  device_.Go();
  EXPECT_TRUE(flush.get().ok());
  for (auto& zero : zeros) EXPECT_TRUE(zero.get().ok());
  EXPECT_EQ(device_.flushes(), 3);
}

TEST_F(BlockServiceTest, WhatIsToBeDurableFailsWithItsFlush) {
  const auto client = Attached();
  device_.FailFlushes(true);
  EXPECT_THAT(client->Zero(0, 1, /*durable=*/true), Is(absl::StatusCode::kDataLoss));
  client->BeginToAttach('a');
  ASSERT_TRUE(client->IsAttached());
  EXPECT_THAT(client->Write(0, "a", /*durable=*/true), Is(absl::StatusCode::kDataLoss));
}

TEST_F(BlockServiceTest, WhatWaitsToBeZeroedIsLeftWhenItsDeadlineHasPassed) {
  const auto client = Attached();
  device_.Hold(MemoryDevice::Held::kRanges);
  auto first = client->BeginZero(0, 1);
  device_.AwaitHeld(1);
  EXPECT_THAT(client->BeginZero(1, 1, false, {.timeout_us = 1'000}).get(),
              Is(absl::StatusCode::kDeadlineExceeded));
  // Small messages keep their order: the server has been told when it has answered this one.
  EXPECT_THAT(client->Write(kDeviceBytes, "a"), Is(absl::StatusCode::kOutOfRange));
  device_.Go();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(client->Zero(2, 1).ok());
  EXPECT_THAT(device_.ranges(), testing::ElementsAre(testing::Pair(0, 1), testing::Pair(2, 1)));
}

// fdatasync(2) reports what the medium has refused to one of those who ask, and succeeds from then
// on: another client, whose writes are lost as well, must not hear that all is well.
TEST_F(BlockServiceTest, AFlushThatFailsEndsTheSessionsOfAllClients) {
  const auto first = Attached('a');
  const auto second = Attached('b');
  EXPECT_TRUE(second->Write(0, "lost").ok());
  device_.FailFlushes(true);
  EXPECT_THAT(first->BeginFlush().get(), Is(absl::StatusCode::kDataLoss));
  device_.FailFlushes(false);
  EXPECT_THAT(second->BeginFlush().get(), Is(absl::StatusCode::kAborted));
  const uint64_t epoch = second->told().epoch();
  second->BeginToAttach('b');
  ASSERT_TRUE(second->IsAttached());
  EXPECT_NE(second->told().epoch(), epoch);
}

// One that waited for its turn meanwhile was told of the next flush, which succeeds: its client
// counted as flushed what was lost.
TEST_F(BlockServiceTest, AFlushThatFailsFailsThoseThatWaitBehindItAsWell) {
  const auto first = Attached('a');
  const auto second = Attached('b');
  EXPECT_TRUE(second->Write(0, "lost").ok());
  device_.FailOneFlush();
  device_.Hold(MemoryDevice::Held::kFlushes);
  auto failing = first->BeginFlush();
  device_.AwaitHeld(1);
  auto flush = second->BeginFlush();
  auto zero = second->BeginZero(4, 1, /*durable=*/true);
  EXPECT_TRUE(second->Zero(5, 1).ok()) << "the one before it waits for a flush";
  auto write = second->BeginWrite(6, "x", /*durable=*/true);
  while (*second->Read(6, 1) != "x") std::this_thread::yield();
  device_.Go();
  EXPECT_THAT(failing.get(), Is(absl::StatusCode::kDataLoss));
  EXPECT_THAT(flush.get(), Is(absl::StatusCode::kAborted));
  EXPECT_THAT(zero.get(), Is(absl::StatusCode::kAborted));
  EXPECT_THAT(write.get(), Is(absl::StatusCode::kAborted))
      << "it synced by itself, and was not told what the flush beside it had been told";
}

TEST_F(BlockServiceTest, AClientsIdHasItsLength) {
  const auto channel = *Channel::Open(server_.address());
  const wire::Block::Stub stub(*channel);
  wire::AttachRequest request;
  request.set_client("short");
  auto stream = stub.Attach(request);
  wire::AttachReply reply;
  EXPECT_FALSE(stream.Read(&reply));
  EXPECT_THAT(stream.Finish(), Is(absl::StatusCode::kInvalidArgument));
}

TEST_F(BlockServiceTest, AShutdownDoesNotWaitForSessions) {
  const auto client = Attached();
  server_.service().EndSessions();
  EXPECT_THAT(client->End(), Is(absl::StatusCode::kUnavailable));
}

// Sessions took turns: a client that had many of them had as many turns.
TEST_F(BlockServiceTest, AClientWithManySessionsHasOneTurn) {
  std::vector<std::unique_ptr<Client>> greedy;
  for (int i = 0; i < 8; ++i) greedy.push_back(Attached(static_cast<char>('a' + i)));
  const auto other = AttachedAsAnother();
  device_.Hold(MemoryDevice::Held::kRanges);  // for which there is one thread
  std::list<std::future<absl::Status>> held;
  for (const auto& client : greedy) {
    held.push_back(client->BeginZero(0, 1));
    // Small messages keep their order: the server has it when it has answered this one.
    EXPECT_THAT(client->Write(kDeviceBytes, "a"), Is(absl::StatusCode::kOutOfRange));
  }
  held.push_back(other->BeginZero(1, 1));
  EXPECT_THAT(other->Write(kDeviceBytes, "a"), Is(absl::StatusCode::kOutOfRange));
  device_.Go();
  for (auto& zero : held) EXPECT_TRUE(zero.get().ok());
  const auto ranges = device_.ranges();
  ASSERT_THAT(ranges, testing::SizeIs(9));
  const std::pair<uint64_t, uint64_t> others = {1, 1};
  EXPECT_LE(std::find(ranges.begin(), ranges.end(), others) - ranges.begin(), 2)
      << "behind the one that was held, and the greedy client's turn";
}

// A flush that came while another one ran was next, and the one behind it, so that a thread was
// theirs for good: of one thread nobody else had anything.
TEST(FlushTurnsTest, FlushesWithoutEndLeaveOthersTheirTurns) {
  class Device final : public MemoryDevice {
   public:
    Device() : MemoryDevice(kDeviceBytes) {}
    bool ReadCached(uint64_t, MutableByteSpan) override { return false; }
    absl::Status Flush() override {
      order += 'f';
      if (order.size() == 1) gone.wait();
      return MemoryDevice::Flush();
    }
    absl::Status Read(uint64_t offset, MutableByteSpan into) override {
      order += 'r';
      return MemoryDevice::Read(offset, into);
    }
    std::promise<void> go;
    const std::shared_future<void> gone = go.get_future().share();
    std::string order;  // of the one thread
  };
  Device device;
  {
    BlockServer server(device, /*threads=*/1);
    const auto await_requests = [&server](uint64_t count) {
      while (server.server().stats().requests < count) std::this_thread::yield();
    };
    Client first(server.address()), second(server.address());
    first.BeginToAttach('a');
    second.BeginToAttach('b');
    ASSERT_TRUE(first.IsAttached() && second.IsAttached());
    const uint64_t before = server.server().stats().requests;
    auto flush = first.BeginFlush();
    await_requests(before + 1);
    auto read = std::async(std::launch::async, [&second] { return second.Read(0, 1).status(); });
    await_requests(before + 2);
    auto next = first.BeginFlush();
    await_requests(before + 3);
    device.go.set_value();
    EXPECT_TRUE(flush.get().ok());
    EXPECT_TRUE(next.get().ok());
    EXPECT_TRUE(read.get().ok());
  }
  EXPECT_EQ(device.order, "frf");
}

TEST(DiskPoolTest, ClientsTakeTurns) {
  std::string order;  // of the one thread
  constexpr uint64_t kBusy = 1;
  constexpr uint64_t kModest = 2;
  std::promise<void> go;
  {
    DiskPool pool(1);
    pool.Run(kBusy, [&] { go.get_future().wait(); });
    for (char i = '1'; i <= '5'; ++i) pool.Run(kBusy, [&order, i] { order += i; });
    pool.Run(kModest, [&] { order += 'm'; });
    go.set_value();
  }
  const size_t modest = order.find('m');
  EXPECT_LE(modest, 1u) << order;
  order.erase(modest, 1);
  EXPECT_EQ(order, "12345") << "those of one client keep their order";
}

// Clients took turns for the beginning of tasks alone: who had as many long ones as there are
// threads had all of them.
TEST(DiskPoolTest, AClientLeavesAThreadToOthers) {
  constexpr uint64_t kBusy = 1;
  constexpr uint64_t kModest = 2;
  std::promise<void> go, served;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> ran{0};
  {
    DiskPool pool(3);
    for (int i = 0; i < 6; ++i) {
      pool.Run(kBusy, [&ran, gone] {
        gone.wait();
        ++ran;
      });
    }
    pool.Run(kModest, [&served] { served.set_value(); });
    served.get_future().wait();
    go.set_value();
  }
  EXPECT_EQ(ran, 6) << "those that waited for one of its threads";
}

// Each task of a client that had no other made a queue and destroyed it.
TEST(DiskPoolTest, TheQueueOfAClientThatIsIdleIsTheNextOnes) {
  std::vector<uint64_t> order;  // of the one thread
  constexpr uint64_t kClients = 100;
  {
    DiskPool pool(1);
    for (uint64_t client = 1; client <= kClients; ++client) {
      std::promise<void> ran;
      pool.Run(client, [&] {
        order.push_back(client);
        ran.set_value();
      });
      ran.get_future().wait();
    }
    pool.Run(1, [&] { order.push_back(1); });
    pool.Run(2, [&] { order.push_back(2); });
  }
  ASSERT_THAT(order, testing::SizeIs(kClients + 2));
  EXPECT_EQ(order.front(), 1u);
  EXPECT_EQ(order[kClients - 1], kClients);
  EXPECT_EQ(order[kClients + 1], 2u);
}

}  // namespace
}  // namespace weft::embed
