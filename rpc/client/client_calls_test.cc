// Calls by themselves: the test is their connection, their server and their host.
#include "rpc/client/client_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "rpc/testing/loopback.h"
#include "rpc/testing/raw_peer.h"

namespace weft::test {
namespace {

// Takes what is sent while there is room, and keeps it.
class KeptConnection final : public LoopbackConnection {
 public:
  KeptConnection() { state_ = State::kOpen; }

  absl::StatusOr<std::byte*> Reserve(size_t bytes) override {
    if (room == 0) return absl::ResourceExhaustedError("no credit");
    frames.emplace_back(bytes);
    return frames.back().data();
  }
  uint64_t Commit(size_t) override {
    --room;
    return frames.size() - 1;
  }
  uint64_t first_unsent() const override { return unsent; }

  int room = 100;
  uint64_t unsent = 0;
  std::vector<Bytes> frames;
};

class Host final : public ClientCallsHost {
 public:
  void OnOpen(Connection&) override {}
  void OnWritable() override {}
  void OnClosed(Connection&, const absl::Status&) override {}
  void OnCallWaits() override {
    ++waits;
    if (on_call_waits) on_call_waits();
  }
  void OnGoaway(bool) override {}
  void OnIdle(ByteSpan) override {}
  void OnMoved() override {}
  void OnCallsLeft() override {}
  void OnRoom() override {}
  void EndConnection(absl::Status reason, std::string_view) override { ended = std::move(reason); }

  int waits = 0;
  Function<void()> on_call_waits;
  absl::Status ended;
};

struct Call final : ClientCall {
  explicit Call(ClientCalls& calls) : ClientCall(calls, Kind::kBlocking) {
    request = &message;
    reply.message = &answer;
  }
  void Complete(absl::Status status) override {
    ++ends;
    outcome = std::move(status);
  }

  rpc::ClientHello message;
  rpc::ClientHello answer;
  int ends = 0;
  absl::Status outcome;
};

constexpr std::array<MethodDescriptor, 1> kMethods = {
    {{"Get", "Request", "Reply", nullptr, nullptr}}};
constexpr ServiceDescriptor kService = {"test.Service", kMethods};

ChannelOptions ShortQueue() {
  ChannelOptions options;
  options.max_queued_calls = 2;
  return options;
}

class ClientCallsTest : public testing::Test {
 protected:
  static constexpr uint32_t kSlots = 2;

  ClientCallsTest() { calls_.Bind(kService); }
  void TearDown() override {
    calls_.CheckInvariants();
    calls_.Shutdown(absl::CancelledError("over"));
  }

  void Open() {
    rpc::ServerHello hello;
    hello.set_max_outstanding_calls(kSlots);
    hello.set_max_request_bytes(1000);
    rpc::ServiceTable* const service = hello.add_services();
    service->set_name("test.Service");
    service->add_methods("Get");
    ASSERT_TRUE(calls_.Open(connection_, hello).ok());
  }
  void Close() {
    calls_.Close(connection_, absl::UnavailableError("not sent"),
                 absl::UnavailableError("may have run"));
  }
  // The server answers what was sent as frame `number`.
  void Answer(size_t number) {
    const Bytes reply = Reply(CallIdOf(connection_.frames[number]), 0, 0, "");
    static_cast<ConnectionHandler&>(calls_).OnMessage(connection_, reply);
    calls_.CheckInvariants();
  }

