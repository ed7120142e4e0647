// Peers that do not keep to the protocol of streams: each loses its own connection, and nothing
// else happens.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_frames.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/stream_frame.h"

namespace weft::test {
namespace {

constexpr StreamWindow kWindow = {4, 1000};

Bytes Longer(Bytes frame) {
  frame.push_back(std::byte{1});
  return frame;
}

StreamFrameKind KindOf(const Bytes& frame) {
  return static_cast<StreamFrameKind>(CallFrameKindOf(frame) & 0xFF);
}

// --- clients -------------------------------------------------------------------------------------

class HostileStreamClientTest : public StreamTest {
 protected:
  HostileStreamClientTest() {
    ServerOptions options;
    options.max_streams = 3;
    options.stream_window_messages = kWindow.messages;
    options.stream_window_bytes = kWindow.bytes;
    StartStreams({}, options);
    Dial();
  }
  ~HostileStreamClientTest() override {
    served_.clear();
    streams_.talks.clear();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }

  void Dial(uint32_t max_streams = 100) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_reply_bytes(1000);
    hello.set_max_streams(max_streams);
    hello.set_stream_window_messages(2);
    hello.set_stream_window_bytes(500);
    peer_.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }

  // The end that the peer has received last.
  EndHeader LastEnd() {
    EndHeader header;
    EXPECT_FALSE(peer_.received.empty());
    EXPECT_TRUE(DecodeEnd(peer_.received.back(), &header));
    return header;
  }

