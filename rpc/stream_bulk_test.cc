// Payloads that the messages of a stream tell of: memory that is lent once, when the stream opens,
// and given back at its end.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "rpc/testing/payload_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using Arrival = BulkCall::Arrival;
using State = BulkCall::State;
using ClientStreamOf = ClientReaderWriter<Part, Part>;

// The wire takes 1 ms for 1 MB: a transfer of this size is under way for 4 ms.
constexpr size_t kLong = 4'000'000;

// What goes after the network that a dead machine was on.
struct Remains {
  std::unique_ptr<GuardedMemory> memory_ = std::make_unique<GuardedMemory>(kLong);
  std::unique_ptr<BulkCall> dead_bulk_;
  int pushes_ended_ = 0;
  absl::Status push_status_;
};

class StreamBulkTest : protected Remains, public PayloadTest {
 protected:
  // A stream that lends `bulk`, at both ends.
  struct Both {
    ClientStreamOf client;
    PayloadService::HeldStream server;
  };
  Both Open(BulkCall& bulk, CallOptions options = {}) {
    options.bulk = &bulk;
    ClientStreamOf client = stub_->Carry(options);
    EXPECT_TRUE(RunUntil([&] { return !service_.carried.empty(); }));
    Both both{std::move(client), std::move(service_.carried.front())};
    service_.carried.pop_front();
    return both;
  }

  // Sends it one way; the message as it was read.
  template <class From, class To>
  Part Carry(From& from, const Part& part, To& to) {
    Part read;
    int done = 0;
    to.Read(&read, [&done](bool ok) {
      EXPECT_TRUE(ok);
      ++done;
    });
    from.Write(part, [](bool ok) { EXPECT_TRUE(ok); });
    EXPECT_TRUE(RunUntil([&] { return done == 1; }));
    return read;
  }

  absl::Status Fetch(ServerContext& context, const Bulk& field, const Slice& into) {
    return EndOf([&](auto done) { context.bulk().Fetch(field, into, std::move(done)); });
  }
  absl::Status Push(ServerContext& context, const Slice& from, const Bulk& place, Bulk* field) {
    return EndOf([&](auto done) { context.bulk().Push(from, place, field, {}, std::move(done)); });
  }
  absl::Status Finish(ClientStreamOf& stream) {
    return EndOf([&](auto done) { stream.Finish(std::move(done)); });
  }

  // A push of 4 ms, under way.
  void StartLongPush(ServerContext& context) {
    service_.memory().Fill(1);
    context.bulk().Write(service_.memory().slice(0, kLong), 1, 0, [this](absl::Status status) {
      ++pushes_ended_;
      push_status_ = std::move(status);
    });
  }

  // What is in the memory once it is reclaimed must stay there.
  void ExpectNobodyTouches(BulkCall& bulk) {
    ASSERT_EQ(bulk.state(), State::kReclaimed);
    memory_->Fill(77);
    network_.RunFor(kNsPerSec);
    EXPECT_TRUE(memory_->Holds(77));
    EXPECT_TRUE(memory_->CanariesLive());
  }
};

CallOptions Within(uint64_t timeout_us) {
  CallOptions options;
  options.timeout_us = timeout_us;
  return options;
}

// --- what goes through it ------------------------------------------------------------------------