  const std::unique_ptr<Engine> engine_ = *OpenLoopbackEngine();
  const std::string address_ = "nowhere";
  const ChannelOptions options_ = ShortQueue();
  KeptConnection connection_;
  Host host_;
  ClientCalls calls_{&host_, CoreOf(*engine_), address_, options_};
  Call first_{calls_};
  Call second_{calls_};
  Call third_{calls_};
};

TEST_F(ClientCallsTest, WithoutAConnectionCallsWaitAndLeaveWhenThereIsOne) {
  calls_.Start(first_);
  EXPECT_EQ(host_.waits, 1);
  EXPECT_TRUE(calls_.some_wait());
  Open();
  EXPECT_TRUE(connection_.frames.empty());
  calls_.Pump();
  EXPECT_EQ(connection_.frames.size(), 1u);
  EXPECT_FALSE(calls_.some_wait());
  EXPECT_FALSE(calls_.answered());
  Answer(0);
  EXPECT_TRUE(calls_.answered());
  EXPECT_EQ(first_.ends, 1);
  EXPECT_TRUE(first_.outcome.ok());
}

TEST_F(ClientCallsTest, TheQueueHasALimit) {
  for (Call* call : {&first_, &second_, &third_}) calls_.Start(*call);
  EXPECT_EQ(calls_.stats().queued, 2u);
  EXPECT_TRUE(absl::IsResourceExhausted(third_.outcome));
  EXPECT_EQ(first_.ends + second_.ends, 0);
}

TEST_F(ClientCallsTest, CallsBeyondTheSlotsWaitForAReply) {
  Open();
  for (Call* call : {&first_, &second_, &third_}) calls_.Start(*call);
  EXPECT_EQ(connection_.frames.size(), kSlots);
  EXPECT_EQ(host_.waits, 0);
  Answer(0);
  EXPECT_EQ(first_.ends, 1);
  EXPECT_EQ(connection_.frames.size(), kSlots + 1);
  Answer(2);
  EXPECT_EQ(third_.ends, 1);
}

TEST_F(ClientCallsTest, NobodyOvertakesThoseWhoWait) {
  Open();
  connection_.room = 0;
  calls_.Start(first_);
  connection_.room = 100;
  calls_.Start(second_);
  EXPECT_TRUE(connection_.frames.empty());
  calls_.Pump();
  ASSERT_EQ(connection_.frames.size(), 2u);
  Answer(0);
  EXPECT_EQ(first_.ends, 1);
  EXPECT_EQ(second_.ends, 0);
}

TEST_F(ClientCallsTest, HeldCallsLeaveWhenTheLastHoldIsReleased) {
  Open();
  calls_.HoldCalls();
  calls_.HoldCalls();
  calls_.Start(first_);
  calls_.ReleaseCalls();
  EXPECT_TRUE(connection_.frames.empty());
  calls_.ReleaseCalls();
  EXPECT_EQ(connection_.frames.size(), 1u);
}

TEST_F(ClientCallsTest, ALossTellsWhatWasSentFromWhatWasNotAndLeavesTheQueue) {
  Open();
  for (Call* call : {&first_, &second_, &third_}) calls_.Start(*call);
  connection_.unsent = 1;
  Close();
  EXPECT_EQ(first_.outcome.message(), "may have run");
  EXPECT_EQ(second_.outcome.message(), "not sent");
  EXPECT_EQ(third_.ends, 0);
  Open();
  calls_.Pump();
  EXPECT_EQ(connection_.frames.size(), 3u);
}

TEST_F(ClientCallsTest, AnExpiredCallIsCancelledAndItsLateReplyIsNoError) {
  Open();
  calls_.Start(first_);
  calls_.Expire(first_);
  EXPECT_TRUE(absl::IsDeadlineExceeded(first_.outcome));
  ASSERT_EQ(connection_.frames.size(), 2u);
  EXPECT_EQ(CallFrameKindOf(connection_.frames[1]), static_cast<uint16_t>(CallFrameKind::kCancel));
  EXPECT_EQ(calls_.stats().abandoned, 1u);
  Answer(0);
  EXPECT_EQ(first_.ends, 1);
  EXPECT_EQ(calls_.stats().abandoned, 0u);
  EXPECT_EQ(calls_.stats().late_replies, 1u);
  EXPECT_TRUE(host_.ended.ok());
}

TEST_F(ClientCallsTest, AReplyToNoCallEndsTheConnection) {
  Open();
  calls_.Start(first_);
  Answer(0);
  Answer(0);
  EXPECT_TRUE(absl::IsDataLoss(host_.ended));
  EXPECT_EQ(first_.ends, 1);
}

TEST_F(ClientCallsTest, AHelloThatAllowsNoCallIsRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(calls_.Open(connection_, rpc::ServerHello())));
}

TEST_F(ClientCallsTest, AfterTheEndEveryCallEndsAtOnce) {
  Open();
  calls_.Start(first_);
  calls_.Shutdown(absl::CancelledError("closed"));
  EXPECT_EQ(first_.outcome.message(), "closed");
  calls_.Start(second_);
  EXPECT_TRUE(absl::IsFailedPrecondition(second_.outcome)) << "it may be started by a callback";
}

// --- calls that fail while others are started ----------------------------------------------------

class EarlyEndsTest : public ClientCallsTest {
 protected:
  ~EarlyEndsTest() override = default;

