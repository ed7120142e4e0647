// What a call does, and what callers are told, on a simulated network.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <string>
#include <vector>

#include "rpc/testing/rpc_test.h"
#include "rpc/wire/frame.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using CallTest = RpcTest;

// --- plain calls ---------------------------------------------------------------------------------

TEST_F(CallTest, BlockingCallReturnsTheReply) {
  Start();
  Data reply;
  const absl::Status status = stub_->Echo(MakeData(7, 64), &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.SerializeAsString(), MakeData(7, 64).SerializeAsString());
}

TEST_F(CallTest, CallbackCallReturnsTheReplyAfterItsRequestIsGone) {
  Start();
  Outcome outcome;
  {
    Data request = MakeData(7, 64);
    stub_->Echo(request, &outcome.reply, {}, outcome.Callback());
    request.Clear();
  }
  EXPECT_FALSE(outcome.done()) << "callbacks do not run inside the call";
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
  EXPECT_EQ(outcome.reply.payload(), MakeData(7, 64).payload());
}

TEST_F(CallTest, ReplyMessageIsClearedFirst) {
  Start();
  Data reply = MakeData(9, 1000);
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(reply.ByteSizeLong(), 0u);
}

TEST_F(CallTest, MessagesOfManySizesArriveUnchanged) {
  Start();
  const std::vector<size_t> sizes = {0,    1,    15,    16,      17,      255,          4095,
                                     8191, 8192, 65535, 1 << 16, 1 << 20, (1 << 20) + 1};
  for (size_t bytes : sizes) {
    Data reply;
    const absl::Status status = stub_->Echo(MakeData(bytes, bytes), &reply);
    ASSERT_TRUE(status.ok()) << bytes << ": " << status;
    ASSERT_EQ(reply.SerializeAsString(), MakeData(bytes, bytes).SerializeAsString()) << bytes;
  }
}

TEST_F(CallTest, TheLargestMessageTravelsAndOneByteMoreIsRefused) {
  Start();
  Data request;
  // Tag and length take five bytes in front of a payload of this size.
  request.mutable_payload()->assign(kMaxPayloadBytes - 5, 'x');
  ASSERT_EQ(request.ByteSizeLong(), kMaxPayloadBytes);
  Data reply;
  absl::Status status = stub_->Echo(request, &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.payload().size(), kMaxPayloadBytes - 5);

  request.mutable_payload()->push_back('x');
  status = stub_->Echo(request, &reply);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("67108849 bytes"), absl::string_view::npos) << status;
}

TEST_F(CallTest, EmptyRequestAndReplyAreMessagesToo) {
  Start();
  Data reply;
  EXPECT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(service_.echoes, 1);
}

TEST_F(CallTest, ManyOutstandingCallsEndOnceEachWithTheirOwnReplies) {
  Start();
  std::vector<Outcome> outcomes(1000);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    stub_->Echo(MakeData(i, i), &outcomes[i].reply, {}, outcomes[i].Callback());
  }
  ASSERT_TRUE(RunUntil([&] { return service_.echoes == 1000; }));
  network_.Settle();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    ASSERT_EQ(outcomes[i].completions, 1) << i;
    ASSERT_TRUE(outcomes[i].status->ok()) << *outcomes[i].status;
    ASSERT_EQ(outcomes[i].reply.number(), i);
  }
}

TEST_F(CallTest, ACallbackMayStartTheNextCall) {
  Start();
  Data request = MakeData(1, 10);
  Data reply;
  int left = 100;
  std::function<void(absl::Status)> next = [&](const absl::Status& status) {
    ASSERT_TRUE(status.ok()) << status;
    if (--left > 0) stub_->Echo(request, &reply, {}, next);
  };
  stub_->Echo(request, &reply, {}, next);
  EXPECT_TRUE(RunUntil([&] { return left == 0; }));
}

// What was started in a callback of the engine is under way when Flush() returns, and no sooner.
class FlushTest : public RpcTest {
 protected:
  FlushTest() : RpcTest(/*seed=*/1, {.keep_trace = true}) {}

