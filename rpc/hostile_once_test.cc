// Clients that do not keep to the rules of calls that run exactly once: they harm their own calls.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/extras.pb.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/sessions.pb.h"

namespace weft::test {
namespace {

constexpr uint16_t kEcho = 0;
constexpr uint16_t kHold = 2;

class OncePeerTest : public RpcTest {
 protected:
  ~OncePeerTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }

  void Dial(RawPeer& peer) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_reply_bytes(1000);
    hello.set_max_windows(1);
    hello.set_max_extras_bytes(kMaxExtrasBytes);
    peer.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
  }

  // The next reply, of the frame.
  ReplyHeader Ask(const Bytes& frame) {
    peer_.received.clear();
    peer_.Send(frame);
    EXPECT_TRUE(RunUntil([&] { return !peer_.received.empty() || !peer_.why.ok(); }));
    EXPECT_TRUE(peer_.why.ok()) << peer_.why;
    ReplyHeader header;
    ByteSpan body;
    if (peer_.received.empty() || !DecodeReply(peer_.received.back(), &header, &body)) {
      ADD_FAILURE() << "no reply";
      return {};
    }
    body_ = std::string(AsStringView(body));
    return header;
  }

  CallId NextId() { return {0, generation_ += 2}; }

  SessionId OpenSession() {
    EXPECT_EQ(Ask(Request(NextId(), kSessionMethod)).status, 0);
    rpc::SessionReply reply;
    EXPECT_TRUE(reply.ParseFromString(body_));
    EXPECT_EQ(reply.lease_us(), ServerOptions().session_lease_us);
    return {reply.high(), reply.low()};
  }

  Bytes Attempt(const CompletionId& id, uint64_t first_unanswered, uint16_t method = kEcho,
                uint64_t number = 3) {
    const OnceAttempt attempt = {id, first_unanswered};
    return RequestWithExtras(NextId(), method, EncodeExtras({}, {}, &attempt),
                             MakeData(number, 5).SerializeAsString());
  }

  static absl::StatusCode CodeOf(const ReplyHeader& header) {
    return static_cast<absl::StatusCode>(header.status);
  }

  RawPeer peer_;
  std::string body_;
  uint32_t generation_ = 1;
};

class HostileOnceTest : public OncePeerTest {
 protected:
  HostileOnceTest() {
    Start();
    Dial(peer_);
  }
};

TEST_F(HostileOnceTest, ARepeatedAttemptIsAnsweredFromTheRecord) {
  const SessionId session = OpenSession();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Ask(Attempt({session, 1}, 1)).status, 0);
    EXPECT_EQ(body_, MakeData(3, 5).SerializeAsString());
  }
  EXPECT_EQ(service_.echoes, 1);
  EXPECT_EQ(server_->stats().repeated, 2u);
}

