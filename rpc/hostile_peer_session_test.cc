// Peers that dial, accept and send as no peer does: each loses its own connection, and nothing else
// happens.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_frames.h"
#include "rpc/wire/peer_frame.h"

namespace weft::test {
namespace {

Bytes Begin(const std::string& hello = PeerCallingHello().SerializeAsString()) {
  Bytes frame(kCallHeaderBytes + hello.size());
  EncodePeerFrame(PeerFrameKind::kBegin, frame.data());
  std::memcpy(frame.data() + kCallHeaderBytes, hello.data(), hello.size());
  return frame;
}

Bytes EndOfCalls() {
  Bytes frame(kCallHeaderBytes);
  EncodePeerFrame(PeerFrameKind::kEnd, frame.data());
  return frame;
}

Bytes Goaway() {
  Bytes frame(kCallHeaderBytes);
  EncodeGoaway(0, frame.data());
  return frame;
}

// "server" has a peer "raw", which is the test, and another one whose session must not suffer.
class HostilePeerSessionTest : public PeerTest {
 protected:
  HostilePeerSessionTest() : server_(Start("server")), other_(Start("other")) {
    server_.Open("other");
    EXPECT_TRUE(RunUntil([&] { return server_.IsReady("other"); }));
  }
  ~HostilePeerSessionTest() override {
    listener_.reset();
    for (RawPeer* peer : {&peer_, &acceptor_.peer}) {
      if (peer->connection != nullptr) peer->connection->Close("done");
    }
    RunFor(100 * kNsPerMs);
    machines_.clear();
  }

  Transport& transport() { return CoreOf(network_.Node("raw")).transport(); }
  void Dial(const rpc::ClientHello& hello = PeerDialingHello("raw", 77)) {
    peer_.connection = nullptr;
    peer_.DialWith(transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr || !peer_.why.ok(); }));
  }
  // The server dials.
  void Accept(const rpc::ServerHello& hello = PeerServingHello("raw")) {
    ListenOptions options;
    options.hello = hello.SerializeAsString();
    listener_ = *transport().Listen("sim:raw", options, &acceptor_);
    server_.Open("raw");
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
  }
  // Each frame arrives; the last one ends the connection.
  void ExpectEnd(RawPeer& peer, const std::vector<Bytes>& frames) {
    peer.why = absl::OkStatus();
    for (const Bytes& frame : frames) {
      ASSERT_TRUE(peer.why.ok()) << "earlier than the malformed frame";
      peer.Send(frame);
      network_.Settle();
    }
    ASSERT_TRUE(RunUntil([&] { return !peer.why.ok(); }));
    EXPECT_NE(peer.why.message().find("the peer closed: "), absl::string_view::npos) << peer.why;
    EXPECT_TRUE(Echo(server_, "other").ok());
    EXPECT_EQ(server_.to("other").stats().connects, 1u);
  }

  PeerMachine& server_;
  PeerMachine& other_;
  RawPeer peer_;
  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
};

constexpr CallId kId = {0, 1};

TEST_F(HostilePeerSessionTest, ASessionByHandWorksBothWays) {
  server_.OpenAt("raw", "");
  Dial();
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 1u);
  ByteSpan hello;
  ASSERT_TRUE(DecodeBegin(peer_.received[0], &hello));
  peer_.Send(Request(kId, 0, MakeData(1, 1).SerializeAsString()));
  Outcome outcome;
  Probe::Stub(server_.to("raw")).Echo(MakeData(5, 1), &outcome.reply, {}, outcome.Callback());
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 3u);
  for (const Bytes& frame : {peer_.received[1], peer_.received[2]}) {
    if (CallFrameKindOf(frame) != static_cast<uint16_t>(CallFrameKind::kRequest)) continue;
    peer_.Send(Reply(CallIdOf(frame), 0, 0, MakeData(6, 1).SerializeAsString()));
  }
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok());
  EXPECT_EQ(outcome.reply.number(), 6u);
  peer_.Send(EndOfCalls());
  server_.Close("raw");
  ASSERT_TRUE(RunUntil([&] { return peer_.connection == nullptr; }));
}

