// What bulk payloads do, and what client and handler are told, on a simulated network.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "rpc/client/client_context.h"
#include "rpc/testing/payload_test.h"

namespace weft::test {
namespace {

using Arrival = BulkCall::Arrival;
using State = BulkCall::State;
using BulkTest = PayloadTest;

bool Says(const absl::Status& status, std::string_view text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// --- there and back ------------------------------------------------------------------------------

TEST_F(BulkTest, APayloadGoesThereAndBackAndTheMemoryIsReclaimed) {
  Start();
  GuardedMemory sent(100'000);
  GuardedMemory received(120'000);
  sent.Fill(1);
  BulkCall bulk(*channel_);
  Parcel reply;
  bulk.Send(sent.all(), request_.mutable_data());
  EXPECT_EQ(bulk.Receive(received.all()), 2u);
  const absl::Status status = stub_->Exchange(request_, &reply, {.bulk = &bulk});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  EXPECT_EQ(bulk.arrival(2), Arrival::kUndefined) << "nobody has looked at it yet";

  const absl::StatusOr<MutableByteSpan> payload = bulk.Received(reply.data());
  ASSERT_TRUE(payload.ok()) << payload.status();
  EXPECT_EQ(payload->data(), received.bytes().data());
  EXPECT_EQ(payload->size(), 100'000u);
  EXPECT_TRUE(received.Holds(1, 0, 100'000));
  EXPECT_EQ(bulk.arrival(2), Arrival::kComplete);
  EXPECT_TRUE(sent.Holds(1));
  EXPECT_TRUE(sent.CanariesLive() && received.CanariesLive());
}

TEST_F(BulkTest, PayloadsAndMetadataTravelTogether) {
  Start();
  GuardedMemory sent(10'000);
  GuardedMemory received(10'000);
  sent.Fill(3);
  BulkCall bulk(*channel_);
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("k", "v").ok());
  Parcel reply;
  bulk.Send(sent.all(), request_.mutable_data());
  bulk.Receive(received.all());
  const absl::Status status =
      stub_->Exchange(request_, &reply, {.bulk = &bulk, .context = &context});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(bulk.Received(reply.data()).ok());
  EXPECT_TRUE(received.Holds(3));
}

TEST_F(BulkTest, PayloadsOfEverySizeArriveUnchanged) {
  Start();
  for (size_t bytes : {0, 1, 7, 4095, 8192, 65'537, 1 << 20, 5'000'001}) {
    SCOPED_TRACE(bytes);
    GuardedMemory sent(bytes);
    GuardedMemory received(bytes);
    sent.Fill(static_cast<uint8_t>(bytes));
    BulkCall bulk(*channel_);
    Parcel reply;
    bulk.Send(sent.all(), request_.mutable_data());
    bulk.Receive(received.all());
    const absl::Status status = stub_->Exchange(request_, &reply, {.bulk = &bulk});
    ASSERT_TRUE(status.ok()) << status;
    const absl::StatusOr<MutableByteSpan> payload = bulk.Received(reply.data());
    ASSERT_TRUE(payload.ok()) << payload.status();
    EXPECT_EQ(payload->size(), bytes);
    EXPECT_TRUE(received.Holds(static_cast<uint8_t>(bytes)));
    EXPECT_TRUE(sent.CanariesLive() && received.CanariesLive());
  }
}

// What the server keeps for transfers goes from connection to connection, with the call's memory.
TEST_F(BulkTest, PayloadsOfOneConnectionAfterThoseOfAnother) {
  Start();
  auto second = *Channel::Open(client(), "sim:server");
  uint8_t seed = 1;
  for (Channel* const channel : {channel_.get(), second.get(), channel_.get()}) {
    Payloads::Stub stub(*channel);
    GuardedMemory sent(50'000);
    GuardedMemory received(50'000);
    sent.Fill(++seed);
    BulkCall bulk(*channel);
    Parcel reply;
    bulk.Send(sent.all(), request_.mutable_data());
    bulk.Receive(received.all());
    const absl::Status status = stub.Exchange(request_, &reply, {.bulk = &bulk});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(bulk.Received(reply.data()).ok());
    EXPECT_TRUE(received.Holds(seed));
    // The next lends nothing: the windows of the last one are not there.
    EXPECT_TRUE(absl::IsInvalidArgument(stub.Exchange(request_, &reply)));
  }
}

TEST_F(BulkTest, OneObjectServesOneCallAfterTheOther) {
  Start();
  GuardedMemory sent(5000);
  GuardedMemory received(5000);
  BulkCall bulk(*channel_);
  for (uint8_t round = 0; round < 5; ++round) {
    sent.Fill(round);
    bulk.Clear();
    bulk.Send(sent.all(), request_.mutable_data());
    bulk.Receive(received.all());
    Parcel reply;
    ASSERT_TRUE(stub_->Exchange(request_, &reply, {.bulk = &bulk}).ok());
    EXPECT_TRUE(bulk.Received(reply.data()).ok());
    EXPECT_TRUE(received.Holds(round));
  }
}

TEST_F(BulkTest, CallbackCallsThatWaitForTheConnectionCarryPayloadsToo) {
  Start();
  channel_.reset();
  ChannelOptions options;
  options.connect_at_once = false;
  OpenChannel(options);
  constexpr int kCalls = 20;
  std::vector<std::unique_ptr<GuardedMemory>> memories;
  std::vector<std::unique_ptr<BulkCall>> bulks;
  std::vector<ParcelOutcome> outcomes(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    memories.push_back(std::make_unique<GuardedMemory>(9000));
    bulks.push_back(std::make_unique<BulkCall>(*channel_));
    Parcel request;
    request.mutable_data()->set_length(0);
    bulks[i]->Receive(memories[i]->all());
    stub_->Hold(request, &outcomes[i].reply, {.bulk = bulks[i].get()}, outcomes[i].Callback());
    EXPECT_EQ(bulks[i]->state(), State::kPinned);
  }
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == kCalls; }));
  for (int i = 0; i < kCalls; ++i) {
    service_.memory().Fill(static_cast<uint8_t>(i), 9000);
    PayloadService::HeldCall call = TakeHeld();
    call.context().bulk().Push(service_.memory().slice(0, 9000), call.reply()->mutable_data(),
                               nullptr);
    call.Finish(absl::OkStatus());
    ASSERT_TRUE(RunUntil([&] { return outcomes[i].done(); }));
    ASSERT_TRUE(outcomes[i].status.ok()) << outcomes[i].status;
    EXPECT_EQ(bulks[i]->state(), State::kReclaimed);
    EXPECT_TRUE(bulks[i]->Received(outcomes[i].reply.data()).ok());
    EXPECT_TRUE(memories[i]->Holds(static_cast<uint8_t>(i)));
  }
}

TEST_F(BulkTest, PartsMoveToAndFromAnyPlaceInAWindow) {
  Start();
  GuardedMemory sent(10'000);
  GuardedMemory received(10'000);
  sent.Fill(3);
  BulkCall bulk(*channel_);
  bulk.Send(sent.all(), request_.mutable_data());
  bulk.Receive(received.all());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome);
  ServerBulk& transfers = service_.held.front().context().bulk();
  EXPECT_EQ(transfers.window_count(), 2u);
  EXPECT_EQ(transfers.readable_bytes(1), 10'000u);
  EXPECT_EQ(transfers.writable_bytes(1), 0u);
  EXPECT_EQ(transfers.writable_bytes(2), 10'000u);
  EXPECT_EQ(transfers.writable_bytes(3), 0u);

  // The second half comes first, and goes to the front.
  int moved = 0;
  transfers.Read(1, 5000, service_.memory().slice(0, 5000), [&](const absl::Status& read) {
    EXPECT_TRUE(read.ok()) << read;
    transfers.Write(service_.memory().slice(0, 5000), 2, 100, [&](const absl::Status& written) {
      EXPECT_TRUE(written.ok()) << written;
      ++moved;
    });
  });
  ASSERT_TRUE(RunUntil([&] { return moved == 1; }));
  TakeHeld().Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(received.Holds(3, 100, 5000, 5000));
  EXPECT_EQ(received.bytes()[99], std::byte{0xC5}) << "beside the part";
  EXPECT_EQ(received.bytes()[5100], std::byte{0xC5}) << "beside the part";
}

TEST_F(BulkTest, TransfersBeyondTheConnectionsOperationsWaitTheirTurn) {
  ServerOptions options;
  options.link.max_outstanding_operations = 1;
  Start({}, options);
  constexpr size_t kPart = 1000;
  GuardedMemory sent(ServerBulk::kMaxTransfers * kPart);
  sent.Fill(9);
  BulkCall bulk(*channel_);
  bulk.Send(sent.all(), request_.mutable_data());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome);
  ServerBulk& transfers = service_.held.front().context().bulk();
  uint32_t moved = 0;
  const auto read = [&](size_t i) {
    transfers.Read(1, i * kPart, service_.memory().slice(i * kPart, kPart),
                   [&](const absl::Status& status) { moved += status.ok(); });
  };
  for (size_t i = 0; i < ServerBulk::kMaxTransfers; ++i) read(i);
  absl::Status beyond;
  transfers.Read(1, 0, service_.memory().slice(0, 1),
                 [&](absl::Status status) { beyond = std::move(status); });
  EXPECT_TRUE(absl::IsResourceExhausted(beyond)) << beyond;
  TakeHeld().Finish(absl::OkStatus());
  EXPECT_EQ(moved, 0u);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(moved, ServerBulk::kMaxTransfers) << "the reply waits for every transfer";
  EXPECT_TRUE(service_.memory().Holds(9, 0, ServerBulk::kMaxTransfers * kPart));
}

// The transfers of a connection wait in its own queue, and few are on their way at a time.
TEST_F(BulkTest, ManyTransfersOfOneConnectionDoNotHoldUpTheSingleOneOfAnother) {
  constexpr size_t kMany = 64;
  constexpr size_t kBytes = 50'000;  // 50 us on the wire that both connections share
  struct One {
    One(Channel& channel, size_t number) : memory(kBytes), bulk(channel) {
      memory.Fill(static_cast<uint8_t>(number));
      request.set_offset(number * kBytes);
      bulk.Send(memory.all(), request.mutable_data());
      Payloads::Stub(channel).Store(request, &outcome.reply, {.bulk = &bulk}, outcome.Callback());
    }
    GuardedMemory memory;
    BulkCall bulk;
    Part request;
    ParcelOutcome outcome;
  };
  ServerOptions options;
  options.link.max_outstanding_operations = 2;  // of each connection
  Start({}, options);
  auto other = *Channel::Open(client(), "sim:server");
  std::deque<One> many;
  for (size_t i = 0; i < kMany; ++i) many.emplace_back(*channel_, i);
  const auto ended = [&many] {
    return static_cast<size_t>(
        std::count_if(many.begin(), many.end(), [](const One& one) { return one.outcome.done(); }));
  };
  ASSERT_TRUE(RunUntil([&] { return ended() > 0; }));

  One single(*other, kMany);
  ASSERT_TRUE(RunUntil([&] { return single.outcome.done(); }));
  EXPECT_TRUE(single.outcome.status.ok()) << single.outcome.status;
  EXPECT_LT(ended(), kMany / 4);
  ASSERT_TRUE(RunUntil([&] { return ended() == kMany; }));
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(many[i].outcome.status.ok()) << many[i].outcome.status;
    EXPECT_TRUE(service_.memory().Holds(static_cast<uint8_t>(i), i * kBytes, kBytes)) << i;
  }
}

// --- the reply and its transfers -----------------------------------------------------------------

TEST_F(BulkTest, AForgottenPushDelaysTheReplyUntilItHasArrived) {
  Start();
  GuardedMemory received(4 << 20);
  service_.memory().Fill(5);
  BulkCall bulk(*channel_);
  bulk.Receive(received.all());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome);
  PayloadService::HeldCall call = TakeHeld();
  call.context().bulk().Push(service_.memory().slice(0, 4 << 20), call.reply()->mutable_data(),
                             nullptr);
  call.Finish(absl::OkStatus());
  EXPECT_EQ(server_->stats().running, 1u) << "4 MiB take 4 ms";
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(bulk.Received(outcome.reply.data()).ok());
  EXPECT_TRUE(received.Holds(5));
}

TEST_F(BulkTest, AForgottenPushThatCannotBeMadeIsTheReply) {
  Start();
  GuardedMemory received(100);
  BulkCall bulk(*channel_);
  bulk.Receive(received.all());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome);
  PayloadService::HeldCall call = TakeHeld();
  call.context().bulk().Push(service_.memory().slice(0, 101), call.reply()->mutable_data(),
                             nullptr);
  call.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.status)) << outcome.status;
  EXPECT_TRUE(Says(outcome.status, "101 bytes; the client lends 100")) << outcome.status;
  EXPECT_EQ(bulk.state(), State::kReclaimed) << "an error is a reply too";
}

TEST_F(BulkTest, ACallWithoutWindowsLendsNothing) {
  Start();
  ParcelOutcome outcome;
  stub_->Hold(request_, &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  PayloadService::HeldCall call = TakeHeld();
  EXPECT_EQ(call.context().bulk().window_count(), 0u);
  absl::Status status;
  call.context().bulk().Push(service_.memory().slice(0, 10), call.reply()->mutable_data(),
                             [&](absl::Status pushed) { status = std::move(pushed); });
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  call.Finish(status);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(Says(outcome.status, "lends no (further) memory")) << outcome.status;
}

TEST_F(BulkTest, ABlockingTransferOnTheEngineIsRefused) {
  Start();
  GuardedMemory sent(10);
  BulkCall bulk(*channel_);
  bulk.Send(sent.all(), request_.mutable_data());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome);
  // A timer of the server's engine is as much a callback as a handler is.
  class Try final : public Timer {
   public:
    Try(ServerBulk& bulk, const Parcel& request, Slice into)
        : bulk_(bulk), request_(request), into_(into) {}
    void OnTimer() override { status = bulk_.Fetch(request_.data(), into_); }
    absl::Status status;

   private:
    ServerBulk& bulk_;
    const Parcel& request_;
    const Slice into_;
  };
  PayloadService::HeldCall call = TakeHeld();
  Try attempt(call.context().bulk(), call.request(), service_.memory().all());
  server_engine().timers().Schedule(&attempt, 0);
  ASSERT_TRUE(RunUntil([&] { return !attempt.status.ok(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(attempt.status)) << attempt.status;
  call.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
}

// --- mistakes ------------------------------------------------------------------------------------

TEST_F(BulkTest, MistakesOfTheClientFailTheCallAndNothingIsSent) {
  Start();
  GuardedMemory memory(100);
  Parcel reply;
  BulkCall bulk(*channel_);
  bulk.Receive({&memory.memory(), 50, 51});
  EXPECT_TRUE(absl::IsInvalidArgument(stub_->Exchange(request_, &reply, {.bulk = &bulk})));
  bulk.Clear();
  bulk.Receive({});
  EXPECT_TRUE(absl::IsInvalidArgument(stub_->Exchange(request_, &reply, {.bulk = &bulk})));
  bulk.Clear();
  for (uint32_t i = 1; i <= kMaxWindows; ++i) EXPECT_EQ(bulk.Receive(memory.all()), i);
  EXPECT_EQ(bulk.Receive(memory.all()), 0u);
  const absl::Status status = stub_->Exchange(request_, &reply, {.bulk = &bulk});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  EXPECT_EQ(bulk.arrival(1), Arrival::kUntouched);
  EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(BulkTest, MemoryThatIsLentCannotBeLentAgain) {
  Start();
  GuardedMemory memory(100);
  BulkCall bulk(*channel_);
  bulk.Receive(memory.all());
  ParcelOutcome first;
  StartHeld(bulk, &first);
  ParcelOutcome second;
  stub_->Hold(request_, &second.reply, {.bulk = &bulk}, second.Callback());
  ASSERT_TRUE(RunUntil([&] { return second.done(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status)) << second.status;
  EXPECT_EQ(bulk.state(), State::kPinned) << "by the first";
  EXPECT_TRUE(absl::IsFailedPrecondition(bulk.Received(Bulk()).status()));
  TakeHeld().Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return first.done(); }));
  EXPECT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(bulk.state(), State::kReclaimed);
}

TEST_F(BulkTest, FieldsThatLieAboutTheirWindowAreRefusedByTheServer) {
  Start();
  GuardedMemory sent(1000);
  GuardedMemory received(1000);
  struct Case {
    const char* what;
    uint64_t length;
    uint32_t window;
    absl::StatusCode code;
    std::string text;
  };
  const Case cases[] = {
      {"longer than its window", 1001, 1, absl::StatusCode::kInvalidArgument,
       "1001 bytes at 0 leave window 1 of 1000 bytes"},
      {"longer than all memory", ~uint64_t{0}, 1, absl::StatusCode::kResourceExhausted,
       "the payload has 18446744073709551615 bytes; there is room for 8388608"},
      {"no window", 10, 0, absl::StatusCode::kInvalidArgument, "window 0 is not there"},
      {"a window beyond", 10, 3, absl::StatusCode::kInvalidArgument, "window 3 is not there"},
      {"far beyond", 10, ~uint32_t{0}, absl::StatusCode::kInvalidArgument, "is not there"},
      {"one to be written", 10, 2, absl::StatusCode::kInvalidArgument,
       "window 2 is not lent to be read"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    BulkCall bulk(*channel_);
    bulk.Send(sent.all(), request_.mutable_data(), {.crc32c = false});
    bulk.Receive(received.all());
    request_.mutable_data()->set_length(test.length);
    request_.mutable_data()->set_window(test.window);
    Parcel reply;
    const absl::Status status = stub_->Exchange(request_, &reply, {.bulk = &bulk});
    EXPECT_EQ(status.code(), test.code) << status;
    EXPECT_TRUE(Says(status, test.text)) << status;
  }
}

TEST_F(BulkTest, AWrongChecksumOfTheRequestIsDataLossAtTheHandler) {
  Start();
  GuardedMemory sent(1000);
  sent.Fill(1);
  for (bool checked : {true, false}) {
    GuardedMemory received(1000);
    BulkCall bulk(*channel_);
    bulk.Send(sent.all(), request_.mutable_data(), {.crc32c = checked});
    EXPECT_EQ(request_.data().has_crc32c(), checked);
    bulk.Receive(received.all());
    sent.bytes()[999] ^= std::byte{1};  // against the rules
    Parcel reply;
    const absl::Status status = stub_->Exchange(request_, &reply, {.bulk = &bulk});
    EXPECT_EQ(status.code(), checked ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk)
        << status;
  }
}

TEST_F(BulkTest, RepliesThatLieAreDataLossAndTheirWindowIsUndefined) {
  Start();
  GuardedMemory sent(1000);
  GuardedMemory received(1000);
  sent.Fill(2);
  BulkCall bulk(*channel_);
  bulk.Send(sent.all(), request_.mutable_data());
  bulk.Receive(received.all());
  Parcel reply;
  ASSERT_TRUE(stub_->Exchange(request_, &reply, {.bulk = &bulk}).ok());
  const auto fails = [&](uint64_t length, uint32_t window, uint32_t crc_change,
                         std::string_view text) {
    Bulk field = reply.data();
    field.set_length(length);
    field.set_window(window);
    field.set_crc32c(field.crc32c() ^ crc_change);
    const absl::Status status = bulk.Received(field).status();
    return absl::IsDataLoss(status) && Says(status, text);
  };
  EXPECT_TRUE(fails(1001, 2, 0, "1001 bytes at 0 in a window of 1000"));
  EXPECT_TRUE(fails(~uint64_t{0}, 2, 0, "in a window of 1000"));
  EXPECT_TRUE(fails(1000, 0, 0, "2 are lent"));
  EXPECT_TRUE(fails(1000, 3, 0, "2 are lent"));
  EXPECT_TRUE(fails(1000, 1, 0, "lent to be read only"));
  EXPECT_TRUE(fails(999, 2, 0, "CRC32C"));
  EXPECT_TRUE(fails(1000, 2, 1, "CRC32C"));
  EXPECT_EQ(bulk.arrival(2), Arrival::kUndefined);
  EXPECT_TRUE(bulk.Received(reply.data()).ok());
  EXPECT_EQ(bulk.arrival(2), Arrival::kComplete);
}

// Finishes at once, with a transfer under way.
class HastyService final : public Payloads::Service {
 public:
  explicit HastyService(size_t bytes) : memory_(bytes) {}
  void StartHold(UnaryCall<Parcel, Parcel> call) override {
    call.context().OnCancel([this] { ++told; });
    const uint64_t length = call.request().data().length();
    call.context().bulk().Fetch(call.request().data(), memory_.slice(0, length), nullptr);
    finished = true;
    call.Finish(absl::OkStatus());
  }

  bool finished = false;
  int told = 0;

 private:
  GuardedMemory memory_;
};

// The call goes on until its transfers have ended. A cancel meanwhile was told to a handler that
// had finished, and whose objects may be gone.
TEST_F(BulkTest, AHandlerThatHasFinishedIsNotToldOfACancel) {
  HastyService service(kServerBytes);
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&service).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel();
  GuardedMemory sent(kServerBytes);
  BulkCall bulk(*channel_);
  ClientContext context;
  ParcelOutcome outcome;
  bulk.Send(sent.all(), request_.mutable_data());
  stub_->Hold(request_, &outcome.reply, {.bulk = &bulk, .context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return service.finished; }));
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return outcome.done() && server_->stats().running == 0; }));
  EXPECT_EQ(service.told, 0);
  stub_.reset();
  channel_.reset();
  server_.reset();
}

}  // namespace
}  // namespace weft::test
