// Hostile clients of calls that run exactly once, and of attachments.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "core/strings.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/memory_store.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/sessions.pb.h"

namespace weft::test {
namespace {

constexpr uint16_t kEcho = 0;
constexpr uint16_t kHold = 2;
constexpr size_t kMiB = size_t{1} << 20;

class HostileOnceAttackTest : public RpcTest {
 protected:
  // False: it was refused.
  bool TryDial(RawPeer& peer) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(64);
    hello.set_max_reply_bytes(1000);
    hello.set_max_windows(1);
    hello.set_max_extras_bytes(kMaxExtrasBytes);
    hello.set_takes_attachments(true);
    peer.DialWith(client().transport(), hello);
    EXPECT_TRUE(RunUntil([&] { return peer.connection != nullptr || !peer.why.ok(); }));
    return peer.connection != nullptr;
  }
  void Dial(RawPeer& peer) { ASSERT_TRUE(TryDial(peer)) << peer.why; }
  // The answer to the frame; of the other kinds than OK its text.
  absl::Status Ask(RawPeer& peer, const Bytes& frame, rpc::SessionReply* reply = nullptr) {
    peer.received.clear();
    peer.Send(frame);
    EXPECT_TRUE(RunUntil([&] { return !peer.received.empty(); }));
    ReplyHeader header;
    ByteSpan body;
    EXPECT_TRUE(DecodeReply(peer.received.back(), &header, &body));
    if (header.status != 0) {
      return absl::Status(static_cast<absl::StatusCode>(header.status), ToAbsl(AsStringView(body)));
    }
    if (reply != nullptr) {
      EXPECT_TRUE(reply->ParseFromArray(body.data(), static_cast<int>(body.size())));
    }
    return absl::OkStatus();
  }
  absl::Status AskForSession(RawPeer& peer, SessionId* session = nullptr) {
    rpc::SessionReply reply;
    const absl::Status status = Ask(peer, Request({0, generation_ += 2}, kSessionMethod), &reply);
    if (session != nullptr) *session = {reply.high(), reply.low()};
    return status;
  }
  SessionId OpenSession(RawPeer& peer) {
    SessionId session;
    EXPECT_EQ(AskForSession(peer, &session), absl::OkStatus());
    return session;
  }
  // How many sessions a connection gets.
  int OpenAllSessions(RawPeer& peer) {
    int count = 0;
    while (AskForSession(peer).ok() && count < 1000) ++count;
    return count;
  }
  static ChannelOptions Once() {
    ChannelOptions options;
    options.retry.max_attempts = 2;
    options.retry.exactly_once = true;
    return options;
  }
  absl::Status CallOnce() {
    Failure request;  // none: OK
    Data reply;
    return stub_->Fail(request, &reply);
  }
  Bytes Attempt(uint32_t slot, const CompletionId& id, uint16_t method) {
    const OnceAttempt attempt = {id, 1};
    return RequestWithExtras({slot, generation_ += 2}, method, EncodeExtras({}, {}, &attempt),
                             MakeData(3, 5).SerializeAsString());
  }
  // Calls that end at once, in four sessions. Why there is no room for more.
  absl::Status FillRecords(RawPeer& peer) {
    absl::Status refused;
    for (int i = 0; i < 4; ++i) {
      const SessionId session = OpenSession(peer);
      refused = absl::OkStatus();
      for (uint64_t sequence = 1; sequence < 100 && refused.ok(); ++sequence) {
        refused = Ask(peer, Attempt(0, {session, sequence}, kEcho));
      }
    }
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    return refused;
  }
  // Calls that run while there is room for them, and whose replies have 128 KiB.
  void LeaveLargeReplies(RawPeer& peer) {
    const SessionId session = OpenSession(peer);
    for (uint32_t slot = 1; slot <= 8; ++slot) {
      const OnceAttempt attempt = {{session, slot}, 1};
      peer.Send(RequestWithExtras({slot, generation_ += 2}, kHold, EncodeExtras({}, {}, &attempt),
                                  MakeData(3, 16 << 10).SerializeAsString()));
    }
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 8; }));
    while (!service_.held.empty()) service_.Release();
    network_.Settle();
    EXPECT_GT(server_->stats().record_bytes, 128u << 10);
    EXPECT_TRUE(absl::IsResourceExhausted(Ask(peer, Attempt(0, {session, 9}, kEcho))));
  }
  void ExpectServedOnceAt(const std::string& node) {
    const auto channel = Channel::Open(CoreOf(network_.Node(node)), "sim:server", Once());
    ASSERT_TRUE(channel.ok()) << channel.status();
    Data reply;
    EXPECT_EQ(Probe::Stub(**channel).Fail(Failure(), &reply), absl::OkStatus()) << node;
  }
  uint32_t generation_ = 1;
};

