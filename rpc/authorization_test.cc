// Servers with an authorizer: what is refused, how, to whom, and what it costs. On a simulated
// network, where a client is known by its node's name (PathInfo::peer).
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "core/log.h"
#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/client_context.h"
#include "rpc/server/authorizer.h"
#include "rpc/server/server_interceptor.h"
#include "rpc/testing/memory_store.h"
#include "rpc/testing/once_test.h"
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/raw_peer.h"
#include "weft/status.h"

namespace weft::test {
namespace {

// Permits what the test says: "client Probe/Echo".
class Permits final : public Authorizer {
 public:
  explicit Permits(std::set<std::string> permitted = {}) : permitted_(std::move(permitted)) {}

  Decision Decide(const PathInfo& path, std::string_view service,
                  std::string_view method) override {
    const std::string what =
        StrCat(path.peer, " ", service.substr(service.rfind('.') + 1), "/", method);
    ++asked[what];
    return {permitted_.count(what) > 0, 42};
  }
  uint64_t Generation(uint64_t) override { return generation_; }

  void Change(std::set<std::string> permitted) {
    permitted_ = std::move(permitted);
    ++generation_;
  }

  std::map<std::string, int> asked;

 private:
  std::set<std::string> permitted_;
  uint64_t generation_ = 0;
};

bool Says(const absl::Status& status, std::string_view words) {
  return ToStd(status.message()).find(words) != std::string_view::npos;
}

// That of a server's whose client is not known: no handler has seen the call.
void ExpectDenied(const absl::Status& status, std::string_view method) {
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent) << status;
  EXPECT_EQ(ToStd(status.message()),
            StrCat("the server does not permit method weft.test.", method,
                   " to a client that has not proved who it is (not run)"));
}

class LogLines {
 public:
  LogLines() {
    SetLogSink([this](const LogRecord& record) {
      if (record.text.substr(0, 6) == "audit:") lines.emplace_back(record.text);
    });
  }
  ~LogLines() { SetLogSink({}); }
  size_t Count(std::string_view words) const {
    size_t count = 0;
    for (const std::string& line : lines) count += line.find(words) != std::string::npos;
    return count;
  }
  std::vector<std::string> lines;
};

// "sim:server" serves all test services to "client", and asks `permits_`.
class AuthorizationTest : public testing::Test {
 protected:
  ~AuthorizationTest() override {
    channel_.reset();
    server_.reset();
  }

