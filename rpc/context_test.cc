// What travels beside a call (metadata, the details of an error), and how a call is cancelled, on a
// simulated network.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/metadata.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr uint16_t kEcho = 0;
constexpr uint16_t kHold = 2;

using ContextTest = RpcTest;

std::string ValueOf(const Metadata& metadata, std::string_view key) {
  const std::string* const value = metadata.Find(key);
  return value == nullptr ? "(none)" : *value;
}

// --- metadata ------------------------------------------------------------------------------------

TEST_F(ContextTest, MetadataReachesTheHandlerAndItsOwnComesBack) {
  Start();
  service_.look = [](ServerContext& context) {
    const std::string user = ValueOf(context.metadata(), "user");
    EXPECT_TRUE(context.AddReplyMetadata("hello", user).ok());
    EXPECT_TRUE(context.AddReplyMetadata("raw-bin", std::string("\0\xff", 2)).ok());
  };
  ClientContext blocking;
  ASSERT_TRUE(blocking.AddMetadata("user", "anna").ok());
  Data reply;
  absl::Status status = stub_->Echo(MakeData(1, 10), &reply, {.context = &blocking});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.number(), 1u);
  EXPECT_EQ(ValueOf(blocking.reply_metadata(), "hello"), "anna");
  EXPECT_EQ(ValueOf(blocking.reply_metadata(), "raw-bin"), std::string("\0\xff", 2));

  ClientContext by_callback;
  ASSERT_TRUE(by_callback.AddMetadata("user", "bert").ok());
  Outcome outcome;
  stub_->Echo(MakeData(2, 10), &outcome.reply, {.context = &by_callback}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  ASSERT_TRUE(outcome.status->ok()) << *outcome.status;
  EXPECT_EQ(outcome.reply.number(), 2u);
  EXPECT_EQ(ValueOf(by_callback.reply_metadata(), "hello"), "bert");
}

TEST_F(ContextTest, ACallWithoutAContextReachesAHandlerThatSendsMetadata) {
  Start();
  service_.look = [](ServerContext& context) {
    EXPECT_TRUE(context.metadata().empty());
    EXPECT_TRUE(context.AddReplyMetadata("k", "v").ok());
  };
  Data reply;
  const absl::Status status = stub_->Echo(MakeData(1, 10), &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.number(), 1u);
}

TEST_F(ContextTest, NothingOfOneCallIsSeenByTheNext) {
  Start();
  service_.look = [](ServerContext& context) {
    if (context.metadata().Find("first") == nullptr) return;
    EXPECT_TRUE(context.AddReplyMetadata("k", "v").ok());
  };
  for (const char* key : {"first", "second"}) {
    ClientContext context;
    ASSERT_TRUE(context.AddMetadata(key, "1").ok());
    Data reply;
    ASSERT_TRUE(stub_->Echo(Data(), &reply, {.context = &context}).ok());
    EXPECT_EQ(context.reply_metadata().size(), std::string(key) == "first" ? 1u : 0u);
  }
  service_.look = [](ServerContext& context) { EXPECT_TRUE(context.metadata().empty()); };
  Data reply;
  EXPECT_TRUE(stub_->Echo(Data(), &reply).ok());
}

TEST_F(ContextTest, MetadataTravelsWithAnErrorToo) {
  Start();
  service_.look = [](ServerContext& context) {
    EXPECT_TRUE(context.AddReplyMetadata("why", "because").ok());
  };
  ClientContext context;
  Failure failure;
  failure.set_code(5);
  failure.set_text("no such thing");
  Data reply;
  const absl::Status status = stub_->Fail(failure, &reply, {.context = &context});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_EQ(status.message(), "no such thing");
  EXPECT_EQ(ValueOf(context.reply_metadata(), "why"), "because");
}

TEST_F(ContextTest, AsMuchMetadataAsIsAllowedTravelsBothWaysBesideMessagesOfAllSizes) {
  Start();
  const std::string value(kMaxMetadataBytes - kMetadataEntryBytes - 1, 'v');
  service_.look = [&](ServerContext& context) {
    EXPECT_EQ(ValueOf(context.metadata(), "k"), value);
    EXPECT_TRUE(context.AddReplyMetadata("r", value).ok());
  };
  for (size_t bytes : {0, 1, 100, 8000, 1 << 20}) {
    ClientContext context;
    ASSERT_TRUE(context.AddMetadata("k", value).ok());
    Data reply;
    const absl::Status status = stub_->Echo(MakeData(7, bytes), &reply, {.context = &context});
    ASSERT_TRUE(status.ok()) << bytes << ": " << status;
    EXPECT_EQ(reply.payload(), MakeData(7, bytes).payload());
    EXPECT_EQ(ValueOf(context.reply_metadata(), "r"), value);
  }
}