  // How many fabric messages come to the server for two calls of one callback.
  size_t BatchesOfTwoCalls(bool flushes) {
    const size_t before = Batches();
    Outcome first;
    Outcome second;
    EXPECT_TRUE(client().Post([&] {
      stub_->Echo(Data(), &first.reply, {}, first.Callback());
      if (flushes) channel_->Flush();
      stub_->Echo(Data(), &second.reply, {}, second.Callback());
    }));
    EXPECT_TRUE(RunUntil([&] { return first.done() && second.done(); }));
    EXPECT_TRUE(first.status->ok() && second.status->ok());
    return Batches() - before;
  }

 private:
  size_t Batches() {
    return static_cast<size_t>(
        std::count_if(network_.trace().begin(), network_.trace().end(), [](const auto& line) {
          return line.find(" client > ") != std::string::npos &&
                 line.find(": batch,") != std::string::npos;
        }));
  }
};

TEST_F(FlushTest, CallsOfACallbackLeaveTogetherUnlessTheyAreFlushed) {
  Start();
  EXPECT_EQ(BatchesOfTwoCalls(/*flushes=*/false), 1u);
  EXPECT_EQ(BatchesOfTwoCalls(/*flushes=*/true), 2u);
}

TEST_F(FlushTest, OutsideOfCallbacksThereIsNothingToFlush) {
  Start();
  channel_->Flush();
  Outcome outcome;
  stub_->Echo(Data(), &outcome.reply, {}, outcome.Callback());
  channel_->Flush();
  EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
}

TEST_F(CallTest, TwoStubsOfOneChannelShareTheirMethods) {
  Start();
  Probe::Stub other(*channel_);
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 1), &reply).ok());
  EXPECT_TRUE(other.Echo(MakeData(2, 1), &reply).ok());
  EXPECT_EQ(reply.number(), 2u);
}

// --- errors --------------------------------------------------------------------------------------

TEST_F(CallTest, HandlersErrorsArriveWithCodeAndText) {
  Start();
  for (int code = 1; code <= 16; ++code) {
    Failure request;
    request.set_code(code);
    request.set_text("no such key: \"x\"");
    Data reply;
    const absl::Status status = stub_->Fail(request, &reply);
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_EQ(status.message(), request.text());
  }
}

TEST_F(CallTest, LongErrorTextsAreCut) {
  Start();
  Failure request;
  request.set_code(5);
  request.set_text(std::string(100'000, 'x'));
  Data reply;
  const absl::Status status = stub_->Fail(request, &reply);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message().size(), kMaxStatusText);
}

TEST_F(CallTest, UnknownServiceFailsAtTheClientNamingServiceMethodAndServer) {
  ServerOptions options;
  options.name = "shard 7";
  Start({}, options);
  Absent::Stub absent(*channel_);
  Data reply;
  EXPECT_EQ(absent.Echo(MakeData(1, 1), &reply),
            WithDelivery(absl::UnimplementedError("server \"shard 7\" at sim:server has no service "
                                                  "weft.test.Absent (called for method Echo)"),
                         Delivery::kNotSent));
  EXPECT_EQ(server_->stats().requests, 0u) << "nothing was sent";
}

TEST_F(CallTest, UnknownMethodFailsAtTheClient) {
  // A server that was built when the service had one method less.
  class OldService final : public Service {
    const ServiceDescriptor& weft_descriptor() const override {
      static const ServiceDescriptor old = {"weft.test.Probe",
                                            Probe::descriptor().methods.subspan(0, 1)};
      return old;
    }
  } old;
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&old).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel();
  Data reply;
  EXPECT_EQ(stub_->Make(Size(), &reply),
            WithDelivery(absl::UnimplementedError(
                             "service weft.test.Probe of server sim:server has no method Make"),
                         Delivery::kNotSent));
}

TEST_F(CallTest, MethodsThatNobodyImplementsAreUnimplemented) {
  Start();
  Data reply;
  const absl::Status status = stub_->Missing(Data(), &reply);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("Missing"), absl::string_view::npos) << status;
}

