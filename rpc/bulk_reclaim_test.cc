// When the memory of a call is its owner's again: never while anything could touch it, and always
// at some time.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "rpc/client/client_context.h"
#include "rpc/testing/payload_test.h"

namespace weft::test {
namespace {

using Arrival = BulkCall::Arrival;
using State = BulkCall::State;

// The wire takes 1 ms for 1 MB: a transfer of this size is under way for 4 ms.
constexpr size_t kLong = 4'000'000;

// What a dead machine leaves behind: it goes after the network that this was on.
struct Remains {
  std::unique_ptr<GuardedMemory> memory_ = std::make_unique<GuardedMemory>(kLong);
  std::unique_ptr<BulkCall> dead_bulk_;
  ParcelOutcome dead_outcome_;
  int pushes_ended_ = 0;
  absl::Status push_status_;
};

class BulkReclaimTest : protected Remains, public PayloadTest {
 protected:
  // What is in the memory once it is reclaimed must stay there.
  void ExpectNobodyTouches(BulkCall& bulk) {
    ASSERT_EQ(bulk.state(), State::kReclaimed);
    memory_->Fill(77);
    network_.RunFor(kNsPerSec);
    EXPECT_TRUE(memory_->Holds(77));
    EXPECT_TRUE(memory_->CanariesLive());
  }

  // A held call with a long push under way.
  void StartLongPush(BulkCall& bulk, ParcelOutcome* outcome, CallOptions options = {}) {
    service_.memory().Fill(1);
    bulk.Receive(memory_->all());
    StartHeld(bulk, outcome, options);
    PayloadService::HeldCall& call = service_.held.front();
    call.context().bulk().Push(service_.memory().slice(0, kLong), call.reply()->mutable_data(),
                               [this](absl::Status status) {
                                 ++pushes_ended_;
                                 push_status_ = std::move(status);
                               });
  }
};

CallOptions Within(uint64_t timeout_us) {
  CallOptions options;
  options.timeout_us = timeout_us;
  return options;
}

// --- deadlines -----------------------------------------------------------------------------------

TEST_F(BulkReclaimTest, AfterADeadlineTheServerGivesTheMemoryBackWhileItsHandlerGoesOn) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome, Within(1000));
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status)) << outcome.status;
  EXPECT_EQ(bulk.state(), State::kPinned) << "the server does not know yet";
  EXPECT_TRUE(bulk.WaitReclaimed(1000)) << "a round trip";
  EXPECT_EQ(service_.held.size(), 1u) << "the handler still has the call";

  // A late writer.
  PayloadService::HeldCall call = TakeHeld();
  absl::Status late;
  call.context().bulk().Push(service_.memory().slice(0, 100), call.reply()->mutable_data(),
                             [&](absl::Status status) { late = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return !late.ok(); }));
  EXPECT_TRUE(absl::IsCancelled(late)) << late;
  ExpectNobodyTouches(bulk);
  call.Finish(absl::OkStatus());
  network_.Settle();
  EXPECT_EQ(channel_->stats().late_replies, 1u);
  EXPECT_EQ(channel_->stats().connects, 1u) << "the connection is as good as before";
}

TEST_F(BulkReclaimTest, ATransferUnderWayWhenTheCallIsCancelledEndsBeforeTheMemoryIsReclaimed) {
  Start();
  BulkCall bulk(*channel_);
  ClientContext context;
  ParcelOutcome outcome;
  CallOptions options;
  options.context = &context;
  StartLongPush(bulk, &outcome, options);
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
  EXPECT_EQ(pushes_ended_, 0);
  EXPECT_EQ(bulk.state(), State::kPinned);
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  EXPECT_EQ(pushes_ended_, 1);
  ExpectNobodyTouches(bulk);
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(BulkReclaimTest, ATransferUnderWayAtTheDeadlineEndsBeforeTheMemoryIsReclaimed) {
  Start();
  BulkCall bulk(*channel_);
  ParcelOutcome outcome;
  StartLongPush(bulk, &outcome, Within(2000));
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(pushes_ended_, 0);
  EXPECT_EQ(bulk.state(), State::kPinned);
  EXPECT_FALSE(bulk.WaitReclaimed(100)) << "the transfer takes longer";
  EXPECT_EQ(bulk.state(), State::kPinned);
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  EXPECT_EQ(pushes_ended_, 1);
  EXPECT_EQ(bulk.arrival(1), Arrival::kUndefined);
  ExpectNobodyTouches(bulk);
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(BulkReclaimTest, ACallThatIsNeverSentLendsNothing) {
  Start();
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
  Parcel reply;
  EXPECT_TRUE(absl::IsDeadlineExceeded(stub_->Hold(request_, &reply, patient)));
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  EXPECT_EQ(bulk.arrival(1), Arrival::kUntouched);
}

TEST_F(BulkReclaimTest, TheMemoryIsReclaimedByTheReplyIfThatComesInsteadOfAnAnswer) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome, Within(1000));
  // The reply is on its way when the deadline passes: it crosses the cancel.
  network_.SetWire("server", "client", {.delay_ns = 5 * kNsPerMs});
  TakeHeld().Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status)) << outcome.status;
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  EXPECT_EQ(channel_->stats().late_replies, 1u);
  ExpectNobodyTouches(bulk);
}