// A client had more handlers running than its connection allows, by losing connections.
TEST_F(HostileOnceAttackTest, LostConnectionsDoNotLiftTheBoundOfRunningCalls) {
  ServerOptions options;
  options.max_outstanding_calls = 4;
  options.max_connections = 2;
  Start({}, options);
  channel_.reset();
  stub_.reset();
  uint64_t sequence = 0;
  SessionId session;
  for (int i = 0; i < 50; ++i) {
    RawPeer peer;
    if (!TryDial(peer)) continue;  // too many have left their calls behind
    if (i == 0) session = OpenSession(peer);
    for (uint32_t slot = 0; slot < 4; ++slot) {
      peer.Send(Attempt(slot, {session, ++sequence}, kHold));
    }
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == sequence; }));
    peer.connection->Close("I come again");
    network_.Settle();
  }
  int wanted = 0;
  for (const auto& call : service_.held) wanted += !call.context().cancelled();
  EXPECT_LE(wanted, 2 * 4 * 2);
  EXPECT_LE(service_.held.size(), 2u * 4 * 2);
  service_.held.clear();
  network_.Settle();
}

// One connection could open all sessions for a whole lease: no other client got one.
TEST_F(HostileOnceAttackTest, OneConnectionLeavesSessionsToTheOthers) {
  ServerOptions options;
  options.max_sessions = 100;
  Start(Once(), options);
  RawPeer peer;
  Dial(peer);
  EXPECT_EQ(OpenAllSessions(peer), static_cast<int>(kMaxConnectionSessions));
  const absl::Status refused = AskForSession(peer);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("this connection has opened 8 sessions that have not ended"),
            absl::string_view::npos)
      << refused;
  EXPECT_EQ(CallOnce(), absl::OkStatus());
  // They end, and it may have others.
  network_.RunFor(2 * options.session_lease_us * kNsPerUs);
  EXPECT_EQ(OpenAllSessions(peer), static_cast<int>(kMaxConnectionSessions));
  peer.connection->Close("done");
  network_.Settle();
}

// So could one that came again and again. Where the server knows whose it is, that holds too.
TEST_F(HostileOnceAttackTest, OneTenantLeavesSessionsToTheOthers) {
  ServerOptions options;
  options.max_sessions = 31;
  uint32_t tenant = 1;
  options.tenant_of = [&](const PathInfo&) { return tenant; };
  Start({}, options);
  network_.Settle();
  int opened = 0;
  for (int i = 0; i < 10; ++i) {
    RawPeer peer;
    Dial(peer);
    opened += OpenAllSessions(peer);
    peer.connection->Close("I come again");
    network_.Settle();
  }
  EXPECT_EQ(opened, 16);
  EXPECT_EQ(server_->stats().sessions, 16u);
  tenant = 2;
  OpenChannel(Once());
  EXPECT_EQ(CallOnce(), absl::OkStatus());
}

// With two sessions a client had all records, though one alone has half of them at most.
TEST_F(HostileOnceAttackTest, OneTenantLeavesRecordsToTheOthers) {
  ServerOptions options;
  options.max_record_bytes = 64 << 10;
  uint32_t tenant = 1;
  options.tenant_of = [&](const PathInfo&) { return tenant; };
  Start({}, options);
  RawPeer peer;
  Dial(peer);
  const absl::Status refused = FillRecords(peer);
  EXPECT_NE(refused.message().find("the tenant has records of"), absl::string_view::npos)
      << refused;
  EXPECT_LE(server_->stats().record_bytes, options.max_record_bytes / 2 + 100);
  tenant = 2;
  OpenChannel(Once());
  EXPECT_EQ(CallOnce(), absl::OkStatus());
  peer.connection->Close("done");
  network_.Settle();
}

// Where the server tells no tenants apart a client had all records by two sessions all the same.
TEST_F(HostileOnceAttackTest, SessionsOfOneClientLeaveRecordsToTheOthers) {
  ServerOptions options;
  options.max_record_bytes = 64 << 10;
  Start({}, options);
  RawPeer peer;
  Dial(peer);
  const absl::Status refused = FillRecords(peer);
  EXPECT_NE(refused.message().find("is 65536, an eighth of it for clients that have less"),
            absl::string_view::npos)
      << refused;
  EXPECT_LE(server_->stats().record_bytes, options.max_record_bytes / 8 * 7 + 100);
  EXPECT_GT(server_->stats().record_bytes, options.max_record_bytes / 8 * 6)
      << "what is kept is an eighth, and no more";
  ExpectServedOnceAt("other");
  peer.connection->Close("done");
  network_.Settle();
}

