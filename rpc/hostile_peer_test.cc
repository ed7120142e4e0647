// Peers that do not keep to the protocol: each loses its own connection, and nothing else happens.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/wire/frame.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr uint16_t kEcho = 0;
constexpr uint16_t kHold = 2;

// --- clients -------------------------------------------------------------------------------------

class HostileClientTest : public RpcTest {
 protected:
  HostileClientTest() {
    Start();
    Dial();
  }

  // Another client than channel_'s, on the same engine.
  void Dial() {
    peer_.Dial(client().transport());
    EXPECT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }

  ReplyHeader LastReply() {
    ReplyHeader header;
    ByteSpan body;
    EXPECT_FALSE(peer_.received.empty());
    EXPECT_TRUE(DecodeReply(peer_.received.back(), &header, &body));
    text_ = std::string(AsStringView(body));
    return header;
  }

  ~HostileClientTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }

  RawPeer peer_;
  std::string text_;
};

TEST_F(HostileClientTest, APlainRequestIsServed) {
  peer_.Send(Request({0, 1}, kEcho, MakeData(3, 5).SerializeAsString()));
  ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
  EXPECT_EQ(LastReply().status, 0);
  EXPECT_EQ(text_, MakeData(3, 5).SerializeAsString());
}

// Each malformed frame wrote a line, and a client may connect as often as it likes.
TEST_F(HostileClientTest, WhoBreaksTheProtocolAgainAndAgainFillsNoLog) {
  int lines = 0;
  SetLogSink([&lines](const LogRecord& record) {
    if (record.text.find("malformed frame") != std::string_view::npos) ++lines;
  });
  const uint64_t begin_ns = Clock::Real().NowNs();
  constexpr int kTimes = 200;
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_NE(peer_.connection, nullptr);
    peer_.Send(Bytes());
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    Dial();
  }
  const uint64_t seconds = (Clock::Real().NowNs() - begin_ns) / kNsPerSec;
  SetLogSink(nullptr);
  EXPECT_EQ(server_->stats().protocol_errors, static_cast<uint64_t>(kTimes));
  EXPECT_GE(lines, 1);
  EXPECT_LE(static_cast<uint64_t>(lines), seconds + 2) << "one in a second";
}

TEST_F(HostileClientTest, MalformedFramesEndTheirConnectionAndNoOther) {
  struct Case {
    const char* what;
    std::vector<Bytes> frames;  // the last one is the malformed one
  };
  const Bytes good = Request({0, 1}, kHold);
  const Case cases[] = {
      {"empty", {Bytes()}},
      {"shorter than a header", {Truncated(good, 15)}},
      {"kind 0", {WithByte(good, 10, 0)}},
      {"unknown kind", {WithByte(good, 10, 9)}},
      {"unknown flags", {WithByte(good, 11, 1)}},
      {"an attachment that is missing", {WithByte(good, 11, 0x40)}},
      {"a priority that is none", {WithByte(good, 11, 0x20)}},
      {"a cancel with a priority", {WithByte(Cancel({0, 1}), 11, 0x10)}},
      {"a reply from a client", {WithByte(good, 10, 2)}},
      {"metadata that is missing", {WithByte(good, 11, 0x80)}},
      {"metadata of no bytes", {RequestWithExtras({0, 1}, kHold, "", std::string(8, '\0'))}},
      {"metadata that is cut", {Truncated(RequestWithExtras({0, 1}, kHold, "\n\0"), 23)}},
      {"metadata that is no protobuf", {RequestWithExtras({0, 1}, kHold, "\xff\xff")}},
      {"metadata with a key that is none", {RequestWithExtras({0, 1}, kHold, "\n\x03\n\x01K")}},
      {"details in a request", {RequestWithExtras({0, 1}, kHold, "\x12\x03\n\x01k")}},
      {"slot just beyond the agreed ones", {Request({4, 1}, kHold)}},
      {"slot far beyond", {Request({0xFFFFFFFF, 1}, kHold)}},
      {"slot in use", {good, Request({0, 3}, kHold)}},
      {"the same call twice", {good, good}},
      {"an old generation", {Request({0, 9}, kEcho), Request({0, 7}, kEcho)}},
      {"the same generation after its reply", {Request({0, 9}, kEcho), Request({0, 9}, kEcho)}},
      {"cancel of a slot beyond", {Cancel({4, 1})}},
      {"cancel with a body", {[] {
         Bytes frame = Cancel({0, 1});
         frame.push_back(std::byte{1});
         return frame;
       }()}},
      {"cancel with a method", {WithByte(Cancel({0, 1}), 8, 1)}},
  };
  uint64_t errors = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    const int echoes_before = service_.echoes;
    for (const Bytes& frame : test.frames) {
      ASSERT_NE(peer_.connection, nullptr) << "earlier than the malformed frame";
      peer_.Send(frame);
      network_.Settle();
    }
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    EXPECT_TRUE(absl::IsUnavailable(peer_.why)) << peer_.why;
    EXPECT_NE(peer_.why.message().find("malformed frame"), absl::string_view::npos) << peer_.why;
    EXPECT_EQ(server_->stats().protocol_errors, ++errors);
    EXPECT_EQ(static_cast<size_t>(service_.echoes - echoes_before) + service_.held.size(),
              test.frames.size() - 1)
        << "handlers had the good frames alone";
    service_.held.clear();
    // The other client has noticed nothing.
    Data reply;
    ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
    Dial();
  }
  EXPECT_EQ(channel_->stats().connects, 1u);
}