  RawPeer peer_;
};

TEST_F(HostileStreamClientTest, AStreamByHandIsServed) {
  peer_.Send(Open({0, 1}, kSum));
  peer_.Send(Message({0, 1}, 0, MakeData(5, 1).SerializeAsString()));
  peer_.Send(Last({0, 1}, 1));
  ASSERT_TRUE(RunUntil([&] { return peer_.received.size() == 2; }));
  DataHeader data;
  ByteSpan message;
  ASSERT_TRUE(DecodeData(peer_.received[0], /*to_opener=*/true, &data, &message));
  EXPECT_EQ(data.number, 0u);
  EXPECT_FALSE(data.last);
  Data reply;
  ASSERT_TRUE(reply.ParseFromArray(message.data(), static_cast<int>(message.size())));
  EXPECT_EQ(reply.number(), 1u);
  EXPECT_EQ(LastEnd().status, 0);
  EXPECT_EQ(LastEnd().messages, 1u);
}

TEST_F(HostileStreamClientTest, MalformedFramesEndTheirConnectionAndNoOther) {
  struct Case {
    const char* what;
    std::vector<Bytes> frames;  // the last one is the malformed one
  };
  const CallId id = {0, 1};
  const Bytes open = Open(id, kTalk);
  const std::string big = MakeData(1, 600).SerializeAsString();
  const Case cases[] = {
      {"an open with a body", {Longer(open)}},
      {"an open with unknown flags", {WithByte(open, 11, 2)}},
      {"an open with a priority that is none", {WithByte(open, 11, 0x20)}},
      {"an open without its metadata", {WithByte(open, 11, 0x80)}},
      {"an open whose metadata is cut", {Truncated(Open(id, kTalk, "\n\0"), 23)}},
      {"an open with metadata that is no protobuf", {Open(id, kTalk, "\xff\xff")}},
      {"an open with details", {Open(id, kTalk, "\x12\x03\n\x01k")}},
      {"a slot beyond the agreed ones", {Open({3, 1}, kTalk)}},
      {"a slot far beyond", {Open({0xFFFFFFFF, 1}, kTalk)}},
      {"a slot in use", {open, Open({0, 3}, kTalk)}},
      {"the same open twice", {open, open}},
      {"an old generation", {Open({0, 9}, kPlain), Open({0, 7}, kTalk)}},
      {"an end from a client", {open, End(id, 0, 0)}},
      {"a message of no stream", {Message(id, 0)}},
      {"a message of no slot", {Message({7, 1}, 0)}},
      {"a message of a newer generation", {open, Message({0, 3}, 0)}},
      {"a message behind an early cancel", {CancelOf(id), Message(id, 0)}},
      {"a message with unknown flags", {open, WithByte(Message(id, 0), 8, 4)}},
      {"no message that is not the last", {open, WithByte(Message(id, 0), 8, 2)}},
      {"a last without message, and bytes", {open, Message(id, 0, "x", 3)}},
      {"a message twice", {open, Message(id, 0), Message(id, 0)}},
      {"a message far ahead", {open, Message(id, 4)}},
      {"more messages than credit",
       {open, Message(id, 0), Message(id, 1), Message(id, 2), Message(id, 3), Message(id, 4)}},
      {"more bytes than credit", {open, Message(id, 0, big), Message(id, 1, big)}},
      {"a message behind the last", {open, Message(id, 0, "", 1), Message(id, 1)}},
      {"a message for its own side", {open, ToOpener(Message(id, 0))}},
      {"credit for its own side", {open, ToOpener(Credit(id, 1, 1))}},
      {"two lasts", {open, Last(id, 0), Last(id, 0)}},
      {"a last of too few", {open, Message(id, 0), Last(id, 0)}},
      {"a last of too many", {open, Last(id, 5)}},
      {"credit of no stream", {Credit(id, 1, 1)}},
      {"credit of nothing", {open, Credit(id, 0, 0)}},
      {"credit with a body", {open, Longer(Credit(id, 1, 1))}},
      {"more credit than the window", {open, Credit(id, 1, 0)}},
      {"more bytes than the window", {open, Credit(id, 0, 1)}},
      {"a cancel of a slot beyond", {CancelOf({3, 1})}},
      {"a cancel with a body", {open, Longer(CancelOf(id))}},
      {"a cancel with a number", {open, WithByte(CancelOf(id), 8, 1)}},
      {"an unknown kind", {WithByte(open, 10, 10)}},
  };
  uint64_t errors = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    for (const Bytes& frame : test.frames) {
      ASSERT_NE(peer_.connection, nullptr) << "earlier than the malformed frame";
      peer_.Send(frame);
      network_.Settle();
    }
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    EXPECT_NE(peer_.why.message().find("malformed frame"), absl::string_view::npos) << peer_.why;
    EXPECT_EQ(server_->stats().protocol_errors, ++errors);
    for (const Served& talk : streams_.talks) EXPECT_TRUE(talk.context().cancelled());
    streams_.talks.clear();
    EXPECT_EQ(server_->stats().running, 0u);
    EXPECT_EQ(held_at_server(), 0u);
    // The other client has noticed nothing.
    Data reply;
    ClientWriter<Data> sum = chat_->Sum(&reply);
    EXPECT_TRUE(sum.Write(MakeData(2, 1)));
    ASSERT_TRUE(sum.Finish().ok());
    Dial();
  }
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(HostileStreamClientTest, StreamsOfAClientThatWantsNoneEndItsConnection) {
  for (const Bytes& frame : {Open({0, 1}, kTalk), CancelOf({0, 1}), Message({0, 1}, 0)}) {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
    Dial(/*max_streams=*/0);
    peer_.Send(frame);
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    EXPECT_NE(peer_.why.message().find("malformed frame"), absl::string_view::npos) << peer_.why;
  }
}

TEST_F(HostileStreamClientTest, StreamsThatCannotRunGetAnEndAndKeepTheirConnection) {
  struct Case {
    Bytes open;
    absl::StatusCode code;
    std::string text;
  };
  const Case cases[] = {
      {Open({0, 1}, 99), absl::StatusCode::kUnimplemented,
       "no method has the number 99; this server has 12 methods"},
      {Open({0, 3}, 0xFFFF), absl::StatusCode::kUnimplemented,
       "no method has the number 65535; this server has 12 methods"},
      {Open({0, 5}, kPlain), absl::StatusCode::kUnimplemented,
       "method Plain has one request and one reply: it is no stream"},
  };
  for (const Case& test : cases) {
    peer_.received.clear();
    peer_.Send(test.open);
    // What it had sent before it knew is stale.
    peer_.Send(Message(CallIdOf(test.open), 0));
    peer_.Send(Last(CallIdOf(test.open), 1));
    peer_.Send(CancelOf(CallIdOf(test.open)));
    network_.Settle();
    ASSERT_TRUE(peer_.why.ok()) << peer_.why;
    ASSERT_EQ(peer_.received.size(), 1u);
    EXPECT_EQ(LastEnd().status, static_cast<uint16_t>(test.code));
    EXPECT_EQ(AsStringView(LastEnd().text), test.text);
    EXPECT_EQ(LastEnd().messages, 0u);
  }
  EXPECT_EQ(server_->stats().refused, 3u);
}

TEST_F(HostileStreamClientTest, ACallOfAStreamAsIfItWereNoneGetsAnError) {
  for (const uint16_t method : {kTalk, kSum, kCount}) {
    peer_.received.clear();
    peer_.Send(Request({0, method}, method));
    ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
    ReplyHeader header;
    ByteSpan body;
    ASSERT_TRUE(DecodeReply(peer_.received.back(), &header, &body));
    EXPECT_EQ(header.status, static_cast<uint16_t>(absl::StatusCode::kUnimplemented));
  }
  EXPECT_TRUE(streams_.talks.empty());
}

TEST_F(HostileStreamClientTest, ACancelThatOvertakesItsOpenKeepsItFromRunning) {
  peer_.Send(CancelOf({1, 5}));
  peer_.Send(Open({1, 5}, kTalk));
  ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
  EXPECT_EQ(LastEnd().status, static_cast<uint16_t>(absl::StatusCode::kCancelled));
  EXPECT_TRUE(streams_.talks.empty());

  // It counts for that stream only.
  peer_.Send(Open({1, 7}, kTalk));
  ASSERT_TRUE(RunUntil([&] { return streams_.talks.size() == 1; }));
  // Others change nothing.
  peer_.Send(CancelOf({1, 5}));
  peer_.Send(CancelOf({1, 9}));
  network_.Settle();
  EXPECT_FALSE(streams_.talks[0].context().cancelled());
  peer_.Send(CancelOf({1, 7}));
  network_.Settle();
  EXPECT_TRUE(streams_.talks[0].context().cancelled());
}

TEST_F(HostileStreamClientTest, AnUndecodableMessageFailsItsStreamOnly) {
  peer_.Send(Open({0, 1}, kTalk));
  peer_.Send(Message({0, 1}, 0, "\xFF\xFF"));
  Served& served = NextTalk();
  network_.Settle();
  EXPECT_EQ(TryRead(served), "end");
  EXPECT_TRUE(served.context().cancelled());
  served.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
  EXPECT_EQ(LastEnd().status, static_cast<uint16_t>(absl::StatusCode::kInvalidArgument));

  // The only request of a stream of replies: the handler does not run.
  for (const Bytes& request : {Message({0, 3}, 0, "\xFF\xFF", 1), Last({0, 3}, 0)}) {
    peer_.received.clear();
    CallId id = CallIdOf(request);
    static uint32_t generation = 1;
    id.generation = generation += 2;
    Bytes frame = request;
    StoreLe32(frame.data() + 4, id.generation);
    peer_.Send(Open(id, kCount));
    peer_.Send(frame);
    ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
    EXPECT_EQ(LastEnd().status, static_cast<uint16_t>(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_TRUE(peer_.why.ok()) << peer_.why;
}

TEST_F(HostileStreamClientTest, AClientThatGivesNoCreditStopsItsOwnStreamAndNoOther) {
  Size size;
  size.set_bytes(100);
  peer_.Send(Open({0, 1}, kCount));
  peer_.Send(Message({0, 1}, 0, size.SerializeAsString(), kLastMessage));
  network_.Settle();
  EXPECT_EQ(peer_.received.size(), 2u) << "a window of two";
  ClientReader<Data> count = chat_->Count(size);
  Data data;
  int read = 0;
  while (count.Read(&data)) ++read;
  EXPECT_EQ(read, 100);
  EXPECT_TRUE(count.Finish().ok());
  peer_.Send(Credit({0, 1}, 2, 2));
  network_.Settle();
  EXPECT_EQ(peer_.received.size(), 4u);
  peer_.Send(CancelOf({0, 1}));
  network_.Settle();
  EXPECT_EQ(KindOf(peer_.received.back()), StreamFrameKind::kEnd);
  EXPECT_EQ(LastEnd().messages, 4u);
}

// --- servers -------------------------------------------------------------------------------------

class HostileStreamServerTest : public StreamTest {
 protected:
  HostileStreamServerTest() {
    rpc::ServerHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_request_bytes(1000);
    hello.set_max_extras_bytes(kMaxExtrasBytes);
    hello.set_max_streams(3);
    hello.set_stream_window_messages(kWindow.messages);
    hello.set_stream_window_bytes(kWindow.bytes);
    rpc::ServiceTable* table = hello.add_services();
    table->set_name("weft.test.Streams");
    table->add_methods("Talk");
    table->add_methods("Sum");
    ListenOptions options;
    options.hello = hello.SerializeAsString();
    listener_ = *server_engine().transport().Listen("sim:server", options, &acceptor_);
    ChannelOptions channel;
    channel.stream_window_messages = 2;
    channel.stream_window_bytes = 500;
    OpenChannel(channel);
    chat_.emplace(*channel_);
    EXPECT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
  }
  ~HostileStreamServerTest() override {
    talk_.reset();
    channel_.reset();
    network_.Settle();
  }

  // Opens a stream, and waits until the server has the open.
  CallId OpenTalk() {
    talk_.reset();
    network_.Settle();
    acceptor_.peer.received.clear();
    talk_.emplace(chat_->Talk());
    EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
    EXPECT_EQ(KindOf(acceptor_.peer.received[0]), StreamFrameKind::kOpen);
    return CallIdOf(acceptor_.peer.received[0]);
  }
  void Send(const Bytes& frame) { acceptor_.peer.Send(ToOpener(frame)); }

  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  std::optional<Talk> talk_;
};

TEST_F(HostileStreamServerTest, AnEndByHandEndsTheStreamBehindItsMessages) {
  const CallId id = OpenTalk();
  Send(End(id, 5, 2, "no"));
  Send(Message(id, 0, MakeData(1, 1).SerializeAsString()));
  network_.Settle();
  EXPECT_EQ(slots_in_use(), 1u);
  Send(Message(id, 1, MakeData(2, 1).SerializeAsString()));
  network_.Settle();
  EXPECT_EQ(slots_in_use(), 0u);
  EXPECT_EQ(TryRead(*talk_), "1");
  EXPECT_EQ(TryRead(*talk_), "2");
  EXPECT_EQ(TryRead(*talk_), "end");
  EXPECT_EQ(EndOf(*talk_), absl::NotFoundError("no"));
}

TEST_F(HostileStreamServerTest, AReplyThatIsMissingIsAnError) {
  Data reply;
  ClientWriter<Data> sum = chat_->Sum(&reply);
  ASSERT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
  Send(End(CallIdOf(acceptor_.peer.received[0]), 0, 0));
  const absl::Status status = EndOf(sum);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(HostileStreamServerTest, AnUndecodableMessageFailsItsStreamOnly) {
  const CallId id = OpenTalk();
  Data data;
  int reads = 0;
  talk_->Read(&data, [&](bool ok) { reads += ok ? 100 : 1; });
  Send(Message(id, 0, "\xFF\xFF"));
  network_.Settle();
  EXPECT_EQ(reads, 1);
  const absl::Status status = EndOf(*talk_);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(KindOf(acceptor_.peer.received.back()), StreamFrameKind::kCancel);
  EXPECT_EQ(slots_in_use(), 1u);
  Send(End(id, 1, 1, "cancelled"));
  network_.Settle();
  EXPECT_EQ(slots_in_use(), 0u);
  EXPECT_NE(acceptor_.peer.connection, nullptr);
}

TEST_F(HostileStreamServerTest, AnEndWhoseMetadataMakesNoSenseFailsItsStreamOnly) {
  const std::string not_decodable = "\xFF\xFF";
  const std::string details_of_no_error = "\x12\x03\n\x01k";
  for (const std::string& extras : {not_decodable, details_of_no_error}) {
    Send(End(OpenTalk(), 0, 0, "", extras));
    const absl::Status status = EndOf(*talk_);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  }
  EXPECT_NE(acceptor_.peer.connection, nullptr);
}

TEST_F(HostileStreamServerTest, MalformedFramesEndTheConnectionAndTheStreamOnce) {
  using Frames = std::vector<Bytes>;
  using MakeFrames = Frames (*)(CallId);
  struct Case {
    const char* what;
    MakeFrames frames;  // the last one is the malformed one
  };
  const Case cases[] = {
      {"an open", [](CallId id) { return Frames{Open(id, 0)}; }},
      {"a cancel", [](CallId id) { return Frames{CancelOf(id)}; }},
      {"a last", [](CallId id) { return Frames{Message(id, 0, "", 1)}; }},
      {"a half-close", [](CallId id) { return Frames{Last(id, 0)}; }},
      {"another slot",
       [](CallId id) {
         return Frames{Message({id.slot + 1, id.generation}, 0)};
       }},
      {"no slot",
       [](CallId id) {
         return Frames{Message({0xFFFFFFFF, id.generation}, 0)};
       }},
      {"another generation",
       [](CallId id) {
         return Frames{End({id.slot, id.generation + 2}, 0, 0)};
       }},
      {"generation 0",
       [](CallId id) {
         return Frames{End({id.slot, 0}, 0, 0)};
       }},
      {"a message twice",
       [](CallId id) {
         return Frames{Message(id, 0), Message(id, 0)};
       }},
      {"a message beyond the credit",
       [](CallId id) {
         return Frames{Message(id, 0), Message(id, 1), Message(id, 2)};
       }},
      {"far ahead", [](CallId id) { return Frames{Message(id, 2)}; }},
      {"a message for its own side", [](CallId id) { return Frames{ToOpener(Message(id, 0))}; }},
      {"credit beyond the window", [](CallId id) { return Frames{Credit(id, 1, 0)}; }},
      {"an end of too many", [](CallId id) { return Frames{End(id, 0, 3)}; }},
      {"an end of too few",
       [](CallId id) {
         return Frames{Message(id, 0), End(id, 0, 0)};
       }},
      {"a second end",
       [](CallId id) {
         return Frames{End(id, 0, 1), End(id, 0, 1)};
       }},
      {"a message beyond the end",
       [](CallId id) {
         return Frames{End(id, 0, 1), Message(id, 1)};
       }},
      {"a message behind the end",
       [](CallId id) {
         return Frames{End(id, 0, 0), Message(id, 0)};
       }},
      {"an end with an unknown code", [](CallId id) { return Frames{End(id, 17, 0)}; }},
      {"an end that is cut",
       [](CallId id) { return Frames{Truncated(End(id, 0, 0), kCallHeaderBytes + 7)}; }},
      {"an OK with a text", [](CallId id) { return Frames{End(id, 0, 0, "text")}; }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    const CallId id = OpenTalk();
    for (const Bytes& frame : test.frames(id)) {
      ASSERT_NE(acceptor_.peer.connection, nullptr) << "earlier than the malformed frame";
      Send(frame);
      network_.Settle();
    }
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection == nullptr; }));
    const absl::Status status = EndOf(*talk_);
    if (std::string(test.what) != "a message behind the end") {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_NE(status.message().find("malformed frame"), absl::string_view::npos) << status;
    }
    EXPECT_EQ(slots_in_use(), 0u);
  }
}

TEST_F(HostileStreamServerTest, AServerThatGivesNoCreditIsSentNoMoreThanItsWindow) {
  OpenTalk();
  for (uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(talk_->TryWrite(MakeData(1, 1)),
              i < kWindow.messages ? StreamResult::kDone : StreamResult::kNotYet);
  }
  network_.Settle();
  EXPECT_EQ(acceptor_.peer.received.size(), 1u + kWindow.messages);
}

TEST_F(HostileStreamServerTest, AServerThatNeverEndsAStreamKeepsItsSlotAndNothingElse) {
  for (int i = 0; i < 3; ++i) OpenTalk();
  EXPECT_EQ(slots_in_use(), 3u);
  Talk waits = chat_->Talk({.timeout_us = 5000});
  EXPECT_TRUE(absl::IsDeadlineExceeded(EndOf(waits)));
  acceptor_.peer.connection->Close("done");
  network_.Settle();
  EXPECT_EQ(slots_in_use(), 0u);
}

// --- anything at all -----------------------------------------------------------------------------

class FuzzWorld final : public StreamTest {
 public:
  FuzzWorld() { StartStreams(); }
  void TestBody() override {}

  void Feed(const std::vector<Bytes>& frames) {
    RawPeer peer;
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_reply_bytes(1000);
    hello.set_max_streams(4);
    hello.set_stream_window_messages(3);
    hello.set_stream_window_bytes(300);
    peer.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
    for (const Bytes& frame : frames) {
      if (peer.connection == nullptr) break;
      peer.Send(frame);
    }
    network_.Settle();
    Data data;
    for (Served& talk : streams_.talks) {
      while (talk.TryRead(&data) == StreamResult::kDone) static_cast<void>(talk.TryWrite(data));
    }
    network_.Settle();
    if (peer.connection != nullptr) peer.connection->Close("done");
    streams_.talks.clear();
    ASSERT_TRUE(RunUntil([&] { return !peer.why.ok(); }));
    ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 1; }));
    EXPECT_EQ(server_->stats().running, 0u);
    EXPECT_EQ(server_->stats().running_bytes, 0u);
    Data reply;
    ClientWriter<Data> sum = chat_->Sum(&reply);
    EXPECT_TRUE(sum.WriteLast(MakeData(1, 1)));
    EXPECT_TRUE(sum.Finish().ok()) << "another client was harmed";
  }
};