TEST_F(CallTest, RequestsWithoutRequiredFieldsAreNotSent) {
  Start();
  Required reply;
  EXPECT_EQ(stub_->Strict(Required(), &reply),
            WithDelivery(absl::InvalidArgumentError("the request lacks required fields of "
                                                    "weft.test.Required: id (not sent)"),
                         Delivery::kNotSent));
  EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(CallTest, CallbacksHearOfInvalidRequestsAfterTheCall) {
  Start();
  Required reply;
  Outcome outcome;
  stub_->Strict(Required(), &reply, {}, outcome.Callback());
  EXPECT_FALSE(outcome.done());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsInvalidArgument(*outcome.status));
}

TEST_F(CallTest, RepliesWithoutRequiredFieldsAreTheServersFault) {
  Start();
  Required request;
  request.set_id(1);
  Required reply;
  EXPECT_TRUE(stub_->Strict(request, &reply).ok());
  request.set_forget(true);
  const absl::Status status = stub_->Strict(request, &reply);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_NE(status.message().find("id"), absl::string_view::npos) << status;
}

TEST_F(CallTest, TooLargeRequestsAreNotSentAndNameBothSizes) {
  ServerOptions options;
  options.max_request_bytes = 1000;
  Start({}, options);
  Data reply;
  EXPECT_EQ(stub_->Echo(MakeData(0, 2000), &reply),
            WithDelivery(absl::ResourceExhaustedError("the request has 2003 bytes; the server at "
                                                      "sim:server takes at most 1000 (not sent)"),
                         Delivery::kNotSent));
  EXPECT_TRUE(stub_->Echo(MakeData(0, 900), &reply).ok());
  EXPECT_EQ(server_->stats().requests, 1u);
}

TEST_F(CallTest, TooLargeRepliesFailTheirCallOnly) {
  ChannelOptions options;
  options.max_reply_bytes = 1000;
  Start(options);
  Size size;
  size.set_bytes(2000);
  Data reply;
  EXPECT_EQ(stub_->Make(size, &reply),
            WithDelivery(
                absl::ResourceExhaustedError("the reply of method Make has 2003 bytes; this client "
                                             "takes at most 1000 (the request has run)"),
                Delivery::kMayHaveRun));
  EXPECT_TRUE(stub_->Echo(MakeData(0, 900), &reply).ok());
}

TEST_F(CallTest, ABlockingCallInsideACallbackIsRefused) {
  Start();
  Data reply;
  Outcome outcome;
  absl::Status inner;
  stub_->Echo(Data(), &outcome.reply, {}, [&](absl::Status status) {
    inner = stub_->Echo(Data(), &reply);
    outcome.Callback()(std::move(status));
  });
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(inner)) << inner;
}

// --- deadlines -----------------------------------------------------------------------------------

TEST_F(CallTest, DeadlineEndsABlockingCall) {
  Start();
  Data reply;
  const uint64_t start_ns = network_.clock().NowNs();
  EXPECT_EQ(
      stub_->Hold(Data(), &reply, {.timeout_us = 5000}),
      WithDelivery(absl::DeadlineExceededError("no reply from sim:server within 5 ms (the request "
                                               "was sent and may have run)"),
                   Delivery::kMayHaveRun));
  EXPECT_GE(network_.clock().NowNs() - start_ns, 5 * kNsPerMs);
  EXPECT_LT(network_.clock().NowNs() - start_ns, 6 * kNsPerMs);
}

TEST_F(CallTest, DeadlineEndsACallbackCall) {
  Start();
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {.timeout_us = 5000}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(*outcome.status)) << *outcome.status;
}

TEST_F(CallTest, ChannelsDefaultTimeoutCounts) {
  ChannelOptions options;
  options.default_timeout_us = 3000;
  Start(options);
  Data reply;
  EXPECT_TRUE(absl::IsDeadlineExceeded(stub_->Hold(Data(), &reply)));
}

TEST_F(CallTest, TheServerIsToldTheRemainingTime) {
  Start();
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply, {.timeout_us = 7000}).ok());
  EXPECT_LE(service_.last_remaining_us, 7000u);
  EXPECT_GT(service_.last_remaining_us, 6000u);
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(service_.last_remaining_us, ServerContext::kNoDeadline);
}