// The server made room for none of its calls, which it held for a bug of its own, and aborted.
TEST_F(HostileClientTest, AClientThatWantsNoCallsIsRefused) {
  peer_.connection->Close("done");
  network_.Settle();
  peer_.Dial(client().transport(), /*max_windows=*/0, /*max_calls=*/0);
  ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
  EXPECT_NE(peer_.why.message().find("wants no calls"), absl::string_view::npos) << peer_.why;
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
}

TEST_F(HostileClientTest, GenerationsWrapAround) {
  for (uint32_t generation : {0x7FFFFFFFu, 0xFFFFFFFDu, 0xFFFFFFFFu, 1u}) {
    peer_.Send(Request({0, generation}, kEcho));
    const size_t replies = peer_.received.size() + 1;
    ASSERT_TRUE(RunUntil([&] { return peer_.received.size() == replies || !peer_.why.ok(); }));
    ASSERT_TRUE(peer_.why.ok()) << generation << ": " << peer_.why;
    EXPECT_EQ(LastReply().id.generation, generation);
  }
}

TEST_F(HostileClientTest, RequestsThatCannotRunGetAnErrorAndKeepTheirConnection) {
  struct Case {
    const char* what;
    Bytes frame;
    absl::StatusCode code;
    std::string text;
  };
  const uint16_t methods = static_cast<uint16_t>(Probe::descriptor().methods.size());
  const Case cases[] = {
      {"no such method", Request({0, 1}, methods), absl::StatusCode::kUnimplemented,
       "no method has the number 7; this server has 7 methods"},
      {"the last number of all", Request({0, 3}, 0xFFFF), absl::StatusCode::kUnimplemented,
       "no method has the number 65535; this server has 7 methods"},
      {"no protobuf", Request({0, 5}, kEcho, "\xFF\xFF\xFF"), absl::StatusCode::kInvalidArgument,
       "the request of 3 bytes for method Echo cannot be decoded as weft.test.Data"},
      {"a field cut off", Request({0, 7}, kEcho, "\x12\x7F"), absl::StatusCode::kInvalidArgument,
       "the request of 2 bytes for method Echo cannot be decoded as weft.test.Data"},
      {"a required field missing", Request({0, 9}, 6), absl::StatusCode::kInvalidArgument,
       "the request for method Strict lacks required fields of weft.test.Required: id"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    peer_.received.clear();
    peer_.Send(test.frame);
    ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty() || !peer_.why.ok(); }));
    ASSERT_TRUE(peer_.why.ok()) << peer_.why;
    EXPECT_EQ(LastReply().status, static_cast<uint16_t>(test.code));
    EXPECT_EQ(text_, test.text);
  }
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(HostileClientTest, ACancelThatOvertakesItsRequestKeepsItFromRunning) {
  peer_.Send(Cancel({1, 5}));
  peer_.Send(Request({1, 5}, kEcho));
  ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
  EXPECT_EQ(LastReply().status, static_cast<uint16_t>(absl::StatusCode::kCancelled));
  EXPECT_EQ(service_.echoes, 0);

  // It counts for that call only.
  peer_.Send(Request({1, 7}, kEcho));
  ASSERT_TRUE(RunUntil([&] { return peer_.received.size() == 2; }));
  EXPECT_EQ(LastReply().status, 0);
}

TEST_F(HostileClientTest, ACancelOfAnotherGenerationChangesNothing) {
  peer_.Send(Request({1, 5}, kHold));
  peer_.Send(Cancel({1, 3}));
  peer_.Send(Cancel({1, 7}));
  network_.Settle();
  ASSERT_EQ(service_.held.size(), 1u);
  EXPECT_FALSE(service_.held.front().context().cancelled());
  peer_.Send(Cancel({1, 5}));
  network_.Settle();
  EXPECT_TRUE(service_.held.front().context().cancelled());
  service_.held.clear();
}