  void Start(std::set<std::string> permitted, ServerOptions options = {},
             const ChannelOptions& channel = {}) {
    permits_.Change(std::move(permitted));
    options.authorizer = &permits_;
    server_.emplace(network_, "server", "server", options);
    server_->Listen();
    Open(channel);
  }
  void Open(const ChannelOptions& options = {}) {
    auto channel = Channel::Open(network_.Node("client"), "sim:server", options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }

  bool RunUntil(Function<bool()> done) {
    const bool result = network_.RunUntil(std::move(done), 100 * kNsPerSec);
    network_.CheckInvariants();
    return result;
  }
  absl::Status Echo(const CallOptions& options = {}) {
    Outcome outcome;
    Probe::Stub(*channel_).Echo(MakeData(7, 10), &outcome.reply, options, outcome.Callback());
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    return outcome.status.value_or(absl::UnknownError("it has not ended"));
  }
  ServerStats Stats() { return server_->server().stats(); }

  SimNetwork network_{1};
  Permits permits_;
  std::optional<PeerMachine> server_;
  std::unique_ptr<Channel> channel_;
};

// --- calls ---------------------------------------------------------------------------------------

TEST_F(AuthorizationTest, ACallThatIsNotPermittedIsRefusedAndCounted) {
  Start({"client Probe/Make"});
  ExpectDenied(Echo(), "Probe/Echo");
  EXPECT_EQ(server_->probe.echoes, 0);
  Outcome made;
  Probe::Stub(*channel_).Make(Size(), &made.reply, {}, made.Callback());
  ASSERT_TRUE(RunUntil([&] { return made.done(); }));
  EXPECT_EQ(*made.status, absl::OkStatus()) << "on the same connection";
  const ServerStats stats = Stats();
  EXPECT_EQ(stats.denied, 1u);
  EXPECT_EQ(stats.refused, 1u);
  EXPECT_EQ(stats.requests, 2u);
  EXPECT_EQ(stats.replies_failed, 1u);
  EXPECT_EQ(stats.replies_ok, 1u);
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.running_bytes, 0u);
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(AuthorizationTest, WithoutAnAuthorizerNothingIsRefused) {
  server_.emplace(network_, "server", "server");
  server_->Listen();
  Open();
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(Stats().denied, 0u);
}

TEST_F(AuthorizationTest, ARefusalIsNotSentAgain) {
  ChannelOptions retrying;
  retrying.retry.max_attempts = 4;
  Start({}, {}, retrying);
  ExpectDenied(Echo(), "Probe/Echo");
  EXPECT_EQ(Stats().requests, 1u);
}

TEST_F(AuthorizationTest, LargeRequestsAttachmentsAndMetadataAreRefusedAsWell) {
  Start({});
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("user", "admin").ok());
  ASSERT_TRUE(context.SetAttachment(absl::Cord(std::string(300'000, 'a'))).ok());
  ExpectDenied(Echo({.context = &context}), "Probe/Echo");
  Outcome large;
  Probe::Stub(*channel_).Echo(MakeData(1, 1 << 20), &large.reply, {}, large.Callback());
  ASSERT_TRUE(RunUntil([&] { return large.done(); }));
  ExpectDenied(*large.status, "Probe/Echo");
  EXPECT_EQ(Stats().denied, 2u);
  EXPECT_EQ(Stats().running_bytes, 0u);
}

TEST_F(AuthorizationTest, APayloadIsNotFetchedAndItsMemoryComesBack) {
  Start({});
  GuardedMemory memory(4096);
  BulkCall bulk(*channel_);
  Parcel request;
  Parcel reply;
  bulk.Send(memory.all(), request.mutable_data());
  std::optional<absl::Status> ended;
  Payloads::Stub(*channel_).Hold(request, &reply, {.bulk = &bulk},
                                 [&](absl::Status status) { ended = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return ended.has_value(); }));
  ExpectDenied(*ended, "Payloads/Hold");
  EXPECT_EQ(bulk.state(), BulkCall::State::kReclaimed);
  EXPECT_TRUE(server_->payloads.held.empty());
}

// A stranger's bytes were parsed before anybody asked who it is.
TEST_F(AuthorizationTest, ARequestIsRefusedBeforeItIsDecoded) {
  Start({});
  RawPeer peer;
  peer.Dial(CoreOf(network_.Node("client")).transport());
  ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
  peer.Send(Request({0, 1}, /*method=*/0, "\xFF\xFF no protobuf"));
  ASSERT_TRUE(RunUntil([&] { return !peer.received.empty(); }));
  ReplyHeader header;
  ByteSpan body;
  ASSERT_TRUE(DecodeReply(peer.received[0], &header, &body));
  EXPECT_EQ(static_cast<absl::StatusCode>(header.status), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(header.not_run);
  peer.Send(Request({0, 2}, /*method=*/500));
  ASSERT_TRUE(RunUntil([&] { return peer.received.size() == 2; }));
  ASSERT_TRUE(DecodeReply(peer.received[1], &header, &body));
  EXPECT_EQ(static_cast<absl::StatusCode>(header.status), absl::StatusCode::kUnimplemented)
      << "a number that leads nowhere";
  peer.connection->Close("done");
  network_.Settle();
}

TEST_F(AuthorizationTest, InterceptorsSeeNothingOfWhatIsRefused) {
  class Counting final : public ServerInterceptor {
   public:
    absl::Status OnStart(IncomingCall&) override {
      ++started;
      return absl::OkStatus();
    }
    int started = 0;
  } counting;
  ServerOptions options;
  options.interceptors = {&counting};
  Start({"client Probe/Echo"}, options);
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(counting.started, 1);
  permits_.Change({});
  ExpectDenied(Echo(), "Probe/Echo");
  EXPECT_EQ(counting.started, 1);
}

// --- one-way messages and streams ----------------------------------------------------------------

TEST_F(AuthorizationTest, AOneWayMessageThatIsNotPermittedIsDroppedCountedAndLogged) {
  LogLines log;
  Start({"client Signals/Hold"});
  Signals::Stub signals(*channel_);
  ASSERT_EQ(signals.Notify(MakeData(1, 10)), absl::OkStatus());
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("user", "admin").ok());
  ASSERT_EQ(signals.Notify(MakeData(2, 10), {.context = &context}), absl::OkStatus());
  ASSERT_EQ(signals.Hold(MakeData(3, 10)), absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return server_->signals.held.size() == 1; }));
  EXPECT_TRUE(server_->signals.numbers.empty());
  const ServerStats stats = Stats();
  EXPECT_EQ(stats.denied, 2u);
  EXPECT_EQ(stats.one_way_dropped, 2u);
  EXPECT_EQ(stats.one_way, 3u);
  EXPECT_EQ(stats.replies_failed, 0u);
  EXPECT_EQ(stats.running, 1u);
  EXPECT_EQ(log.Count("decision=denied method=weft.test.Signals/Notify"), 2u);
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(AuthorizationTest, AStreamThatIsNotPermittedDoesNotBegin) {
  Start({"client Streams/Count"});
  Streams::Stub streams(*channel_);
  auto talk = streams.Talk();
  std::optional<absl::Status> ended;
  talk.Finish([&](absl::Status status) { ended = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return ended.has_value(); }));
  ExpectDenied(*ended, "Streams/Talk");
  EXPECT_TRUE(server_->streams.talks.empty());
  ended.reset();
  Size size;
  size.set_bytes(0);
  auto count = streams.Count(size);
  count.Finish([&](absl::Status status) { ended = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return ended.has_value(); }));
  EXPECT_EQ(*ended, absl::OkStatus());
  const ServerStats stats = Stats();
  EXPECT_EQ(stats.denied, 1u);
  EXPECT_EQ(stats.refused, 1u);
  EXPECT_EQ(stats.running_bytes, 0u);
}

// --- what is remembered --------------------------------------------------------------------------

TEST_F(AuthorizationTest, EachConnectionAsksOnceForEachMethod) {
  Start({"client Probe/Echo"});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(permits_.asked, (std::map<std::string, int>{{"client Probe/Echo", 1}}));
  Open();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(permits_.asked["client Probe/Echo"], 2);
}

TEST_F(AuthorizationTest, AChangeCountsForTheNextCallOfAConnectionThatThereIs) {
  Start({"client Probe/Echo"});
  EXPECT_EQ(Echo(), absl::OkStatus());
  permits_.Change({});
  for (int i = 0; i < 5; ++i) ExpectDenied(Echo(), "Probe/Echo");
  permits_.Change({"client Probe/Echo"});
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(permits_.asked["client Probe/Echo"], 3) << "refusals are remembered, too";
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(AuthorizationTest, ACallThatRunsGoesOn) {
  Start({"client Probe/Hold"});
  Outcome held;
  Probe::Stub(*channel_).Hold(MakeData(7, 10), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return server_->probe.held.size() == 1; }));
  permits_.Change({});
  ExpectDenied(Echo(), "Probe/Echo");
  server_->probe.Release();
  ASSERT_TRUE(RunUntil([&] { return held.done(); }));
  EXPECT_EQ(*held.status, absl::OkStatus());
}