TEST_F(ContextTest, MetadataCountsAmongTheBytesThatAServerHolds) {
  ServerOptions server;
  server.max_running_bytes = 1000;
  Start({}, server);
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("k", std::string(2000, 'v')).ok());
  Data reply;
  const absl::Status status = stub_->Echo(Data(), &reply, {.context = &context});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_EQ(service_.echoes, 0);

  ClientContext small;
  ASSERT_TRUE(small.AddMetadata("k", "v").ok());
  EXPECT_TRUE(stub_->Echo(Data(), &reply, {.context = &small}).ok());
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

// --- the details of an error ---------------------------------------------------------------------

class DetailedService final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext&, const Data&, Data*) override { return error; }
  absl::Status error;
};

TEST_F(ContextTest, PayloadsOfAHandlersErrorReachTheCaller) {
  DetailedService detailed;
  detailed.error = absl::PermissionDeniedError("not you");
  detailed.error.SetPayload("example.com/Quota", absl::Cord("left: 0"));
  // Of a call of its own, which says nothing about this one.
  detailed.error = WithDelivery(std::move(detailed.error), Delivery::kNotSent);
  server_ = *Server::Create(server_engine(), {});
  ASSERT_TRUE(server_->AddService(&detailed).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel();
  Data reply;
  const absl::Status status = stub_->Echo(Data(), &reply);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  ASSERT_TRUE(status.GetPayload("example.com/Quota").has_value()) << status;
  EXPECT_EQ(*status.GetPayload("example.com/Quota"), "left: 0");
  EXPECT_NE(DeliveryOf(status), Delivery::kNotSent);
  server_.reset();
}

// --- cancelling, at the client -------------------------------------------------------------------

TEST_F(ContextTest, ACancelEndsACallThatWasSentAndTellsItsHandler) {
  Start();
  int told = 0;
  service_.look = [&](ServerContext& context) { context.OnCancel([&told] { ++told; }); };
  ClientContext context;
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_FALSE(outcome.done()) << "callbacks do not run inside Cancel()";
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
  EXPECT_EQ(DeliveryOf(*outcome.status), Delivery::kMayHaveRun);
  ASSERT_TRUE(RunUntil([&] { return told == 1; }));
  EXPECT_TRUE(service_.held.front().context().cancelled());
  service_.Release();
  network_.Settle();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(outcome.completions, 1);
  EXPECT_EQ(channel_->stats().late_replies, 1u);
  EXPECT_EQ(channel_->stats().abandoned, 0u);
}

TEST_F(ContextTest, ACancelOfACallThatWaitsKeepsItFromBeingSent) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start(options);
  Outcome first;
  stub_->Hold(Data(), &first.reply, {}, first.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  ClientContext context;
  Outcome second;
  stub_->Echo(Data(), &second.reply, {.context = &context}, second.Callback());
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return second.done(); }));
  EXPECT_TRUE(absl::IsCancelled(*second.status)) << *second.status;
  EXPECT_EQ(DeliveryOf(*second.status), Delivery::kNotSent);
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return first.done(); }));
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(ContextTest, ACancelBeforeTheCallKeepsItFromBeingSent) {
  Start();
  ClientContext context;
  ASSERT_TRUE(context.Cancel().ok());
  Data reply;
  const absl::Status status = stub_->Echo(Data(), &reply, {.context = &context});
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(ContextTest, ACancelAfterTheCallIsNothing) {
  Start();
  ClientContext context;
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply, {.context = &context}).ok());
  EXPECT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(context.Cancel().ok());
  channel_.reset();
  EXPECT_TRUE(context.Cancel().ok()) << "the channel may be gone";
}

TEST_F(ContextTest, AContextIsForOneCall) {
  Start();
  ClientContext context;
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply, {.context = &context}).ok());
  const absl::Status status = stub_->Echo(Data(), &reply, {.context = &context});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_TRUE(absl::IsFailedPrecondition(context.AddMetadata("k", "v")));
  EXPECT_EQ(service_.echoes, 1);
}

TEST_F(ContextTest, AChannelThatGoesEndsACallWithAContextOnce) {
  Start();
  ClientContext context;
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  channel_.reset();
  EXPECT_EQ(outcome.completions, 1);
  EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
}