TEST_F(HostilePeerSessionTest, HellosThatMakeNoSenseAreRefused) {
  using Change = void (*)(rpc::PeerHello&);
  struct Case {
    const char* what;
    Change change;
  };
  const Case cases[] = {
      {"no id", [](rpc::PeerHello& hello) { hello.clear_id(); }},
      {"an id with a blank", [](rpc::PeerHello& hello) { hello.set_id("r w"); }},
      {"an id with a control character", [](rpc::PeerHello& hello) { hello.set_id("r\x1b"); }},
      {"a long id", [](rpc::PeerHello& hello) { hello.set_id(std::string(129, 'r')); }},
      {"the server's id", [](rpc::PeerHello& hello) { hello.set_id("server"); }},
      {"another one's wanted", [](rpc::PeerHello& hello) { hello.set_wanted("x"); }},
      {"nobody wanted", [](rpc::PeerHello& hello) { hello.clear_wanted(); }},
      {"no incarnation", [](rpc::PeerHello& hello) { hello.clear_incarnation(); }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    rpc::ClientHello hello = PeerDialingHello("raw", 77);
    test.change(*hello.mutable_peer());
    Dial(hello);
    EXPECT_EQ(peer_.connection, nullptr);
    EXPECT_FALSE(peer_.why.ok());
    EXPECT_EQ(server_.server().stats().peers, 1u);
  }
}

TEST_F(HostilePeerSessionTest, AServedSideThatServesNothingLosesTheConnection) {
  server_.OpenAt("raw", "");
  rpc::ClientHello hello = PeerDialingHello("raw", 77);
  hello.mutable_peer()->clear_server();
  Dial(hello);
  ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
  EXPECT_FALSE(Echo(server_, "raw").ok());
  EXPECT_TRUE(Echo(server_, "other").ok());
}

// Of a peer that has dialed a server without a channel to it.
TEST_F(HostilePeerSessionTest, FramesOfACallerToASideThatDoesNotCall) {
  const struct {
    const char* what;
    std::vector<Bytes> frames;
  } cases[] = {
      {"a reply", {Reply(kId, 0, 0, "")}},
      {"a release", {Notice(CallFrameKind::kReleased, kId)}},
      {"a goaway", {Goaway()}},
      {"an end of a stream", {End(kId, 0, 0)}},
      {"a message to who has not opened", {Open(kId, kTalk), ToOpener(Message(kId, 0))}},
      {"credit to who has not opened", {Open(kId, kTalk), ToOpener(Credit(kId, 1, 1))}},
      {"a begin of who has dialed", {Begin()}},
      {"a kind that is none", {WithByte(Cancel(kId), 10, 15)}},
      {"nothing", {Bytes()}},
      {"a short frame", {Truncated(Cancel(kId), 15)}},
      {"an end with an id", {WithByte(EndOfCalls(), 0, 1)}},
      {"an end with a number", {WithByte(EndOfCalls(), 12, 1)}},
      {"an end with a bit", {WithByte(EndOfCalls(), 11, 1)}},
      {"a generation twice", {Request(kId, 0), Request(kId, 0)}},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.what);
    Dial();
    ExpectEnd(peer_, test.frames);
    if (HasFatalFailure()) return;
  }
}

// Large requests may be overtaken by an end.
TEST_F(HostilePeerSessionTest, NothingRunsBehindAnEnd) {
  server_.OpenAt("raw", "");
  for (const Bytes& last : {Begin(), EndOfCalls()}) {
    SCOPED_TRACE(testing::Message() << "kind " << CallFrameKindOf(last));
    Dial();
    const std::string body = MakeData(1, 1).SerializeAsString();
    const uint64_t before = server_.server().stats().requests;
    ExpectEnd(peer_, {Request(kId, 2, body), EndOfCalls(), Cancel(kId), Request({1, 1}, 0, body),
                      Open(kId, kTalk), Message(kId, 0), Credit(kId, 1, 1), last});
    if (HasFatalFailure()) return;
    EXPECT_EQ(server_.server().stats().requests, before + 1);
    ASSERT_EQ(server_.probe.held.size(), 1u);
    EXPECT_TRUE(server_.probe.held.front().context().cancelled());
    server_.probe.held.clear();
  }
}