Bytes AlmostRight(Random& random) {
  const CallId id = {static_cast<uint32_t>(random.Uniform(4)),
                     static_cast<uint32_t>(2 * random.Uniform(2) + 1)};
  const std::string body = MakeData(random.Uniform(9), random.Uniform(200)).SerializeAsString();
  const auto number = static_cast<uint32_t>(random.Uniform(5));
  Bytes frame;
  switch (random.Uniform(8)) {
    case 0:
    case 1:
    case 2:
      frame = Open(id, static_cast<uint16_t>(kTalk + random.Uniform(5)), "", random.Chance(0.2),
                   static_cast<uint32_t>(random.Uniform(3) * 1000));
      break;
    case 3:
      frame = Credit(id, static_cast<uint16_t>(random.Uniform(3)),
                     static_cast<uint32_t>(random.Uniform(50)));
      break;
    case 4:
      frame = CancelOf(id);
      break;
    case 5:
      frame = Last(id, number);
      break;
    default:
      frame = Message(id, number, body, random.Chance(0.1) ? 1 : 0);
  }
  if (random.Chance(0.2)) {
    frame[random.Uniform(frame.size())] = static_cast<std::byte>(random.Next64());
  }
  if (random.Chance(0.05)) frame.resize(random.Uniform(frame.size()));
  return frame;
}

TEST(StreamFuzzTest, NoFramesHarmTheServerOrItsOtherClients) {
  constexpr uint64_t kSeed = 20260;
  Random random(kSeed);
  FuzzWorld world;
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    std::vector<Bytes> frames;
    for (uint64_t n = random.UniformInRange(1, 12); n > 0; --n) {
      frames.push_back(AlmostRight(random));
    }
    world.Feed(frames);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::test
