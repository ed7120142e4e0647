// Peers that dial, accept and send as no peer does: each loses its own connection, with words that
// say why, and nothing else happens.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/strings.h"
#include "rpc/peer/served_peer.h"
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_frames.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/sessions.pb.h"

namespace weft::test {
namespace {

Bytes Begin(const std::string& hello = PeerCallingHello().SerializeAsString()) {
  Bytes frame(kCallHeaderBytes + hello.size());
  EncodePeerFrame(PeerFrameKind::kBegin, frame.data());
  std::memcpy(frame.data() + kCallHeaderBytes, hello.data(), hello.size());
  return frame;
}

Bytes OfPeer(PeerFrameKind kind) {
  Bytes frame(kCallHeaderBytes);
  EncodePeerFrame(kind, frame.data());
  return frame;
}
Bytes EndOfCalls() { return OfPeer(PeerFrameKind::kEnd); }
Bytes Ended() { return OfPeer(PeerFrameKind::kEnded); }

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
  // Each frame arrives; the last one ends the connection, for the reason `why`.
  void ExpectEnd(RawPeer& peer, const std::string& why, const std::vector<Bytes>& frames) {
    peer.why = absl::OkStatus();
    for (const Bytes& frame : frames) {
      ASSERT_TRUE(peer.why.ok()) << "earlier than the malformed frame";
      peer.Send(frame);
      network_.Settle();
    }
    ASSERT_TRUE(RunUntil([&] { return !peer.why.ok(); }));
    EXPECT_EQ(peer.why, absl::UnavailableError("the peer closed: " + why));
    EXPECT_TRUE(Echo(server_, "other").ok());
    EXPECT_EQ(server_.to("other").stats().connects, 1u);
  }

  // The answer to a request of the server's own method, in a slot of its own.
  absl::Status AskForSession(const rpc::SessionRequest& request, SessionId* session = nullptr) {
    peer_.received.clear();
    peer_.Send(Request({3, asked_ += 2}, kSessionMethod, request.SerializeAsString()));
    EXPECT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
    ReplyHeader header;
    ByteSpan body;
    EXPECT_TRUE(DecodeReply(peer_.received.back(), &header, &body));
    if (header.status != 0) {
      return absl::Status(static_cast<absl::StatusCode>(header.status), ToAbsl(AsStringView(body)));
    }
    rpc::SessionReply reply;
    EXPECT_TRUE(reply.ParseFromArray(body.data(), static_cast<int>(body.size())));
    if (session != nullptr) *session = {reply.high(), reply.low()};
    return absl::OkStatus();
  }
  bool IsEndedLast() const {
    return !peer_.received.empty() && DecodePeerFrame(PeerFrameKind::kEnded, peer_.received.back());
  }

