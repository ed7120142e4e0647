// Large bytes beside messages, on a simulated network: they arrive as they are, and stay as long as
// somebody keeps them.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/metadata.h"

namespace weft::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string Letters(size_t bytes, char first = 'a') {
  std::string text(bytes, ' ');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(first + i % 23);
  return text;
}

class AttachmentTest : public StreamTest {
 protected:
  // Echo() has its attachment back, and remembers it.
  void AnswerWithAttachments() {
    service_.look = [this](ServerContext& context) {
      seen_ = context.attachment();
      context.SetReplyAttachment(seen_);
    };
  }
  absl::Status Echo(const Data& request, Data* reply, ClientContext& context) {
    return stub_->Echo(request, reply, {.context = &context});
  }

  absl::Cord seen_;
};

// --- both ways -----------------------------------------------------------------------------------

TEST_F(AttachmentTest, TheyArriveBesideMessagesOfEverySizeBothWays) {
  Start();
  AnswerWithAttachments();
  for (const size_t message_bytes : {size_t{0}, size_t{7}, size_t{5000}, kMiB}) {
    for (const size_t bytes : {size_t{1}, size_t{8}, size_t{4096}, size_t{16} << 10, kMiB + 1}) {
      SCOPED_TRACE(std::to_string(message_bytes) + " and " + std::to_string(bytes));
      ClientContext context;
      ASSERT_TRUE(context.SetAttachment(absl::Cord(Letters(bytes))).ok());
      ASSERT_TRUE(context.AddMetadata("key", "value").ok());
      Data request;
      if (message_bytes > 0) request = MakeData(7, message_bytes);
      Data reply;
      const absl::Status status = Echo(request, &reply, context);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(reply.SerializeAsString(), request.SerializeAsString());
      EXPECT_EQ(seen_, Letters(bytes));
      EXPECT_EQ(context.reply_attachment(), Letters(bytes));
    }
  }
}

TEST_F(AttachmentTest, ManyPiecesArriveAsOne) {
  Start();
  AnswerWithAttachments();
  const std::string first = Letters(100'000), second = Letters(3, 'k'), third = Letters(50'000);
  absl::Cord pieces;
  for (const std::string* piece : {&first, &second, &third}) {
    pieces.Append(absl::MakeCordFromExternal(*piece, [] {}));
  }
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(pieces).ok());
  Data reply;
  ASSERT_TRUE(Echo(Data(), &reply, context).ok());
  EXPECT_EQ(seen_, first + second + third);
}

TEST_F(AttachmentTest, ACallWithoutOneHasNone) {
  Start();
  AnswerWithAttachments();
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_TRUE(seen_.empty());
  ClientContext context;
  ASSERT_TRUE(Echo(Data(), &reply, context).ok());
  EXPECT_TRUE(seen_.empty());
  EXPECT_TRUE(context.reply_attachment().empty());
  // Nor has the next call of the same slot that of the one before.
  ClientContext with;
  ASSERT_TRUE(with.SetAttachment(absl::Cord("bytes")).ok());
  ASSERT_TRUE(Echo(Data(), &reply, with).ok());
  ClientContext without;
  ASSERT_TRUE(Echo(Data(), &reply, without).ok());
  EXPECT_TRUE(seen_.empty());
  EXPECT_TRUE(without.reply_attachment().empty());
}

TEST_F(AttachmentTest, AnErrorHasNone) {
  Start();
  AnswerWithAttachments();
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord("bytes")).ok());
  Failure failure;
  failure.set_code(5);
  Data reply;
  EXPECT_TRUE(absl::IsNotFound(stub_->Fail(failure, &reply, {.context = &context})));
  EXPECT_EQ(seen_, "bytes");
  EXPECT_TRUE(context.reply_attachment().empty());
}

TEST_F(AttachmentTest, ACallerWithoutAContextGetsTheReplyAlone) {
  Start();
  service_.look = [](ServerContext& context) { context.SetReplyAttachment(absl::Cord("bytes")); };
  Data reply;
  EXPECT_EQ(stub_->Echo(MakeData(3, 10), &reply), absl::OkStatus());
  EXPECT_EQ(reply.number(), 3u);
}

TEST_F(AttachmentTest, AStreamWithOneIsRefused) {
  StartStreams();
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord("bytes")).ok());
  Talk talk = chat_->Talk({.context = &context});
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(AttachmentTest, AContextThatHasHadItsCallTakesNone) {
  Start();
  ClientContext context;
  Data reply;
  ASSERT_TRUE(Echo(Data(), &reply, context).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(context.SetAttachment(absl::Cord("bytes"))));
}

