// DeliveryOf() every error that Weft makes for a call or for an operation on remote memory.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/rpc_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

class DeliveryTest : public RpcTest {
 protected:
  void Hold(Outcome& outcome, const CallOptions& options = {}) {
    stub_->Hold(Data(), &outcome.reply, options, outcome.Callback());
  }
  void HoldAndWait(Outcome& outcome) {
    Hold(outcome);
    ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  }
  // The status with which it ends.
  absl::Status EndOf(Outcome& outcome) {
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_EQ(outcome.completions, 1);
    return outcome.status.value_or(absl::OkStatus());
  }
  absl::Status Fail(absl::StatusCode code, const std::string& text) {
    Failure request;
    request.set_code(static_cast<int>(code));
    request.set_text(text);
    Data reply;
    return stub_->Fail(request, &reply);
  }

  Data reply_;
};

#define EXPECT_DELIVERY(status, code_name, delivery)               \
  do {                                                             \
    const absl::Status status_ = (status);                         \
    EXPECT_EQ(status_.code(), absl::StatusCode::code_name);        \
    EXPECT_EQ(DeliveryOf(status_), Delivery::delivery) << status_; \
  } while (false)

// --- calls ---------------------------------------------------------------------------------------

TEST_F(DeliveryTest, WithoutAServerNothingIsSent) {
  ChannelOptions lazy;
  lazy.connect_at_once = false;
  OpenChannel(lazy);
  EXPECT_DELIVERY(stub_->Echo(Data(), &reply_), kUnavailable, kNotSent);
  EXPECT_DELIVERY(stub_->Echo(Data(), &reply_, {.timeout_us = 5000, .wait_for_server = true}),
                  kDeadlineExceeded, kNotSent);
}

TEST_F(DeliveryTest, ADeadlineSaysWhetherTheRequestHadLeft) {
  ChannelOptions one;
  one.max_outstanding_calls = 1;
  Start(one);
  Outcome first;
  Outcome second;
  Hold(first, {.timeout_us = 5000});
  Hold(second, {.timeout_us = 3000});
  EXPECT_DELIVERY(EndOf(second), kDeadlineExceeded, kNotSent);
  EXPECT_DELIVERY(EndOf(first), kDeadlineExceeded, kMayHaveRun);
}

TEST_F(DeliveryTest, ALostConnectionLeavesOpenWhatHasRun) {
  Start();
  Outcome outcome;
  HoldAndWait(outcome);
  network_.Kill("server");
  EXPECT_DELIVERY(EndOf(outcome), kUnavailable, kMayHaveRun);
}

TEST_F(DeliveryTest, AChannelThatIsClosedSaysItOfEachCall) {
  ChannelOptions one;
  one.max_outstanding_calls = 1;
  Start(one);
  Outcome sent;
  Outcome queued;
  HoldAndWait(sent);
  Hold(queued);
  channel_.reset();
  EXPECT_DELIVERY(EndOf(sent), kCancelled, kMayHaveRun);
  EXPECT_DELIVERY(EndOf(queued), kCancelled, kNotSent);
}

TEST_F(DeliveryTest, ALimitOfTheClientIsMetBeforeSending) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  options.max_queued_calls = 1;
  Start(options);
  std::vector<Outcome> outcomes(3);
  for (Outcome& outcome : outcomes) Hold(outcome);
  EXPECT_DELIVERY(EndOf(outcomes[2]), kResourceExhausted, kNotSent);
  channel_.reset();  // before the outcomes
}

// --- what servers answer -------------------------------------------------------------------------

class NoRoom final : public Executor {
 public:
  bool Run(Function<void()>) override { return false; }
};

TEST_F(DeliveryTest, AServerWithoutRoomHasNotRunTheCall) {
  NoRoom executor;
  ServerOptions options;
  options.executor = &executor;
  Start({}, options);
  EXPECT_DELIVERY(stub_->Echo(Data(), &reply_), kResourceExhausted, kNotSent);
}