  PeerMachine& server_;
  PeerMachine& other_;
  RawPeer peer_;
  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  uint32_t asked_ = 1;  // a generation
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
    absl::StatusCode code;
    const char* why;
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr absl::StatusCode kFailed = absl::StatusCode::kFailedPrecondition;
  const Case cases[] = {
      {"no id", [](rpc::PeerHello& hello) { hello.clear_id(); }, kInvalid,
       "the dialing server's id has 0 bytes, or some that are not allowed; 1 to 128 printable "
       "ASCII characters without blanks are"},
      {"an id with a blank", [](rpc::PeerHello& hello) { hello.set_id("r w"); }, kInvalid,
       "the dialing server's id has 3 bytes, or some that are not allowed; 1 to 128 printable "
       "ASCII characters without blanks are"},
      {"an id with a control character", [](rpc::PeerHello& hello) { hello.set_id("r\x1b"); },
       kInvalid,
       "the dialing server's id has 2 bytes, or some that are not allowed; 1 to 128 printable "
       "ASCII characters without blanks are"},
      {"a long id", [](rpc::PeerHello& hello) { hello.set_id(std::string(129, 'r')); }, kInvalid,
       "the dialing server's id has 129 bytes, or some that are not allowed; 1 to 128 printable "
       "ASCII characters without blanks are"},
      {"the server's id", [](rpc::PeerHello& hello) { hello.set_id("server"); }, kInvalid,
       "the id server is this server's own: two servers need two ids"},
      {"another one's wanted", [](rpc::PeerHello& hello) { hello.set_wanted("x"); }, kFailed,
       "this server has another id than the one that was wanted: is the address right?"},
      {"nobody wanted", [](rpc::PeerHello& hello) { hello.clear_wanted(); }, kFailed,
       "this server has another id than the one that was wanted: is the address right?"},
      {"no incarnation", [](rpc::PeerHello& hello) { hello.clear_incarnation(); }, kInvalid,
       "the dialing server tells no incarnation"},
      {"nothing served", [](rpc::PeerHello& hello) { hello.clear_server(); }, kInvalid,
       "the dialing server does not tell what it serves"},
      {"another protocol", [](rpc::PeerHello& hello) { hello.mutable_server()->set_protocol(9); },
       kFailed, "the dialing server speaks version 9 of the call protocol, this server version 1"},
      {"no calls",
       [](rpc::PeerHello& hello) { hello.mutable_server()->set_max_outstanding_calls(0); },
       kInvalid, "what the dialing server tells of its services makes no sense"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    rpc::ClientHello hello = PeerDialingHello("raw", 77);
    test.change(*hello.mutable_peer());
    Dial(hello);
    EXPECT_EQ(peer_.connection, nullptr);
    EXPECT_EQ(peer_.why, absl::Status(test.code, test.why));
    EXPECT_EQ(server_.server().stats().peers, 1u);
  }
}

// Of a peer that has dialed a server without a channel to it.
TEST_F(HostilePeerSessionTest, FramesOfACallerToASideThatDoesNotCall) {
  const struct {
    const char* what;
    const char* why;
    std::vector<Bytes> frames;
  } cases[] = {
      {"a reply", "malformed frame: a reply to a side that does not call", {Reply(kId, 0, 0, "")}},
      {"a release",
       "malformed frame: a reply to a side that does not call",
       {Notice(CallFrameKind::kReleased, kId)}},
      {"a goaway", "malformed frame: a reply to a side that does not call", {Goaway()}},
      {"an end of a stream",
       "malformed frame: a reply to a side that does not call",
       {End(kId, 0, 0)}},
      {"a message to who has not opened",
       "malformed frame: a reply to a side that does not call",
       {Open(kId, kTalk), ToOpener(Message(kId, 0))}},
      {"credit to who has not opened",
       "malformed frame: a reply to a side that does not call",
       {Open(kId, kTalk), ToOpener(Credit(kId, 1, 1))}},
      {"a begin of who has dialed",
       "malformed frame: a begin of calls that have not ended",
       {Begin()}},
      {"a kind that is none",
       "malformed frame: of no kind that peers send",
       {WithByte(Cancel(kId), 10, 16)}},
      {"nothing", "malformed frame: of no kind that peers send", {Bytes()}},
      {"a short frame",
       "malformed frame: of no kind that peers send",
       {Truncated(Cancel(kId), 15)}},
      {"an end with an id",
       "malformed frame: a begin or an end whose fields disagree",
       {WithByte(EndOfCalls(), 0, 1)}},
      {"an end with a number",
       "malformed frame: a begin or an end whose fields disagree",
       {WithByte(EndOfCalls(), 12, 1)}},
      {"an end with a bit",
       "malformed frame: a begin or an end whose fields disagree",
       {WithByte(EndOfCalls(), 11, 1)}},
      {"an answer to no end", "malformed frame: an answer to no end", {Ended()}},
      {"an answer with an id",
       "malformed frame: a begin or an end whose fields disagree",
       {WithByte(Ended(), 4, 1)}},
      {"a generation twice",
       "malformed frame: a call slot's generation that is not new",
       {Request(kId, 0), Request(kId, 0)}},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.what);
    Dial();
    ExpectEnd(peer_, test.why, test.frames);
    if (HasFatalFailure()) return;
  }
}

// An end overtakes nothing: what comes behind it is of nobody who calls.
TEST_F(HostilePeerSessionTest, NothingRunsBehindAnEnd) {
  server_.OpenAt("raw", "");
  const std::string body = MakeData(1, 1).SerializeAsString();
  const std::string no_call = "malformed frame: a call of a side that does not call";
  const struct {
    std::string why;
    Bytes frame;
  } cases[] = {
      {no_call, Request({1, 1}, 0, body)},
      {no_call, Cancel(kId)},
      {no_call, Open(kId, kTalk)},
      {no_call, Message(kId, 0)},
      {no_call, Credit(kId, 1, 1)},
      {"malformed frame: an end of calls that have not begun", EndOfCalls()},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(testing::Message() << "kind " << CallFrameKindOf(test.frame));
    Dial();
    const uint64_t before = server_.server().stats().requests;
    ExpectEnd(peer_, test.why, {Request(kId, 2, body), EndOfCalls(), test.frame});
    if (HasFatalFailure()) return;
    EXPECT_EQ(server_.server().stats().requests, before + 1);
    ASSERT_EQ(server_.probe.held.size(), 1u);
    EXPECT_TRUE(server_.probe.held.front().context().cancelled());
    server_.probe.held.clear();
  }
}

// Who begins again is as new: slots and generations too.
TEST_F(HostilePeerSessionTest, WhoHasEndedMayBeginAgain) {
  server_.OpenAt("raw", "");
  Dial();
  const std::string body = MakeData(1, 1).SerializeAsString();
  for (int i = 0; i < 3; ++i) {
    peer_.received.clear();
    peer_.Send(Request(kId, 0, body));
    peer_.Send(Request({1, 1}, 2, body));
    peer_.Send(EndOfCalls());
    network_.Settle();
    ASSERT_FALSE(peer_.received.empty());
    EXPECT_TRUE(DecodePeerFrame(PeerFrameKind::kEnded, peer_.received.back()));
    EXPECT_GT(peer_.received.back().size(), peer_.connection->eager_bytes());
    peer_.Send(Begin());
    server_.probe.Release();  // nobody hears of it
    network_.Settle();
    EXPECT_TRUE(DecodePeerFrame(PeerFrameKind::kEnded, peer_.received.back()));
  }
  EXPECT_EQ(server_.probe.echoes, 3);
  ExpectEnd(peer_, "malformed frame: a begin of calls that have not ended", {Begin()});
}

// What is bounded for a connection was bounded for each half of it that serves, and a peer got a
// new one by an end and a begin: 8 more sessions each time, until no other client of the server had
// any.
TEST_F(HostilePeerSessionTest, WhoBeginsAgainHasOpenedTheSameSessions) {
  server_.OpenAt("raw", "");
  Dial();
  SessionId last;
  size_t opened = 0;
  for (int i = 0; i < 20; ++i) {
    SessionId session;
    if (AskForSession({}, &session).ok()) {
      last = session;
      ++opened;
    }
    peer_.Send(EndOfCalls());
    peer_.Send(Begin());
    network_.Settle();
  }
  EXPECT_EQ(opened, kMaxConnectionSessions);
  EXPECT_EQ(server_.server().stats().sessions, kMaxConnectionSessions);
  // One that it ends leaves room for another.
  rpc::SessionRequest end;
  end.set_end(true);
  EXPECT_TRUE(absl::IsInvalidArgument(AskForSession(end))) << "an end of no session";
  end.set_high(last.high);
  end.set_low(last.low);
  EXPECT_TRUE(AskForSession(end).ok());
  EXPECT_TRUE(absl::IsAborted(AskForSession(end))) << "it has ended";
  EXPECT_TRUE(AskForSession({}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(AskForSession({})));
  EXPECT_TRUE(Echo(server_, "other").ok());
}

// By the same way it had any number of handlers running, if they did not look whether their calls
// were cancelled.
TEST_F(HostilePeerSessionTest, HandlersThatDoNotEndHoldUpTheAnswerToAnEnd) {
  server_.OpenAt("raw", "");
  Dial();
  const std::string body = MakeData(1, 1).SerializeAsString();
  constexpr uint32_t kCalls = 4;  // that the peer's hello wants at a time
  uint32_t begun = 1;
  for (int i = 0; i < 20; ++i) {
    peer_.received.clear();
    for (uint32_t slot = 0; slot < kCalls; ++slot) peer_.Send(Request({slot, 1}, 2, body));
    peer_.Send(EndOfCalls());
    network_.Settle();
    if (!IsEndedLast()) break;
    peer_.Send(Begin());
    ++begun;
  }
  EXPECT_EQ(begun, ServedPeer::kMostEndedHalves + 1);
  EXPECT_EQ(server_.server().stats().running, kCalls * begun);
  EXPECT_TRUE(Echo(server_, "other").ok());
  // It is answered when those of one begin have ended, and not before.
  for (uint32_t slot = 0; slot < kCalls; ++slot) {
    EXPECT_FALSE(IsEndedLast());
    server_.probe.Release();
    network_.Settle();
  }
  EXPECT_TRUE(IsEndedLast());
  peer_.Send(Begin());
  peer_.Send(Request(kId, 0, body));
  network_.Settle();
  EXPECT_EQ(server_.probe.echoes, 1);
  server_.probe.held.clear();
}

// The answer that is owed is not waited for: a begin before it is one too many.
TEST_F(HostilePeerSessionTest, NobodyBeginsBeforeTheAnswer) {
  server_.OpenAt("raw", "");
  Dial();
  const std::string body = MakeData(1, 1).SerializeAsString();
  for (uint32_t i = 0; i < ServedPeer::kMostEndedHalves; ++i) {
    peer_.Send(Request(kId, 2, body));
    peer_.Send(EndOfCalls());
    network_.Settle();
    peer_.Send(Begin());
  }
  ExpectEnd(peer_, "malformed frame: a begin of calls that have not ended",
            {Request(kId, 2, body), EndOfCalls(), Begin()});
  server_.probe.held.clear();
}

// Of a peer that a server has dialed.
TEST_F(HostilePeerSessionTest, FramesOfWhoWasDialed) {
  const std::string junk = "\xFF\xFF";
  const struct {
    const char* what;
    const char* why;
    std::vector<Bytes> frames;
  } cases[] = {
      {"a request before a begin",
       "malformed frame: a call of a side that does not call",
       {Request(kId, 0)}},
      {"an open before a begin",
       "malformed frame: a call of a side that does not call",
       {Open(kId, kTalk)}},
      {"a cancel before a begin",
       "malformed frame: a call of a side that does not call",
       {Cancel(kId)}},
      {"an end before a begin",
       "malformed frame: an end of calls that have not begun",
       {EndOfCalls()}},
      {"a message of a stream before a begin",
       "malformed frame: a call of a side that does not call",
       {Message(kId, 0)}},
      {"two begins", "malformed frame: a begin of calls that have not ended", {Begin(), Begin()}},
      {"an answer to no end", "malformed frame: an answer to no end", {Ended()}},
      {"a begin with a number",
       "malformed frame: a begin or an end whose fields disagree",
       {WithByte(Begin(), 12, 1)}},
      {"a begin with a slot",
       "malformed frame: a begin or an end whose fields disagree",
       {WithByte(Begin(), 0, 1)}},
      {"a large begin",
       "malformed frame: a begin or an end whose fields disagree",
       {Begin(std::string(kMaxBeginBytes + 1, ' '))}},
      {"a reply to no call", "a reply to no call", {Reply(kId, 0, 0, "")}},
      {"a message to who has opened nothing",
       "a message of a stream that is not open",
       {ToOpener(Message(kId, 0))}},
      {"a bad slot",
       "malformed frame: a call slot that was not agreed on",
       {Begin(), Request({99, 1}, 0)}},
  };
  Accept();
  for (const auto& test : cases) {
    SCOPED_TRACE(test.what);
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
    ExpectEnd(acceptor_.peer, test.why, test.frames);
    if (HasFatalFailure()) return;
  }
  // Hellos that no handshake would take.
  const struct {
    std::string hello;
    const char* why;
  } hellos[] = {
      {junk, "the client's hello cannot be decoded"},
      {"", "the client speaks version 0 of the call protocol, this server version 1"},
  };
  for (const auto& test : hellos) {
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
    ExpectEnd(acceptor_.peer, test.why, {Begin(test.hello)});
    if (HasFatalFailure()) return;
  }
}

// On connections that are no sessions, these frames are none.
TEST_F(HostilePeerSessionTest, APlainClientIsNoPeer) {
  for (const Bytes& frame : {Begin(), EndOfCalls(), Ended(), Reply(kId, 0, 0, "")}) {
    Dial(PeerCallingHello());
    ExpectEnd(peer_, "malformed frame: neither a request nor a cancel", {frame});
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
      switch (random.Uniform(11)) {
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
        case 9:
          frame = Ended();
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