  void StartOne(const absl::Status& valid = absl::OkStatus(), uint32_t method = 0) {
    ++started_;
    CallbackCall& call = calls_.NewCallbackCall();
    call.method = method;
    call.request = &message_;
    call.reply.message = &answer_;
    call.done = [this](absl::Status status) {
      EXPECT_FALSE(inside_) << "a callback ran inside the function that starts a call: " << status;
      ++ended_;
      outcome_ = std::move(status);
    };
    inside_ = true;
    calls_.StartFromCallback(call, valid);
    inside_ = false;
  }
  // All that were started have ended in the next turn, once, and none earlier.
  void ExpectAllEndInTheTurn(absl::StatusCode code) {
    EXPECT_EQ(ended_, 0);
    engine_->Poll();
    EXPECT_EQ(ended_, started_);
    EXPECT_EQ(outcome_.code(), code) << outcome_;
  }

  rpc::ClientHello message_;
  rpc::ClientHello answer_;
  bool inside_ = false;
  int started_ = 0;
  int ended_ = 0;
  absl::Status outcome_;
};

// The first that had to connect, and could not even begin, ended those that waited already: their
// callbacks ran inside the function that started another call.
TEST_F(EarlyEndsTest, QueuedCallsThatFailWithTheStartOfAnother) {
  StartOne();
  host_.on_call_waits = [this] {
    calls_.EndWaiting(absl::UnavailableError("at once"), /*also_patient=*/false);
  };
  StartOne();
  ExpectAllEndInTheTurn(absl::StatusCode::kUnavailable);
}

TEST_F(EarlyEndsTest, MoreThanTheQueueHolds) {
  host_.on_call_waits = [this] {
    calls_.EndWaiting(absl::UnavailableError("at once"), /*also_patient=*/false);
  };
  for (uint32_t i = 0; i < 3 * options_.max_queued_calls; ++i) StartOne();
  ExpectAllEndInTheTurn(absl::StatusCode::kUnavailable);
}

TEST_F(EarlyEndsTest, WhatFindsTheQueueFull) {
  Open();
  calls_.HoldCalls();
  for (Call* call : {&first_, &second_}) calls_.Start(*call);
  StartOne();
  ExpectAllEndInTheTurn(absl::StatusCode::kResourceExhausted);
  calls_.ReleaseCalls();
}

TEST_F(EarlyEndsTest, WhatFindsTheQueueFullAndEndsThoseInIt) {
  for (uint32_t i = 0; i < options_.max_queued_calls; ++i) StartOne();
  host_.on_call_waits = [this] {
    calls_.EndWaiting(absl::UnavailableError("at once"), /*also_patient=*/false);
  };
  StartOne();
  ExpectAllEndInTheTurn(absl::StatusCode::kResourceExhausted);
}

TEST_F(EarlyEndsTest, WhatTheServerWouldNotTake) {
  Open();
  message_.mutable_peer()->set_id(std::string(2000, 'x'));
  StartOne();
  ExpectAllEndInTheTurn(absl::StatusCode::kResourceExhausted);
}

TEST_F(EarlyEndsTest, WhatCouldNeverBeSent) {
  StartOne(absl::InvalidArgumentError("as the test wants it"));
  ExpectAllEndInTheTurn(absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::test