TEST_F(DeliveryTest, ARequestBeyondTheServersBytesHasNotRun) {
  ServerOptions options;
  options.max_running_bytes = 5000;
  Start({}, options);
  Outcome held;
  stub_->Hold(MakeData(1, 4000), &held.reply, {}, held.Callback());
  EXPECT_DELIVERY(stub_->Echo(MakeData(1, 4000), &reply_), kResourceExhausted, kNotSent);
  channel_.reset();  // before the outcome
}

TEST_F(DeliveryTest, AnErrorOfAHandlerHasRunWhateverItSays) {
  Start();
  EXPECT_DELIVERY(Fail(absl::StatusCode::kUnavailable, "shard 7 is gone (not sent)"), kUnavailable,
                  kMayHaveRun);
  EXPECT_DELIVERY(Fail(absl::StatusCode::kDeadlineExceeded, "too slow"), kDeadlineExceeded,
                  kMayHaveRun);
  EXPECT_DELIVERY(Fail(absl::StatusCode::kNotFound, "no such key"), kNotFound, kUnknown);
}

// A handler whose own call was not sent has run all the same.
TEST_F(DeliveryTest, WhatAHandlerPassesOnIsNotTakenForTheServersOwn) {
  Start();
  Outcome outcome;
  HoldAndWait(outcome);
  service_.Release(WithDelivery(absl::UnavailableError("no server at db:2"), Delivery::kNotSent));
  EXPECT_DELIVERY(EndOf(outcome), kUnavailable, kMayHaveRun);
}

// --- remote memory -------------------------------------------------------------------------------

class RemoteDeliveryTest : public DeliveryTest {
 protected:
  ~RemoteDeliveryTest() override {
    memory_.reset();
    buffer_.reset();
    exported_.reset();
  }

  void StartWithMemory(const RemoteMemoryOptions& options = {}) {
    Start();
    ExportOptions all_rights;
    all_rights.rights = kAllRights;
    exported_ = *server_->Export(owned_, all_rights);
    buffer_ = *channel_->AllocateBuffer(owned_.size());
    auto memory = RemoteMemory::Open(*channel_, exported_->handle(), options);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }
  Slice Word() { return buffer_->slice(0, 8); }

  alignas(64) std::array<std::byte, 4096> owned_ = {};
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<RemoteMemory> memory_;
};

TEST_F(RemoteDeliveryTest, OperationsUnderWayAtALossMayHaveBeenCarriedOut) {
  StartWithMemory();
  Outcome read;
  Outcome write;
  absl::Status added;
  network_.Partition("client", "server");
  memory_->Read(0, Word(), read.Callback());
  memory_->Write(0, Word(), write.Callback());
  memory_->FetchAdd(8, 1, [&](absl::StatusOr<uint64_t> before) { added = before.status(); });
  EXPECT_DELIVERY(EndOf(read), kUnavailable, kMayHaveRun);
  EXPECT_DELIVERY(EndOf(write), kUnavailable, kMayHaveRun);
  ASSERT_TRUE(RunUntil([&] { return !added.ok(); }));
  EXPECT_DELIVERY(added, kUnavailable, kMayHaveRun);
}

TEST_F(RemoteDeliveryTest, WithoutAServerNothingIsSent) {
  StartWithMemory();
  KillServer();
  network_.RunFor(kNsPerSec);
  EXPECT_DELIVERY(memory_->Write(0, Word()), kUnavailable, kNotSent);
  EXPECT_DELIVERY(memory_->FetchAdd(0, 1).status(), kUnavailable, kNotSent);
  EXPECT_DELIVERY(memory_->Derive(0, 64, kMayRead, 0).status(), kUnavailable, kNotSent);
}

TEST_F(RemoteDeliveryTest, OperationsThatWaitAreNotSent) {
  StartWithMemory({.resolve_at_once = false, .max_waiting = 1});
  Outcome waits;
  Outcome beyond;
  memory_->Write(0, Word(), waits.Callback());
  memory_->Write(0, Word(), beyond.Callback());
  memory_.reset();
  EXPECT_DELIVERY(EndOf(waits), kCancelled, kNotSent);
  EXPECT_DELIVERY(EndOf(beyond), kResourceExhausted, kNotSent);
}

}  // namespace
}  // namespace weft::test