// --- servers -------------------------------------------------------------------------------------

class HostileServerTest : public RpcTest {
 protected:
  HostileServerTest() {
    ListenOptions options;
    options.hello = OldServerHello({"Echo"}).SerializeAsString();
    listener_ = *server_engine().transport().Listen("sim:server", options, &acceptor_);
    OpenChannel();
    EXPECT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
  }
  ~HostileServerTest() override {
    stub_.reset();
    channel_.reset();
    network_.Settle();
  }

  // Calls, and waits until the server has the request.
  CallId Call() {
    acceptor_.peer.received.clear();
    outcome_ = Outcome();
    stub_->Echo(Data(), &outcome_.reply, {}, outcome_.Callback());
    EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
    ByteSpan body;
    return DecodeRequest(acceptor_.peer.received.front(), &body).id;
  }

  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  Outcome outcome_;
};

TEST_F(HostileServerTest, APlainReplyEndsItsCall) {
  acceptor_.peer.Send(Reply(Call(), 0, 0, MakeData(8, 8).SerializeAsString()));
  ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
  EXPECT_TRUE(outcome_.status->ok());
  EXPECT_EQ(outcome_.reply.number(), 8u);
}

TEST_F(HostileServerTest, AnUndecodableReplyFailsItsCallOnly) {
  acceptor_.peer.Send(Reply(Call(), 0, 0, "\xFF\xFF"));
  ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
  EXPECT_EQ(*outcome_.status,
            WithDelivery(absl::DataLossError("the reply of 2 bytes from sim:server cannot be "
                                             "decoded as weft.test.Data"),
                         Delivery::kMayHaveRun));
  acceptor_.peer.Send(Reply(Call(), 0, 0, ""));
  ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
  EXPECT_TRUE(outcome_.status->ok());
}

TEST_F(HostileServerTest, AReplyWhoseMetadataMakesNoSenseFailsItsCallOnly) {
  const std::string not_decodable = "\xFF\xFF";
  const std::string no_key = "\n\x03\n\x01K";
  const std::string details_of_no_error = "\x12\x03\n\x01k";
  for (const std::string& extras : {not_decodable, no_key, details_of_no_error}) {
    acceptor_.peer.Send(ReplyWithExtras(Call(), 0, extras, ""));
    ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
    EXPECT_TRUE(absl::IsDataLoss(*outcome_.status)) << *outcome_.status;

    ClientContext context;
    Outcome outcome;
    acceptor_.peer.received.clear();
    stub_->Echo(Data(), &outcome.reply, {.context = &context}, outcome.Callback());
    ASSERT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
    acceptor_.peer.Send(ReplyWithExtras(CallIdOf(acceptor_.peer.received.front()), 0, extras, ""));
    ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_TRUE(absl::IsDataLoss(*outcome.status)) << *outcome.status;
    EXPECT_EQ(outcome.completions, 1);
  }
  EXPECT_NE(acceptor_.peer.connection, nullptr);
}

// This one has said in its hello that it takes none.
TEST_F(HostileServerTest, AServerThatTakesNoMetadataIsNotSentAny) {
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("k", "v").ok());
  Data reply;
  const absl::Status status = stub_->Echo(Data(), &reply, {.context = &context});
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_TRUE(acceptor_.peer.received.empty());
}