TEST_F(CallTest, DeadlinesBeyondTheFieldAreTheClientsAlone) {
  Start();
  Data reply;
  const uint64_t two_hours_us = uint64_t{2} * 3600 * uint64_t{1'000'000};
  ASSERT_TRUE(stub_->Echo(Data(), &reply, {.timeout_us = two_hours_us}).ok());
  EXPECT_EQ(service_.last_remaining_us, ServerContext::kNoDeadline);
  ASSERT_TRUE(stub_->Echo(Data(), &reply, {.timeout_us = ~uint64_t{0}}).ok());
}

TEST_F(CallTest, AnExpiredCallIsCancelledAtTheServerAndItsLateReplyIsDropped) {
  Start();
  Data reply = MakeData(1, 1);
  ASSERT_TRUE(absl::IsDeadlineExceeded(stub_->Hold(Data(), &reply, {.timeout_us = 5000})));
  ASSERT_TRUE(RunUntil([&] { return service_.held.front().context().cancelled(); }));
  EXPECT_EQ(service_.held.front().context().remaining_us(), 0u);
  EXPECT_EQ(channel_->stats().abandoned, 1u);

  reply = MakeData(1, 1);
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().late_replies == 1; }));
  EXPECT_EQ(reply.number(), 1u) << "untouched";
  EXPECT_EQ(channel_->stats().outstanding, 0u);
  EXPECT_EQ(channel_->stats().abandoned, 0u);
}

TEST_F(CallTest, AnAbandonedSlotIsNotReusedBeforeTheServerAnswers) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start(options);
  Data reply;
  ASSERT_TRUE(absl::IsDeadlineExceeded(stub_->Hold(Data(), &reply, {.timeout_us = 5000})));
  EXPECT_EQ(
      stub_->Echo(Data(), &reply, {.timeout_us = 5000}),
      WithDelivery(absl::DeadlineExceededError("no reply from sim:server within 5 ms: all slots or "
                                               "credits were in use (not sent, safe to retry)"),
                   Delivery::kNotSent));
  service_.Release();
  EXPECT_TRUE(stub_->Echo(Data(), &reply, {.timeout_us = 5000}).ok());
  EXPECT_EQ(service_.echoes, 1) << "the expired request never ran";
}

TEST_F(CallTest, ARequestThatExpiresOnItsWayDoesNotRun) {
  Start();
  // The server is so slow that each batch takes longer than the call has time.
  network_.SlowDown("server", 20 * kNsPerMs);
  Outcome first;
  Outcome second;
  stub_->Echo(Data(), &first.reply, {.timeout_us = 10'000}, first.Callback());
  ASSERT_TRUE(RunUntil([&] { return first.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(*first.status));
  network_.Settle();
  EXPECT_EQ(channel_->stats().outstanding, 0u) << "the server has answered";
}

// --- queueing ------------------------------------------------------------------------------------

TEST_F(CallTest, CallsBeyondTheSlotsWaitAndRunInOrder) {
  ChannelOptions options;
  options.max_outstanding_calls = 4;
  Start(options);
  std::vector<uint64_t> order;
  std::list<Outcome> outcomes;
  for (uint64_t i = 0; i < 20; ++i) {
    outcomes.emplace_back();
    stub_->Hold(MakeData(i, 3), &outcomes.back().reply, {}, outcomes.back().Callback());
  }
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
    EXPECT_LE(service_.held.size(), 4u);
    order.push_back(service_.held.front().request().number());
    service_.Release();
  }
  network_.Settle();
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(order[i], i);
  for (Outcome& outcome : outcomes) EXPECT_EQ(outcome.completions, 1);
}

TEST_F(CallTest, TheServersSlotLimitHolds) {
  ServerOptions options;
  options.max_outstanding_calls = 2;
  Start({}, options);
  std::list<Outcome> outcomes;
  for (int i = 0; i < 5; ++i) {
    outcomes.emplace_back();
    stub_->Hold(Data(), &outcomes.back().reply, {}, outcomes.back().Callback());
  }
  network_.Settle();
  EXPECT_EQ(service_.held.size(), 2u);
  EXPECT_EQ(channel_->stats().outstanding, 2u);
  EXPECT_EQ(channel_->stats().queued, 3u);
  channel_.reset();  // before the outcomes
}

TEST_F(CallTest, TheQueueIsBounded) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  options.max_queued_calls = 2;
  Start(options);
  std::vector<Outcome> outcomes(4);
  for (Outcome& outcome : outcomes) {
    stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
    EXPECT_FALSE(outcome.done());
  }
  ASSERT_TRUE(RunUntil([&] { return outcomes[3].done(); }));
  EXPECT_EQ(*outcomes[3].status,
            WithDelivery(
                absl::ResourceExhaustedError("2 calls wait already for sim:server, as many as "
                                             "ChannelOptions::max_queued_calls allows (not sent)"),
                Delivery::kNotSent));
  EXPECT_FALSE(outcomes[2].done());
  channel_.reset();  // before the outcomes
}

TEST_F(CallTest, AWaitingCallTellsTheTimeThatRemainsWhenItIsSent) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start(options);
  Outcome held;
  Outcome waiting;
  stub_->Hold(Data(), &held.reply, {}, held.Callback());
  stub_->Echo(Data(), &waiting.reply, {.timeout_us = 50'000}, waiting.Callback());
  network_.RunFor(20 * kNsPerMs);
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return waiting.done(); }));
  EXPECT_TRUE(waiting.status->ok()) << *waiting.status;
  EXPECT_LE(service_.last_remaining_us, 30'000u);
  EXPECT_GT(service_.last_remaining_us, 28'000u);
}

TEST_F(CallTest, ASlowServerHoldsCallersBackButLosesNothing) {
  ServerOptions options;
  options.link.window_slots = 4;
  Start({}, options);
  network_.SlowDown("server", 100 * kNsPerUs);
  std::vector<Outcome> outcomes(500);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    stub_->Echo(MakeData(i, 2000), &outcomes[i].reply, {}, outcomes[i].Callback());
  }
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().calls_ok == 500; }));
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.completions, 1);
}