// Of a peer that a server has dialed.
TEST_F(HostilePeerSessionTest, FramesOfWhoWasDialed) {
  const std::string junk = "\xFF\xFF";
  const struct {
    const char* what;
    std::vector<Bytes> frames;
  } cases[] = {
      {"a request before a begin", {Request(kId, 0)}},
      {"an open before a begin", {Open(kId, kTalk)}},
      {"a cancel before a begin", {Cancel(kId)}},
      {"an end before a begin", {EndOfCalls()}},
      {"a message of a stream before a begin", {Message(kId, 0)}},
      {"two begins", {Begin(), Begin()}},
      {"a begin with a number", {WithByte(Begin(), 12, 1)}},
      {"a begin with a slot", {WithByte(Begin(), 0, 1)}},
      {"a large begin", {Begin(std::string(kMaxBeginBytes + 1, ' '))}},
      {"a reply to no call", {Reply(kId, 0, 0, "")}},
      {"a message to who has opened nothing", {ToOpener(Message(kId, 0))}},
      {"a bad slot", {Begin(), Request({99, 1}, 0)}},
  };
  Accept();
  for (const auto& test : cases) {
    SCOPED_TRACE(test.what);
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
    ExpectEnd(acceptor_.peer, test.frames);
    if (HasFatalFailure()) return;
  }
  // Hellos that no handshake would take.
  for (const std::string& hello : {junk, std::string()}) {
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
    acceptor_.peer.why = absl::OkStatus();
    acceptor_.peer.Send(Begin(hello));
    ASSERT_TRUE(RunUntil([&] { return !acceptor_.peer.why.ok(); }));
  }
  EXPECT_TRUE(Echo(server_, "other").ok());
}

// On connections that are no sessions, these frames are none.
TEST_F(HostilePeerSessionTest, APlainClientIsNoPeer) {
  for (const Bytes& frame : {Begin(), EndOfCalls(), Reply(kId, 0, 0, "")}) {
    Dial(PeerCallingHello());
    ExpectEnd(peer_, {frame});
    if (HasFatalFailure()) return;
  }
}

TEST_F(HostilePeerSessionTest, NoFramesHarmTheOthers) {
  constexpr uint64_t kSeed = 20261;
  Random random(kSeed);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    if (random.Chance(0.5) && !server_.has("raw")) server_.OpenAt("raw", "");
    Dial();
    Outcome outcome;
    if (server_.has("raw")) {
      Probe::Stub(server_.to("raw"))
          .Echo(MakeData(5, 1), &outcome.reply, {.timeout_us = 100'000}, outcome.Callback());
    }
    for (uint64_t n = random.UniformInRange(1, 12); n > 0 && peer_.connection != nullptr; --n) {
      const CallId id = {static_cast<uint32_t>(random.Uniform(3)),
                         static_cast<uint32_t>(random.Uniform(4))};
      Bytes frame = Cancel(id);
      switch (random.Uniform(10)) {
        case 0:
          frame = Request(id, static_cast<uint16_t>(random.Uniform(9)));
          break;
        case 1:
          frame = Open(id, kTalk);
          break;
        case 2:
          frame = Message(id, 0, "x");
          break;
        case 3:
          frame = ToOpener(Message(id, 0, "x"));
          break;
        case 4:
          frame = Reply(id, 0, 0, "");
          break;
        case 5:
          frame = Credit(id, 1, 1);
          break;
        case 6:
          frame = EndOfCalls();
          break;
        case 7:
          frame = Begin();
          break;
        case 8:
          frame = End(id, 0, 0);
          break;
        default:
          break;
      }
      if (random.Chance(0.1)) frame[random.Uniform(frame.size())] ^= std::byte{1};
      peer_.Send(frame);
      network_.Settle();
    }
    if (random.Chance(0.3)) server_.Close("raw");
    network_.Settle();
    server_.probe.held.clear();
    server_.streams.talks.clear();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    ASSERT_TRUE(RunUntil([&] { return server_.server().stats().running == 0; }));
    server_.Close("raw");
    EXPECT_TRUE(Echo(server_, "other").ok()) << "another peer was harmed";
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace weft::test