TEST_F(BulkReclaimTest, WhoDoesNotWantToWaitIsTold) {
  Start();
  auto bulk = std::make_unique<BulkCall>(*channel_);
  bulk->Receive(memory_->all());
  ParcelOutcome outcome;
  StartHeld(*bulk, &outcome, Within(1000));
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  // As a program that frees everything in its callbacks does.
  bulk->WhenReclaimed([&] {
    EXPECT_EQ(bulk->state(), State::kReclaimed);
    bulk.reset();
  });
  EXPECT_NE(bulk, nullptr);
  ASSERT_TRUE(RunUntil([&] { return bulk == nullptr; }));
}

// --- loss ----------------------------------------------------------------------------------------

TEST_F(BulkReclaimTest, AServerThatDiesInATransferLeavesTheMemoryToItsOwner) {
  Start();
  BulkCall bulk(*channel_);
  ParcelOutcome outcome;
  StartLongPush(bulk, &outcome);
  network_.RunFor(kNsPerMs);
  network_.Kill("server");
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
  EXPECT_EQ(bulk.arrival(1), Arrival::kUndefined);
  ExpectNobodyTouches(bulk);
  EXPECT_TRUE(absl::IsDataLoss(bulk.Received([] {
                                     Bulk field;
                                     field.set_length(10);
                                     field.set_window(1);
                                     field.set_has_crc32c(true);
                                     return field;
                                   }())
                                   .status()));
}

TEST_F(BulkReclaimTest, AClientThatDiesInATransferCostsTheServerThatCallOnly) {
  Start();
  dead_bulk_ = std::make_unique<BulkCall>(*channel_);
  StartLongPush(*dead_bulk_, &dead_outcome_);
  network_.RunFor(kNsPerMs);
  network_.Kill("client");
  ASSERT_TRUE(network_.RunUntil([&] { return pushes_ended_ == 1; }, 10 * kNsPerSec));
  EXPECT_TRUE(absl::IsUnavailable(push_status_)) << push_status_;
  PayloadService::HeldCall call = TakeHeld();
  EXPECT_TRUE(call.context().cancelled());
  absl::Status late;
  call.context().bulk().Push(service_.memory().slice(0, 100), call.reply()->mutable_data(),
                             [&](absl::Status status) { late = std::move(status); });
  EXPECT_FALSE(late.ok()) << "no memory is left to push to";
  call.Finish(absl::OkStatus());
  ASSERT_TRUE(network_.RunUntil([&] { return server_->stats().connections == 0; }, kNsPerSec));
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(BulkReclaimTest, WaitingTransfersOfALostConnectionEndToo) {
  ServerOptions options;
  options.link.max_outstanding_operations = 1;
  Start({}, options);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_->all());
  ParcelOutcome outcome;
  StartHeld(bulk, &outcome);
  PayloadService::HeldCall call = TakeHeld();
  int ended = 0;
  for (int i = 0; i < 4; ++i) {
    call.context().bulk().Write(service_.memory().slice(0, 1 << 20), 1, 0,
                                [&](const absl::Status& status) {
                                  EXPECT_FALSE(status.ok());
                                  ++ended;
                                });
  }
  call.Finish(absl::OkStatus());
  EXPECT_EQ(server_->stats().running, 1u) << "held by its transfers";
  stub_.reset();
  channel_.reset();
  ASSERT_TRUE(RunUntil([&] { return ended == 4; }));
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 0; }));
  EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  ExpectNobodyTouches(bulk);
}

TEST_F(BulkReclaimTest, TheChannelsEndReclaimsTheMemoryOfItsCalls) {
  Start();
  BulkCall bulk(*channel_);
  ParcelOutcome outcome;
  StartLongPush(bulk, &outcome);
  network_.RunFor(kNsPerMs);
  stub_.reset();
  channel_.reset();
  EXPECT_TRUE(outcome.done());
  EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  ExpectNobodyTouches(bulk);
  service_.held.clear();
}

}  // namespace
}  // namespace weft::test