TEST_F(CallTest, RepliesWaitForCreditToo) {
  Start();
  network_.SlowDown("client", kNsPerMs);
  std::vector<Outcome> outcomes(200);
  for (Outcome& outcome : outcomes) {
    Size size;
    size.set_bytes(4000);
    stub_->Make(size, &outcome.reply, {}, outcome.Callback());
  }
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().calls_ok == 200; }));
  EXPECT_EQ(server_->stats().running, 0u);
}

// --- the channel itself --------------------------------------------------------------------------

TEST_F(CallTest, DestroyingTheChannelCancelsEveryCall) {
  ChannelOptions options;
  options.max_outstanding_calls = 2;
  Start(options);
  std::vector<Outcome> outcomes(5);
  for (Outcome& outcome : outcomes) {
    stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
  }
  channel_.reset();
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.completions, 1);
    EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
  }
  ASSERT_TRUE(
      RunUntil([&] { return server_->stats().connections == 0 || !service_.held.empty(); }));
}

TEST_F(CallTest, StatsCountCalls) {
  Start();
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  ASSERT_FALSE(stub_->Missing(Data(), &reply).ok());
  const ChannelStats stats = channel_->stats();
  EXPECT_EQ(stats.calls_started, 2u);
  EXPECT_EQ(stats.calls_ok, 1u);
  EXPECT_EQ(stats.calls_failed, 1u);
  EXPECT_EQ(stats.connects, 1u);
  const ServerStats served = server_->stats();
  EXPECT_EQ(served.requests, 2u);
  EXPECT_EQ(served.replies_ok, 1u);
  EXPECT_EQ(served.replies_failed, 1u);
  EXPECT_EQ(served.connections, 1u);
}

TEST_F(CallTest, OptionsOutOfBoundsAreRefusedByName) {
  ChannelOptions options;
  options.max_outstanding_calls = 5000;
  EXPECT_EQ(Channel::Open(client(), "sim:server", options).status(),
            absl::InvalidArgumentError(
                "ChannelOptions::max_outstanding_calls is 5000; 1 to 4096 are allowed"));
  ServerOptions server;
  server.max_outstanding_calls = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(server_engine(), server).status()));
}

TEST_F(CallTest, PathAndExplainTellHowTheChannelIsConnected) {
  Start();
  ASSERT_TRUE(channel_->path().ok());
  EXPECT_EQ(channel_->path()->kind, PathKind::kSim);
  EXPECT_NE(channel_->Explain().find("chosen"), std::string::npos);
}

}  // namespace
}  // namespace weft::test