TEST_F(HostileServerTest, MalformedRepliesEndTheConnectionAndTheCallOnce) {
  using MakeFrame = Bytes (*)(CallId);
  const MakeFrame cases[] = {
      [](CallId) { return Bytes(); },
      [](CallId id) { return Truncated(Reply(id, 0, 0, ""), 15); },
      [](CallId id) { return Request(id, 0); },
      [](CallId id) { return Cancel(id); },
      [](CallId id) { return WithByte(Reply(id, 0, 0, ""), 11, 1); },
      [](CallId id) { return WithByte(Reply(id, 0, 0, ""), 11, 0x80); },
      [](CallId id) { return WithByte(Reply(id, 0, 0, std::string(8, '\0')), 11, 0x80); },
      [](CallId id) { return Truncated(ReplyWithExtras(id, 0, "k", ""), 31); },
      [](CallId id) {
        return Reply({id.slot + 4, id.generation}, 0, 0, "");
      },
      [](CallId id) {
        return Reply({0xFFFFFFFF, id.generation}, 0, 0, "");
      },
      [](CallId id) {
        return Reply({id.slot, id.generation + 1}, 0, 0, "");
      },
      [](CallId id) {
        return Reply({id.slot, id.generation + 2}, 0, 0, "");
      },
      [](CallId id) {
        return Reply({id.slot, 0}, 0, 0, "");
      },
      [](CallId id) { return WithByte(Reply(id, 0, 0, ""), 10, 12); },  // a one-way message
      [](CallId id) { return Reply(id, 17, 0, ""); },
      [](CallId id) { return Reply(id, 0, 3, "abc"); },
      [](CallId id) { return Reply(id, 5, 4, "abc"); },
      [](CallId id) { return Reply(id, 5, 2, "abc"); },
      [](CallId id) { return Reply(id, 5, 2000, std::string(2000, 'x')); },
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    acceptor_.peer.Send(cases[i](Call()));
    ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
    network_.Settle();
    EXPECT_EQ(outcome_.completions, 1);
    EXPECT_TRUE(absl::IsUnavailable(*outcome_.status)) << *outcome_.status;
    EXPECT_NE(outcome_.status->message().find("malformed frame"), absl::string_view::npos)
        << *outcome_.status;
    EXPECT_EQ(acceptor_.peer.connection, nullptr);
  }
}

TEST_F(HostileServerTest, ASecondReplyToTheSameCallEndsTheConnection) {
  const Bytes reply = Reply(Call(), 0, 0, "");
  acceptor_.peer.Send(reply);
  acceptor_.peer.Send(reply);
  ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection == nullptr; }));
  EXPECT_EQ(outcome_.completions, 1);
  EXPECT_TRUE(outcome_.status->ok());
}

// --- anything at all -----------------------------------------------------------------------------

// As a fuzzer would call it. The first byte says to whom the rest goes.
void OneInput(const uint8_t* data, size_t size);

class FuzzWorld final : public RpcTest {
 public:
  FuzzWorld() { Start(); }
  void TestBody() override {}

  // Sends frames, each preceded by its length in a byte, to the server.
  void Feed(const uint8_t* data, size_t size) {
    RawPeer peer;
    peer.Dial(client().transport());
    ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
    for (size_t at = 0; at < size && peer.connection != nullptr;) {
      const size_t bytes = std::min<size_t>(data[at], size - at - 1);
      const auto* first = reinterpret_cast<const std::byte*>(data + at + 1);
      const Bytes frame(first, first + bytes);
      peer.Send(frame);
      at += 1 + bytes;
    }
    network_.Settle();
    if (peer.connection != nullptr) peer.connection->Close("done");
    service_.held.clear();
    ASSERT_TRUE(RunUntil([&] { return !peer.why.ok(); }));
    ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 1; }));
    EXPECT_EQ(server_->stats().running, 0u);
    Data reply;
    EXPECT_TRUE(stub_->Echo(MakeData(1, 1), &reply).ok()) << "another client was harmed";
  }
};

void OneInput(const uint8_t* data, size_t size) {
  static FuzzWorld world;
  world.Feed(data, size);
}

// Frames that are almost right: a valid one with a few bytes changed.
std::vector<uint8_t> AlmostRight(Random& random) {
  std::vector<uint8_t> input;
  const int frames = static_cast<int>(random.UniformInRange(1, 6));
  for (int i = 0; i < frames; ++i) {
    const CallId id{static_cast<uint32_t>(random.Uniform(5)),
                    static_cast<uint32_t>(2 * random.Uniform(4) + 1)};
    Bytes frame = random.Chance(0.2) ? Cancel(id)
                                     : Request(id, static_cast<uint16_t>(random.Uniform(8)),
                                               MakeData(i, random.Uniform(60)).SerializeAsString(),
                                               static_cast<uint32_t>(random.Uniform(3) * 1000));
    for (uint64_t changes = random.Uniform(3); changes > 0; --changes) {
      frame[random.Uniform(frame.size())] = static_cast<std::byte>(random.Next64());
    }
    if (random.Chance(0.1)) frame.resize(random.Uniform(frame.size()));
    input.push_back(static_cast<uint8_t>(frame.size()));
    for (std::byte byte : frame) input.push_back(static_cast<uint8_t>(byte));
  }
  return input;
}

TEST(FuzzTest, NoFramesHarmTheServerOrItsOtherClients) {
  constexpr uint64_t kSeed = 20240;
  Random random(kSeed);
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    const std::vector<uint8_t> input = AlmostRight(random);
    OneInput(input.data(), input.size());
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::test

#ifdef WEFT_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::OneInput(data, size);
  return 0;
}
#endif