TEST_F(AuthorizationTest, ClientsAreToldApart) {
  Start({"client Probe/Echo"});
  EXPECT_EQ(Echo(), absl::OkStatus());
  auto other = Channel::Open(network_.Node("mallory"), "sim:server", {});
  ASSERT_TRUE(other.ok());
  Outcome outcome;
  Probe::Stub(**other).Echo(MakeData(7, 10), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  ExpectDenied(*outcome.status, "Probe/Echo");
  EXPECT_EQ(Echo(), absl::OkStatus());
}

// --- the log -------------------------------------------------------------------------------------

TEST_F(AuthorizationTest, RefusalsAreInTheLogUpToABound) {
  LogLines log;
  Start({});
  for (int i = 0; i < 50; ++i) ExpectDenied(Echo(), "Probe/Echo");
  EXPECT_EQ(log.lines.size(), 10u);
  EXPECT_EQ(log.Count("audit: decision=denied method=weft.test.Probe/Echo authentication=none "
                      "identity=\"\" address=\"client\" rule=\"rule 42\" time="),
            10u)
      << log.lines[0];
  network_.RunFor(2 * kNsPerSec);
  ExpectDenied(Echo(), "Probe/Echo");
  EXPECT_EQ(log.Count(" unlogged=40"), 1u);
  EXPECT_EQ(Stats().denied, 51u);
}

TEST_F(AuthorizationTest, PermittedCallsAreInTheLogIfWanted) {
  LogLines log;
  Start({"client Probe/Echo"});
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_TRUE(log.lines.empty());
  channel_.reset();
  server_.reset();
  ServerOptions options;
  options.log_allowed_calls = true;
  Start({"client Probe/Echo"}, options);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(log.lines.size(), 1u) << "the first of a connection";
  EXPECT_EQ(log.Count("audit: decision=allowed method=weft.test.Probe/Echo"), 1u);
  permits_.Change({"client Probe/Echo"});
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(log.lines.size(), 2u) << "it was asked again";
}

// --- peers ---------------------------------------------------------------------------------------

// The side that has dialed serves as well: its peer is a client as every other.
TEST_F(PeerTest, APeersCallsAreCheckedWhicheverSideHasDialed) {
  Permits permits_a({"b1 Probe/Make"});
  Permits permits_b({"a0 Probe/Echo"});
  ServerOptions options;
  options.authorizer = &permits_a;
  PeerMachine& a = Start("a", options);
  options.authorizer = &permits_b;
  PeerMachine& b = Start("b", options);
  a.Open("b");
  b.OpenAt("a", "");
  ASSERT_TRUE(BothReady(a, b));
  EXPECT_EQ(Echo(a, "b"), absl::OkStatus());
  ExpectDenied(Echo(b, "a"), "Probe/Echo");
  EXPECT_EQ(a.probe.echoes, 0);
  EXPECT_EQ(a.server().stats().denied, 1u);
  EXPECT_EQ(b.server().stats().denied, 0u);
  Outcome made;
  Probe::Stub(b.to("a")).Make(Size(), &made.reply, {}, made.Callback());
  ASSERT_TRUE(RunUntil([&] { return made.done(); }));
  EXPECT_EQ(*made.status, absl::OkStatus());
  // Its calls begin anew: so do the answers.
  permits_b.Change({});
  a.Close("b");
  RunFor(50 * kNsPerMs);
  a.Open("b");
  ASSERT_TRUE(BothReady(a, b));
  ExpectDenied(Echo(a, "b"), "Probe/Echo");
}

// --- calls that run exactly once -----------------------------------------------------------------

class AuthorizedOnceTest : public OnceTest {
 protected:
  void StartPermitting(std::set<std::string> permitted, ServerOptions options = {}) {
    permits_.Change(std::move(permitted));
    options.authorizer = &permits_;
    StartServer(options);
  }
  Permits permits_;
};

// A stranger filled the server with sessions that it had no use for.
TEST_F(AuthorizedOnceTest, WhoMayCallNothingOpensNoSession) {
  LogLines log;
  StartPermitting({});
  OpenChannel(Once());
  RetriedOutcome outcome;
  Add(outcome);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_TRUE(Says(status,
                   "the server does not permit any method to a client that has not proved "
                   "who it is, and so no session (not sent)"))
      << status;
  EXPECT_EQ(Stats().sessions, 0u);
  EXPECT_GE(Stats().denied, 1u);
  EXPECT_EQ(log.Count("method=weft.rpc.Sessions/Renew"), Stats().denied);
  EXPECT_TRUE(service_.seen.empty());
}

TEST_F(AuthorizedOnceTest, WhoMayCallOneMethodHasASessionForIt) {
  LogLines log;
  StartPermitting({"client Store/Add"});
  OpenChannel(Once());
  RetriedOutcome outcome;
  Add(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(Stats().sessions, 1u);
  EXPECT_TRUE(log.lines.empty()) << "what was asked for the session's sake is no call";
}

TEST_F(AuthorizedOnceTest, ACallThatIsNotPermittedLeavesNoRecord) {
  StartPermitting({"client Store/Look"});
  OpenChannel(Once());
  RetriedOutcome outcome;
  Add(outcome);
  ExpectDenied(EndOf(outcome), "Store/Add");
  EXPECT_TRUE(service_.seen.empty());
  EXPECT_EQ(Stats().record_bytes, 0u);
}

// It was permitted when it came first, and has a record; its client may not call it any more.
TEST_F(AuthorizedOnceTest, ARecordAnswersOnlyWhoMayCallTheMethod) {
  StartPermitting({"client Store/Add", "client Store/Look"});
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddHeld(outcome);
  Interrupt();
  service_.End(0);
  permits_.Change({"client Store/Look"});
  network_.Heal("client", server_node_);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun) << "the first attempt has";
  EXPECT_EQ(Stats().repeated, 0u);
  EXPECT_EQ(service_.seen.size(), 1u);
}

TEST_F(AuthorizedOnceTest, AStoresOutcomeAnswersOnlyWhoMayCallTheMethod) {
  MemoryStore store;
  ServerOptions options;
  options.completion_store = &store;
  StartPermitting({"client Store/Add"}, options);
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddHeld(outcome);
  store.Commit(*service_.held[0].context().completion_id(), 7,
               {absl::OkStatus(), MakeData(7, 10).SerializeAsString()});
  KillServer();
  StartPermitting({"client Store/Look"}, options);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(Stats().repeated, 0u);
}

}  // namespace
}  // namespace weft::test