TEST_F(AttachmentTest, AnAttemptThatIsMadeAgainHasTheSame) {
  ServerOptions server;
  server.max_running_bytes = 200'000;
  ChannelOptions options;
  options.retry.max_attempts = 3;
  Start(options, server);
  AnswerWithAttachments();
  // No room for it, as long as the first one is held.
  Outcome held;
  stub_->Hold(MakeData(1, 150'000), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord(Letters(100'000))).ok());
  Outcome outcome;
  stub_->Echo(Data(), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return server_->stats().refused == 1; }));
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  EXPECT_EQ(seen_, Letters(100'000));
  EXPECT_EQ(context.reply_attachment(), Letters(100'000));
  EXPECT_EQ(channel_->stats().retries, 1u);
}

// --- keeping them --------------------------------------------------------------------------------

TEST_F(AttachmentTest, WhatIsKeptOutlivesCallConnectionAndEngine) {
  // Before the network, which goes when the test does.
  auto network = std::make_unique<SimNetwork>(1);
  ProbeService service;
  absl::Cord at_server;
  absl::Cord at_client;
  service.look = [&](ServerContext& context) {
    at_server = context.attachment();
    context.SetReplyAttachment(at_server);
  };
  {
    auto server = *Server::Create(CoreOf(network->Node("server")));
    ASSERT_TRUE(server->AddService(&service).ok());
    ASSERT_TRUE(server->Listen("sim:server").ok());
    auto channel = Channel::Open(CoreOf(network->Node("client")), "sim:server");
    ASSERT_TRUE(channel.ok()) << channel.status();
    Probe::Stub stub(**channel);
    for (int round = 0; round < 3; ++round) {
      ClientContext context;
      ASSERT_TRUE(context.SetAttachment(absl::Cord(Letters(kMiB))).ok());
      Data reply;
      ASSERT_TRUE(stub.Echo(Data(), &reply, {.context = &context}).ok());
      at_client = context.reply_attachment();
    }
  }
  EXPECT_TRUE(at_server.TryFlat().has_value()) << "in one piece: where it was received";
  EXPECT_TRUE(at_client.TryFlat().has_value());
  network.reset();
  EXPECT_EQ(at_server, Letters(kMiB));
  EXPECT_EQ(at_client, Letters(kMiB));
}

// 256 MiB for large messages, of which half may be kept.
TEST_F(AttachmentTest, WhatIsKeptBeyondTheBoundIsCopiedAndNothingStops) {
  Start();
  std::vector<absl::Cord> kept;
  service_.look = [&](ServerContext& context) { kept.push_back(context.attachment()); };
  constexpr size_t kBytes = 16 * kMiB - 100;
  size_t in_place = 0;
  for (int i = 0; i < 20; ++i) {
    ClientContext context;
    ASSERT_TRUE(context.SetAttachment(absl::Cord(Letters(kBytes))).ok());
    Data reply;
    const absl::Status status = Echo(Data(), &reply, context);
    ASSERT_TRUE(status.ok()) << status;
    in_place += kept.back().TryFlat().has_value();
  }
  EXPECT_EQ(in_place, 8u);
  for (const absl::Cord& cord : kept) EXPECT_EQ(cord.size(), kBytes);
  EXPECT_EQ(kept.back(), Letters(kBytes));
  // What goes back is used again.
  kept.clear();
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord(Letters(kBytes))).ok());
  Data reply;
  ASSERT_TRUE(Echo(Data(), &reply, context).ok());
  EXPECT_TRUE(kept.back().TryFlat().has_value());
}

TEST_F(AttachmentTest, TheServerCountsThemWhileTheCallRuns) {
  Start();
  Outcome outcome;
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord(Letters(100'000))).ok());
  stub_->Hold(Data(), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  EXPECT_EQ(server_->stats().running_bytes, 100'000u);
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

// --- limits --------------------------------------------------------------------------------------

TEST_F(AttachmentTest, WithTheRequestItHasAtMostWhatTheServerTakes) {
  ServerOptions options;
  options.max_request_bytes = 1000;
  Start({}, options);
  AnswerWithAttachments();
  Data reply;
  for (const size_t bytes : {1000, 1001}) {
    ClientContext context;
    ASSERT_TRUE(context.SetAttachment(absl::Cord(Letters(bytes))).ok());
    const absl::Status status = Echo(Data(), &reply, context);
    EXPECT_EQ(status.ok(), bytes == 1000) << status;
    if (status.ok()) continue;
    EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  }
}

TEST_F(AttachmentTest, WithTheReplyItHasAtMostWhatTheClientTakes) {
  ChannelOptions options;
  options.max_reply_bytes = 1000;
  Start(options);
  size_t bytes = 1000;
  service_.look = [&](ServerContext& context) {
    context.SetReplyAttachment(absl::Cord(Letters(bytes)));
  };
  ClientContext fits;
  Data reply;
  EXPECT_EQ(Echo(Data(), &reply, fits), absl::OkStatus());
  bytes = 1001;
  ClientContext larger;
  const absl::Status status = Echo(Data(), &reply, larger);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(larger.reply_attachment().empty());
}

// --- peers that break the rules, or know none ----------------------------------------------------

class HostileAttachmentTest : public AttachmentTest {
 protected:
  ~HostileAttachmentTest() override {
    if (peer_.connection == nullptr) return;
    peer_.connection->Close("the test is over");
    EXPECT_TRUE(RunUntil([this] { return peer_.connection == nullptr; }));
  }

  static Bytes RequestWith(uint64_t message_bytes, const std::string& rest, uint16_t bits = 0) {
    Bytes frame(kCallHeaderBytes + kAttachmentHeaderBytes + rest.size());
    EncodeRequest({{0, next_ += 2}, 0, 0}, frame.data(), RequestKind(0, kAttachmentBit | bits));
    StoreLe64(frame.data() + kCallHeaderBytes, message_bytes);
    std::memcpy(frame.data() + kCallHeaderBytes + kAttachmentHeaderBytes, rest.data(), rest.size());
    return frame;
  }

  static inline uint32_t next_ = 1;
  RawPeer peer_;
};

TEST_F(HostileAttachmentTest, FramesThatMakeNoSenseEndTheirConnectionAndNoOther) {
  Start();
  AnswerWithAttachments();
  struct Case {
    const char* what;
    Bytes frame;
  };
  const Bytes good = RequestWith(2, std::string("\x08\x01", 2) + "bytes");
  const Case cases[] = {
      {"cut in its header", Truncated(good, kCallHeaderBytes + 7)},
      {"no bytes", RequestWith(2, std::string("\x08\x01", 2))},
      {"a longer message than there is", RequestWith(8, "1234567")},
      {"a message of 4 GiB", RequestWith(0xFFFFFFFF, "1234567")},
      {"what is reserved", RequestWith(uint64_t{1} << 32, "1234567")},
      {"its metadata is missing", RequestWith(0, "1234567", kExtrasBit)},
  };
  uint64_t errors = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    peer_.Dial(client().transport());
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
    peer_.Send(RequestWith(2, std::string("\x08\x01", 2) + "bytes"));
    network_.Settle();
    ASSERT_EQ(peer_.received.size(), 1u);
    EXPECT_EQ(seen_, "bytes");
    peer_.Send(test.frame);
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    EXPECT_EQ(server_->stats().protocol_errors, ++errors);
    Data reply;
    EXPECT_TRUE(stub_->Echo(Data(), &reply).ok());
  }
}

TEST_F(HostileAttachmentTest, AClientThatTakesNoneIsSentNone) {
  Start();
  service_.look = [](ServerContext& context) { context.SetReplyAttachment(absl::Cord("bytes")); };
  peer_.Dial(client().transport());  // its hello says nothing of them
  ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  peer_.Send(Request({0, 1}, 0));
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 1u);
  ReplyHeader header;
  ByteSpan body;
  ASSERT_TRUE(DecodeReply(peer_.received[0], &header, &body));
  EXPECT_EQ(header.status, static_cast<uint16_t>(absl::StatusCode::kUnimplemented));
}

TEST_F(HostileAttachmentTest, AServerThatTakesNoneIsSentNone) {
  RawAcceptor acceptor;
  ListenOptions options;
  options.hello = OldServerHello({"Echo"}).SerializeAsString();
  const auto listener = server_engine().transport().Listen("sim:server", options, &acceptor);
  ASSERT_TRUE(listener.ok()) << listener.status();
  OpenChannel();
  ASSERT_TRUE(RunUntil([&] { return acceptor.peer.connection != nullptr; }));
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord("bytes")).ok());
  Data reply;
  const absl::Status status = Echo(Data(), &reply, context);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_TRUE(acceptor.peer.received.empty());
  channel_.reset();
  ASSERT_TRUE(RunUntil([&] { return acceptor.peer.connection == nullptr; }));
}

}  // namespace
}  // namespace weft::test