// Whatever has happened by then, the call ends once, and well or cancelled.
TEST_F(ContextTest, ACancelAtAnyMomentEndsTheCallOnce) {
  Start();
  int ended_well = 0;
  int cancelled = 0;
  for (uint64_t wait_ns = 0; wait_ns < 200'000; wait_ns += 1000) {
    ClientContext context;
    Outcome outcome;
    stub_->Echo(MakeData(1, 100), &outcome.reply, {.context = &context}, outcome.Callback());
    network_.RunFor(wait_ns);
    ASSERT_TRUE(context.Cancel().ok());
    ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
    network_.Settle();
    ASSERT_EQ(outcome.completions, 1);
    ASSERT_TRUE(outcome.status->ok() || absl::IsCancelled(*outcome.status)) << *outcome.status;
    ++(outcome.status->ok() ? ended_well : cancelled);
    ASSERT_EQ(channel_->stats().abandoned, 0u);
  }
  EXPECT_GT(ended_well, 0);
  EXPECT_GT(cancelled, 0);
}

// --- cancelling, at the server -------------------------------------------------------------------

TEST_F(ContextTest, AHandlerMayFinishItsCallWhenItIsToldOfTheCancel) {
  Start();
  service_.look = [&](ServerContext& context) {
    context.OnCancel([this] { service_.Release(absl::CancelledError("given up")); });
  };
  ClientContext context;
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  network_.Settle();
  EXPECT_TRUE(service_.held.empty());
  EXPECT_EQ(server_->stats().running, 0u);
  EXPECT_EQ(channel_->stats().abandoned, 0u) << "its slot is free again";
}

TEST_F(ContextTest, AHandlerThatHasFinishedIsNotTold) {
  Start();
  int told = 0;
  service_.look = [&](ServerContext& context) { context.OnCancel([&told] { ++told; }); };
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply, {.timeout_us = 1000}).ok());
  network_.RunFor(10'000'000);
  channel_.reset();
  network_.Settle();
  EXPECT_EQ(told, 0);
}

TEST_F(ContextTest, AHandlerIsToldOfTheDeadlineWhateverItsClientDoes) {
  Start();
  RawPeer peer;  // which never cancels
  peer.Dial(client().transport());
  ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
  int told = 0;
  service_.look = [&](ServerContext& context) { context.OnCancel([&told] { ++told; }); };
  peer.Send(Request({0, 1}, kHold, "", /*remaining_us=*/1000));
  ASSERT_TRUE(RunUntil([&] { return told == 1; }));
  EXPECT_TRUE(service_.held.front().context().cancelled());
  EXPECT_EQ(service_.held.front().context().remaining_us(), 0u);
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return !peer.received.empty(); }));
  ReplyHeader header;
  ByteSpan body;
  ASSERT_TRUE(DecodeReply(peer.received.back(), &header, &body));
  EXPECT_EQ(header.status, static_cast<uint16_t>(absl::StatusCode::kDeadlineExceeded));
  peer.connection->Close("done");
  network_.Settle();
}

TEST_F(ContextTest, AHandlerIsToldThatItsClientIsGone) {
  Start();
  int told = 0;
  service_.look = [&](ServerContext& context) { context.OnCancel([&told] { ++told; }); };
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  channel_.reset();
  ASSERT_TRUE(RunUntil([&] { return told == 1; }));
  service_.Release();
  network_.Settle();
  EXPECT_EQ(told, 1);
}

TEST_F(ContextTest, AHandlerThatAsksTooLateIsToldAtOnce) {
  Start();
  ClientContext context;
  Outcome outcome;
  int told = 0;
  ServerContext* handled = nullptr;
  service_.look = [&](ServerContext& it) { handled = &it; };
  stub_->Hold(Data(), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return handled->cancelled(); }));
  handled->OnCancel([&told] { ++told; });
  EXPECT_EQ(told, 1);
  service_.Release();
  network_.Settle();
  EXPECT_EQ(told, 1);
}

TEST_F(ContextTest, AnOldClientThatKnowsNoMetadataGetsNone) {
  Start();
  RawPeer peer;
  peer.Dial(client().transport());
  ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
  service_.look = [](ServerContext& context) {
    EXPECT_TRUE(context.AddReplyMetadata("k", "v").ok());
  };
  peer.Send(Request({0, 1}, kEcho, MakeData(3, 5).SerializeAsString()));
  ASSERT_TRUE(RunUntil([&] { return !peer.received.empty(); }));
  EXPECT_TRUE(IsOkReply(peer.received.back()));
  peer.connection->Close("done");
  network_.Settle();
}

}  // namespace
}  // namespace weft::test