TEST_F(StreamBulkTest, MessagesTellOfPartsOfWhatWasLentOnce) {
  Start();
  BulkCall bulk(*channel_);
  ASSERT_EQ(bulk.Lend(memory_->slice(0, 400'000)), 1u);
  Both stream = Open(bulk);
  for (uint8_t round = 0; round < 12; ++round) {
    const size_t at = round % 4 * 100'000;
    for (size_t i = 0; i < 100'000; ++i) {
      memory_->bytes()[at + i] = static_cast<std::byte>(round * 3 + i * 7);
    }
    Part part;
    ASSERT_TRUE(bulk.Describe(memory_->slice(at, 100'000), part.mutable_data()).ok());
    const Part read = Carry(stream.client, part, stream.server);
    EXPECT_EQ(read.data().offset(), at);
    ASSERT_TRUE(
        Fetch(stream.server.context(), read.data(), service_.memory().slice(50, 100'000)).ok());
    EXPECT_TRUE(std::equal(memory_->bytes().begin() + at, memory_->bytes().begin() + at + 100'000,
                           service_.memory().bytes().begin() + 50));
  }
  EXPECT_EQ(bulk.state(), State::kPinned);
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
  EXPECT_EQ(bulk.state(), State::kReclaimed);
}

TEST_F(StreamBulkTest, MessagesTellWhereThereIsRoomAndWhatWasPutThere) {
  Start();
  service_.memory().Fill(9);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->slice(1000, 300'000));
  Both stream = Open(bulk);
  for (const size_t at : {200'000, 1000, 100'000, 1000}) {
    Part wanted;
    ASSERT_TRUE(bulk.Describe(memory_->slice(at, 90'000), wanted.mutable_data()).ok());
    EXPECT_FALSE(wanted.data().has_crc32c()) << "nobody has written there yet";
    const Part read = Carry(stream.client, wanted, stream.server);
    Part answer;
    ASSERT_TRUE(Push(stream.server.context(), service_.memory().slice(0, 80'000), read.data(),
                     answer.mutable_data())
                    .ok());
    const Part got = Carry(stream.server, answer, stream.client);
    const absl::StatusOr<MutableByteSpan> payload = bulk.Received(got.data());
    ASSERT_TRUE(payload.ok()) << payload.status();
    EXPECT_EQ(payload->data(), memory_->bytes().data() + at);
    EXPECT_EQ(payload->size(), 80'000u);
    EXPECT_TRUE(memory_->Holds(9, at, 80'000));
    std::fill(payload->begin(), payload->end(), std::byte{0});
  }
  EXPECT_EQ(bulk.state(), State::kPinned);
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
  EXPECT_EQ(bulk.arrival(1), Arrival::kUndefined) << "it has parts";
}

TEST_F(StreamBulkTest, NothingIsMovedForAnEmptyPayload) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->slice(0, 100));
  Both stream = Open(bulk);
  Part part;
  ASSERT_TRUE(bulk.Describe(memory_->slice(5000, 0), part.mutable_data()).ok());
  EXPECT_EQ(part.data().window(), 0u);
  EXPECT_TRUE(Fetch(stream.server.context(), part.data(), service_.memory().all()).ok());
  EXPECT_TRUE(
      Push(stream.server.context(), service_.memory().slice(0, 0), part.data(), part.mutable_data())
          .ok());
  EXPECT_EQ(bulk.Received(part.data())->size(), 0u);
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
}

TEST_F(StreamBulkTest, TheEndWaitsForTransfersUnderWay) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  Both stream = Open(bulk);
  StartLongPush(stream.server.context());
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
  EXPECT_EQ(pushes_ended_, 1);
  EXPECT_TRUE(push_status_.ok()) << push_status_;
  EXPECT_TRUE(memory_->Holds(1, 0, kLong));
  ExpectNobodyTouches(bulk);
}

TEST_F(StreamBulkTest, ATransferThatNobodyAskedAboutFailsTheStream) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Lend(memory_->slice(0, 1000));
  Both stream = Open(bulk);
  Part part;
  ASSERT_TRUE(bulk.Describe(memory_->slice(0, 1000), part.mutable_data()).ok());
  part.mutable_data()->set_crc32c(part.data().crc32c() + 1);
  stream.server.context().bulk().Fetch(part.data(), service_.memory().all(), nullptr);
  stream.server.Finish(absl::OkStatus());
  const absl::Status status = Finish(stream.client);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(bulk.state(), State::kReclaimed);
}

// --- what does not fit ---------------------------------------------------------------------------

TEST_F(StreamBulkTest, OnlyWhatIsLentCanBeDescribed) {
  Start();
  GuardedMemory other(1000);
  BulkCall bulk(*channel_);
  bulk.Lend(memory_->slice(100, 200));
  Bulk field;
  EXPECT_TRUE(bulk.Describe(memory_->slice(100, 200), &field).ok());
  EXPECT_EQ(field.offset(), 0u);
  EXPECT_TRUE(bulk.Describe(memory_->slice(299, 1), &field).ok());
  EXPECT_EQ(field.offset(), 199u);
  for (const Slice& part : {memory_->slice(99, 10), memory_->slice(299, 2), memory_->slice(0, 1000),
                            memory_->slice(301, 5), other.slice(100, 10), Slice{},
                            Slice{&memory_->memory(), kLong, 1}}) {
    const absl::Status status = bulk.Describe(part, &field);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << part.offset << " " << status;
    EXPECT_EQ(field.length(), 0u);
  }
}

TEST_F(StreamBulkTest, MemoryThatIsLentBothWaysIsDescribedByItsWindow) {
  Start();
  service_.memory().Fill(3);
  BulkCall bulk(*channel_);
  const uint32_t to_read = bulk.Lend(memory_->slice(0, 1000));
  const uint32_t to_write = bulk.Receive(memory_->slice(0, 1000));
  Both stream = Open(bulk);
  Bulk field;
  ASSERT_TRUE(bulk.Describe(to_write, memory_->slice(100, 200), &field).ok());
  EXPECT_EQ(field.window(), to_write);
  EXPECT_TRUE(Push(stream.server.context(), service_.memory().slice(0, 200), field, &field).ok());
  EXPECT_TRUE(memory_->Holds(3, 100, 200));
  ASSERT_TRUE(bulk.Describe(to_read, memory_->slice(100, 200), &field).ok());
  EXPECT_TRUE(Fetch(stream.server.context(), field, service_.memory().slice(5000, 200)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(bulk.Describe(3, memory_->slice(100, 200), &field)));
  EXPECT_TRUE(absl::IsInvalidArgument(bulk.Describe(0, memory_->slice(100, 200), &field)));
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
}

TEST_F(StreamBulkTest, AFieldThatLeavesItsWindowFailsThatTransferAlone) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Lend(memory_->slice(0, 1000));
  bulk.Receive(memory_->slice(1000, 1000));
  Both stream = Open(bulk);
  ServerContext& context = stream.server.context();
  const auto field = [](uint32_t window, uint64_t offset, uint64_t length) {
    Bulk bulk;
    bulk.set_window(window);
    bulk.set_offset(offset);
    bulk.set_length(length);
    return bulk;
  };
  const Slice room = service_.memory().slice(0, 1000);
  for (const Bulk& bad :
       {field(1, 1, 1000), field(1, 1000, 1), field(1, ~uint64_t{0}, 1000),
        field(1, ~uint64_t{0} - 500, 1000), field(2, 0, 10), field(3, 0, 10), field(0, 0, 10)}) {
    const absl::Status status = Fetch(context, bad, room);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  Bulk described;
  for (const Bulk& bad :
       {field(2, 1, 1000), field(2, ~uint64_t{0}, 1000), field(1, 0, 1000), field(0, 0, 1000)}) {
    const absl::Status status = Push(context, room, bad, &described);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  const absl::Status small = Push(context, room, field(2, 0, 999), &described);
  EXPECT_TRUE(absl::IsResourceExhausted(small)) << small;
  EXPECT_TRUE(Fetch(context, field(1, 999, 1), room).ok());
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
  EXPECT_TRUE(memory_->CanariesLive());
}

TEST_F(StreamBulkTest, AFieldThatLiesOfWhatWasReceivedIsNotBelieved) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->slice(0, 1000));
  Both stream = Open(bulk);
  Bulk field;
  field.set_window(1);
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {1, 1000}, {1001, 1}, {~uint64_t{0}, 2}, {0, 1001}, {~uint64_t{0} - 5, 1000}}) {
    field.set_offset(offset);
    field.set_length(length);
    EXPECT_TRUE(absl::IsDataLoss(bulk.Received(field).status())) << offset;
  }
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
}

TEST_F(StreamBulkTest, OneCallOrStreamAtATimeHasTheMemory) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  Both stream = Open(bulk);
  ClientStreamOf second = stub_->Carry({.bulk = &bulk});
  const absl::Status status = Finish(second);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  Parcel reply;
  EXPECT_TRUE(absl::IsFailedPrecondition(stub_->Hold(request_, &reply, {.bulk = &bulk})));
  stream.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(stream.client).ok());
  // Afterwards the next one may have it, as it is.
  Both next = Open(bulk);
  next.server.Finish(absl::OkStatus());
  EXPECT_TRUE(Finish(next.client).ok());
}

TEST_F(StreamBulkTest, AStreamThatIsNeverSentLendsNothing) {
  Start();
  stub_.reset();
  channel_.reset();
  server_.reset();
  ChannelOptions options;
  options.connect_at_once = false;
  OpenChannel(options);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  CallOptions patient = Within(5000);
  patient.bulk = &bulk;
  patient.wait_for_server = true;
  ClientStreamOf stream = stub_->Carry(patient);
  EXPECT_EQ(bulk.state(), State::kPinned);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Finish(stream)));
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  EXPECT_EQ(bulk.arrival(1), Arrival::kUntouched);
}

// --- when the memory is the client's again -------------------------------------------------------

TEST_F(StreamBulkTest, AfterACancelTheServerGivesTheMemoryBackWhileItsHandlerGoesOn) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  Both stream = Open(bulk);
  stream.client.Cancel();
  EXPECT_EQ(bulk.state(), State::kPinned) << "the server does not know yet";
  EXPECT_TRUE(bulk.WaitReclaimed(1000)) << "a round trip";
  EXPECT_TRUE(absl::IsCancelled(Finish(stream.client)));
  absl::Status late;
  stream.server.context().bulk().Write(service_.memory().slice(0, 100), 1, 0,
                                       [&](absl::Status status) { late = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return !late.ok(); }));
  EXPECT_TRUE(absl::IsCancelled(late)) << late;
  ExpectNobodyTouches(bulk);
  stream.server.Finish(absl::OkStatus());
  network_.Settle();
  EXPECT_EQ(channel_->stats().streams, 0u);
  EXPECT_EQ(channel_->stats().connects, 1u) << "the connection is as good as before";
}

TEST_F(StreamBulkTest, ATransferUnderWayAtTheDeadlineEndsBeforeTheMemoryIsReclaimed) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  Both stream = Open(bulk, Within(2000));
  StartLongPush(stream.server.context());
  EXPECT_TRUE(absl::IsDeadlineExceeded(Finish(stream.client)));
  EXPECT_EQ(pushes_ended_, 0);
  EXPECT_EQ(bulk.state(), State::kPinned);
  EXPECT_FALSE(bulk.WaitReclaimed(100)) << "the transfer takes longer";
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  EXPECT_EQ(pushes_ended_, 1);
  ExpectNobodyTouches(bulk);
  stream.server.Finish(absl::OkStatus());
  network_.Settle();
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(StreamBulkTest, AnEndThatCrossesTheCancelGivesTheMemoryBack) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  Both stream = Open(bulk);
  network_.SetWire("server", "client", {.delay_ns = 5 * kNsPerMs});
  stream.server.Finish(absl::OkStatus());
  network_.RunFor(kNsPerMs);
  stream.client.Cancel();
  EXPECT_TRUE(absl::IsCancelled(Finish(stream.client)));
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  ExpectNobodyTouches(bulk);
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(StreamBulkTest, AReleaseThatFindsNoRoomIsSentLater) {
  ChannelOptions options;
  options.link.window_slots = 4;
  Start(options);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  Both stream = Open(bulk);
  // Nothing of the server's arrives, so that it has no credit left after some messages.
  network_.Cut("server", "client");
  int sent = 0;
  while (sent < 10'000 && stream.server.TryWrite(Part()) == StreamResult::kDone) ++sent;
  ASSERT_LT(sent, 1000) << "the stream itself may send 1,024";
  stream.client.Cancel();
  network_.RunFor(kNsPerMs);
  EXPECT_TRUE(stream.server.context().cancelled());
  network_.Heal("server", "client");
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  ExpectNobodyTouches(bulk);
  stream.server.Finish(absl::OkStatus());
}

TEST_F(StreamBulkTest, WhoWaitsForTheMemoryMayGiveUpTheStreamAndTheMemory) {
  Start();
  auto bulk = std::make_unique<BulkCall>(*channel_);
  bulk->Receive(memory_->all());
  Both both = Open(*bulk);
  auto client = std::make_unique<ClientStreamOf>(std::move(both.client));
  client->Cancel();
  bulk->WhenReclaimed([&] {
    client.reset();
    bulk.reset();
  });
  ASSERT_TRUE(RunUntil([&] { return bulk == nullptr; }));
  EXPECT_EQ(client, nullptr);
  both.server.Finish(absl::OkStatus());
  network_.Settle();
  EXPECT_EQ(channel_->stats().streams, 0u);
}

TEST_F(StreamBulkTest, WhoWaitsForTheMemoryMayGiveUpTheStreamAtItsEnd) {
  Start();
  auto bulk = std::make_unique<BulkCall>(*channel_);
  bulk->Receive(memory_->all());
  Both both = Open(*bulk);
  auto client = std::make_unique<ClientStreamOf>(std::move(both.client));
  bulk->WhenReclaimed([&] {
    client.reset();
    bulk.reset();
  });
  both.server.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return bulk == nullptr; }));
  EXPECT_EQ(client, nullptr);
  network_.Settle();
  EXPECT_EQ(channel_->stats().streams, 0u);
}

TEST_F(StreamBulkTest, AServerThatDiesInATransferLeavesTheMemoryToItsOwner) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  Both stream = Open(bulk);
  StartLongPush(stream.server.context());
  network_.RunFor(kNsPerMs);
  network_.Kill("server");
  const absl::Status status = Finish(stream.client);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  ExpectNobodyTouches(bulk);
  stream.server.Finish(absl::OkStatus());
}

TEST_F(StreamBulkTest, WaitingTransfersOfALostConnectionEndToo) {
  ServerOptions options;
  options.link.max_outstanding_operations = 1;
  Start({}, options);
  dead_bulk_ = std::make_unique<BulkCall>(*channel_);
  dead_bulk_->Receive(memory_->all());
  Both stream = Open(*dead_bulk_);
  int ended = 0;
  for (int i = 0; i < 4; ++i) {
    stream.server.context().bulk().Write(service_.memory().slice(0, 1 << 20), 1, 0,
                                         [&](const absl::Status& status) {
                                           EXPECT_FALSE(status.ok());
                                           ++ended;
                                         });
  }
  stream.server.Finish(absl::OkStatus());
  EXPECT_EQ(server_->stats().running, 1u) << "held by its transfers";
  network_.Cut("client", "server");  // nobody cancels it
  { const ClientStreamOf gone = std::move(stream.client); }
  network_.Kill("client");
  ASSERT_TRUE(network_.RunUntil([&] { return ended == 4; }, 10 * kNsPerSec));
  ASSERT_TRUE(network_.RunUntil([&] { return server_->stats().connections == 0; }, kNsPerSec));
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(StreamBulkTest, AChannelThatGoesInATransferGetsItsMemoryBackWhenThatHasEnded) {
  Start();
  auto bulk = std::make_unique<BulkCall>(*channel_);
  bulk->Receive(memory_->all());
  Both stream = Open(*bulk);
  StartLongPush(stream.server.context());
  stream.server.Finish(absl::OkStatus());
  EXPECT_EQ(server_->stats().running, 1u) << "held by its transfer";
  network_.RunFor(kNsPerMs);
  { const ClientStreamOf gone = std::move(stream.client); }
  stub_.reset();
  channel_.reset();
  EXPECT_TRUE(bulk->WaitReclaimed(1'000'000));
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 0; }));
  EXPECT_EQ(pushes_ended_, 1);
  EXPECT_EQ(server_->stats().running, 0u);
  ExpectNobodyTouches(*bulk);
}

}  // namespace
}  // namespace weft::test