TEST_F(HostileOnceTest, AttemptsThatCannotBeAreNotRun) {
  const SessionId session = OpenSession();
  EXPECT_EQ(Ask(Attempt({session, 1}, 1)).status, 0);
  EXPECT_EQ(Ask(Attempt({session, 2}, 2)).status, 0);
  service_.echoes = 0;
  struct Case {
    const char* what;
    Bytes frame;
    absl::StatusCode code;
    const char* text;
  };
  const Case cases[] = {
      {"a session that there is not", Attempt({{1, 2}, 1}, 1), absl::StatusCode::kAborted,
       "the server has no record of what became of this call: its session has expired"},
      {"half of a session's name", Attempt({{session.high, 0}, 3}, 2), absl::StatusCode::kAborted,
       "its session has expired"},
      {"below what it has the answers to", Attempt({session, 1}, 1), absl::StatusCode::kAborted,
       "its client has said that it has the answer"},
      {"another method", Attempt({session, 2}, 2, kHold), absl::StatusCode::kInvalidArgument,
       "the session has a call of this number already, of another method"},
      {"too far ahead", Attempt({session, 2 + kMaxSessionCalls}, 1),
       absl::StatusCode::kResourceExhausted, "the session has 1 calls without an answer"},
      {"no such method", Attempt({session, 3}, 2, 99), absl::StatusCode::kUnimplemented,
       "no method has the number 99"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    const ReplyHeader reply = Ask(test.frame);
    EXPECT_EQ(CodeOf(reply), test.code);
    EXPECT_TRUE(reply.not_run);
    EXPECT_NE(body_.find(test.text), std::string::npos) << body_;
    OnceExtras once;
    Metadata metadata;
    absl::Status details = absl::AbortedError("");
    ASSERT_TRUE(reply.extras.empty() || DecodeExtras(reply.extras, &metadata, &details, &once));
    EXPECT_EQ(once.outcome_unknown, test.code == absl::StatusCode::kAborted);
  }
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(HostileOnceTest, MalformedNamesEndTheirConnection) {
  const auto extras = [](uint64_t sequence, uint64_t first_unanswered, bool unknown = false) {
    rpc::Extras all;
    all.mutable_once()->set_session_high(1);
    all.mutable_once()->set_sequence(sequence);
    all.mutable_once()->set_first_unanswered(first_unanswered);
    all.set_outcome_unknown(unknown);
    return all.SerializeAsString();
  };
  struct Case {
    const char* what;
    Bytes frame;
  };
  Bytes one_way = RequestWithExtras({0, 0}, kEcho, extras(1, 1));
  one_way[10] = std::byte{static_cast<uint8_t>(CallFrameKind::kOneWay)};
  const Case cases[] = {
      {"the number 0", RequestWithExtras({0, 1}, kEcho, extras(0, 0))},
      {"all are answered, from 0", RequestWithExtras({0, 1}, kEcho, extras(1, 0))},
      {"it is answered itself", RequestWithExtras({0, 1}, kEcho, extras(1, 2))},
      {"an unknown outcome in a request", RequestWithExtras({0, 1}, kEcho, extras(1, 1, true))},
      {"a one-way message", one_way},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    RawPeer peer;
    Dial(peer);
    peer.Send(test.frame);
    ASSERT_TRUE(RunUntil([&] { return !peer.why.ok(); }));
    EXPECT_NE(peer.why.message().find("malformed frame"), absl::string_view::npos) << peer.why;
  }
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
}

TEST_F(HostileOnceTest, RequestsForSessionsThatMakeNoSenseAreRefused) {
  EXPECT_EQ(CodeOf(Ask(Request(NextId(), kSessionMethod, "\xFF\xFF"))),
            absl::StatusCode::kInvalidArgument);
  rpc::SessionRequest renew;
  renew.set_high(5);
  EXPECT_EQ(CodeOf(Ask(Request(NextId(), kSessionMethod, renew.SerializeAsString()))),
            absl::StatusCode::kAborted);
  const SessionId session = OpenSession();
  renew.set_high(session.high);
  renew.set_low(session.low);
  EXPECT_EQ(Ask(Request(NextId(), kSessionMethod, renew.SerializeAsString())).status, 0);
  EXPECT_EQ(server_->stats().sessions, 1u);
}

TEST_F(HostileOnceTest, ACallThatIsGivenUpIsCancelledIfItRuns) {
  const SessionId session = OpenSession();
  EXPECT_EQ(Ask(Attempt({session, 1}, 1)).status, 0);
  peer_.Send(Attempt({session, 2}, 1, kHold));
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  rpc::SessionRequest request;
  request.set_high(session.high);
  request.set_low(session.low);
  const auto give_up = [&](const rpc::SessionRequest& what) {
    return CodeOf(Ask(Request({1, generation_ += 2}, kSessionMethod, what.SerializeAsString())));
  };
  // One that has ended, those that there are not, and too many of them.
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{1}, uint64_t{3}, ~uint64_t{0}}) {
    request.add_given_up(sequence);
  }
  EXPECT_EQ(give_up(request), absl::StatusCode::kOk);
  rpc::SessionRequest large = request;
  for (uint64_t i = 0; i < kMaxSessionCalls; ++i) large.add_given_up(2);
  EXPECT_EQ(give_up(large), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(body_.find("gives up 4100 calls at once; 4096 are allowed"), std::string::npos);
  // Of another session, or of a new one.
  rpc::SessionRequest other = request;
  other.add_given_up(2);
  other.set_low(0);
  EXPECT_EQ(give_up(other), absl::StatusCode::kAborted);
  other.set_high(0);
  EXPECT_EQ(give_up(other), absl::StatusCode::kOk);
  EXPECT_FALSE(service_.held[0].context().cancelled());
  // Itself, twice.
  request.add_given_up(2);
  request.add_given_up(2);
  EXPECT_EQ(give_up(request), absl::StatusCode::kOk);
  EXPECT_TRUE(service_.held[0].context().cancelled());
  service_.held.clear();
  network_.Settle();
  EXPECT_EQ(Ask(Attempt({session, 1}, 1)).status, 0) << "its record is there still";
}

TEST_F(HostileOnceTest, ACallThatLendsMemoryHasNoName) {
  const SessionId session = OpenSession();
  const OnceAttempt attempt = {{session, 1}, 1};
  const std::string extras = EncodeExtras({}, {}, &attempt);
  const Bytes with_extras = RequestWithExtras(NextId(), kEcho, extras);
  Bytes frame = RequestWithWindows({0, generation_}, kEcho, {{{1, 0, 8}, kMayRead}});
  frame[11] |= std::byte{0x80};  // it has both
  frame.insert(frame.end(), with_extras.begin() + kCallHeaderBytes, with_extras.end());
  EXPECT_EQ(CodeOf(Ask(frame)), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(body_.find("lends memory"), std::string::npos) << body_;
}

TEST_F(HostileOnceTest, TheConnectionOfAWaitingAttemptMayEndBeforeItsHandler) {
  const SessionId session = OpenSession();
  peer_.Send(Attempt({session, 1}, 1, kHold));
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  RawPeer other;
  Dial(other);
  other.Send(Attempt({session, 1}, 1, kHold));
  ASSERT_TRUE(RunUntil([&] { return server_->stats().repeated == 1; }));
  other.connection->Close("done");
  network_.Settle();
  EXPECT_EQ(service_.held.size(), 1u);
  EXPECT_FALSE(service_.held.front().context().cancelled());
  service_.held.clear();
  ASSERT_TRUE(RunUntil([&] { return peer_.received.size() == 2; }));
  EXPECT_EQ(server_->stats().running, 0u);
}

// Whoever has the name of a session of another tenant has nothing.
TEST_F(OncePeerTest, ASessionIsItsTenantsAlone) {
  uint32_t tenant = 1;
  ServerOptions options;
  options.tenant_of = [&tenant](const PathInfo&) { return tenant; };
  Start({}, options);
  Dial(peer_);
  const SessionId session = OpenSession();
  EXPECT_EQ(Ask(Attempt({session, 1}, 1)).status, 0);
  tenant = 2;
  RawPeer other;
  Dial(other);
  other.Send(Attempt({session, 1}, 1));
  network_.Settle();
  ASSERT_EQ(other.received.size(), 1u);
  ReplyHeader header;
  ByteSpan body;
  ASSERT_TRUE(DecodeReply(other.received[0], &header, &body));
  EXPECT_EQ(CodeOf(header), absl::StatusCode::kAborted);
  other.connection->Close("done");
  network_.Settle();
  // That of a connection stays what it was.
  EXPECT_EQ(Ask(Attempt({session, 1}, 1)).status, 0);
  EXPECT_EQ(service_.echoes, 1);
}

}  // namespace
}  // namespace weft::test