// So did one by the replies of calls that ran already, which always have room.
TEST_F(HostileOnceAttackTest, RepliesOfAClientsRunningCallsTakeNoRecordsOfTheOthers) {
  ServerOptions options;
  options.max_record_bytes = 64 << 10;
  Start({}, options);
  RawPeer peer;
  Dial(peer);
  LeaveLargeReplies(peer);
  ExpectServedOnceAt("other");
  peer.connection->Close("done");
  network_.Settle();
}

// The replies of calls that run already always have room; by them a tenant had all records all the
// same, and others none.
TEST_F(HostileOnceAttackTest, RepliesOfATenantsRunningCallsTakeNoRecordsOfTheOthers) {
  ServerOptions options;
  options.max_record_bytes = 64 << 10;
  uint32_t tenant = 1;
  options.tenant_of = [&](const PathInfo&) { return tenant; };
  Start({}, options);
  RawPeer peer;
  Dial(peer);
  LeaveLargeReplies(peer);
  tenant = 2;
  OpenChannel(Once());
  EXPECT_EQ(CallOnce(), absl::OkStatus());
  peer.connection->Close("done");
  network_.Settle();
}

// Outcomes from before a restart were taken into memory, however many bytes they had.
TEST_F(HostileOnceAttackTest, OutcomesFromBeforeARestartStayInTheStore) {
  MemoryStore store;
  const SessionId session = {7, 9};
  store.sessions[{7, 9}] = {session, 0};
  for (uint64_t i = 1; i <= 50; ++i) {
    store.outcomes[{7, 9, i}] = {absl::NotFoundError(std::string(1 << 20, 'x')), ""};
  }
  ServerOptions options;
  options.completion_store = &store;
  options.max_record_bytes = 1 << 20;
  options.tenant_of = [](const PathInfo&) { return 0; };
  Start({}, options);
  RawPeer peer;
  Dial(peer);
  for (uint64_t i = 1; i <= 50; ++i) {
    EXPECT_TRUE(absl::IsNotFound(Ask(peer, Attempt(0, {session, i}, kEcho))));
  }
  EXPECT_EQ(server_->stats().record_bytes, 0u);
  EXPECT_EQ(server_->stats().repeated, 50u);
  peer.connection->Close("done");
  network_.Settle();
}

// Small attachments behind large messages kept large buffers, and records kept them for ever.
TEST_F(HostileOnceAttackTest, ARecordOfASmallAttachmentDoesNotKeepALargeBuffer) {
  Start(Once());
  Outcome oldest;
  stub_->Hold(MakeData(1, 10), &oldest.reply, {}, oldest.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  service_.look = [](ServerContext& context) { context.SetReplyAttachment(context.attachment()); };
  for (int i = 0; i < 4; ++i) {
    ClientContext context;
    ASSERT_TRUE(context.SetAttachment(absl::Cord(std::string(16 << 10, 'a'))).ok());
    Failure request;  // none: OK
    request.set_text(std::string(33 * kMiB, 't'));
    Data reply;
    ASSERT_TRUE(stub_->Fail(request, &reply, {.context = &context}).ok());
  }
  // Another client's attachment has to be copied now.
  absl::Cord kept;
  service_.look = [&](ServerContext& context) { kept = context.attachment(); };
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord(std::string(16 * kMiB - 100, 'b'))).ok());
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply, {.context = &context}).ok());
  EXPECT_TRUE(kept.TryFlat().has_value()) << "copied: nothing can be lent any more";
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return oldest.done(); }));
}

// A client of a session from before a restart had more records than a session may have, and the
// server aborted when it ended. (What is in the store is what one session may have left there: the
// outcomes of 5000 to 9095, those below are forgotten.)
TEST_F(HostileOnceAttackTest, ARestoredSessionHasNoMoreRecordsThanAnother) {
  MemoryStore store;
  const SessionId session = {7, 9};
  store.sessions[{7, 9}] = {session, 0};
  for (uint64_t i = 0; i < kMaxSessionCalls; ++i) {
    store.outcomes[{7, 9, 5000 + i}] = {absl::OkStatus(), MakeData(3, 5).SerializeAsString()};
  }
  ServerOptions options;
  options.completion_store = &store;
  uint32_t tenant = 0;
  options.tenant_of = [&](const PathInfo&) { return tenant; };
  Start({}, options);
  RawPeer peer;
  Dial(peer);
  size_t asked = 0;
  const auto ask = [&](uint64_t sequence) {
    peer.Send(Attempt(0, {session, sequence}, kEcho));
    ++asked;
    ASSERT_TRUE(network_.RunUntil([&] { return peer.received.size() == asked; }, kNsPerSec));
  };
  for (uint64_t i = 1; i <= kMaxSessionCalls; ++i) ask(i);
  for (uint64_t i = 0; i < 10; ++i) ask(5000 + i);
  peer.connection->Close("done");
  network_.Settle();
  stub_.reset();
  channel_.reset();
  server_.reset();
}

}  // namespace
}  // namespace weft::test
