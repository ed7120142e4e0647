// What runs around calls at either end, and what a handler's own calls have from the one that it
// serves, on a simulated network.
#include "weft/interceptor.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/client_context.h"
#include "rpc/testing/stream_test.h"
#include "weft/coroutine.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using Log = std::vector<std::string>;

// Writes down what it is told, under its letter.
class Writer final : public ClientInterceptor, public ServerInterceptor {
 public:
  Writer(char letter, Log* log) : letter_(letter), log_(*log) {}

  absl::Status OnStart(OutgoingCall& call) override {
    EXPECT_EQ(call.data(), nullptr);
    call.data() = this;
    if (add) {
      EXPECT_TRUE(call.AddMetadata("from", std::string(1, letter_)).ok());
    }
    return Started(Name(call));
  }
  void OnEnd(OutgoingCall& call, const absl::Status& status) override {
    EXPECT_EQ(call.data(), this);
    const std::string* const reply = call.reply_metadata().Find("reply");
    Ended(Name(call), status, reply == nullptr ? "" : " " + *reply);
  }
  absl::Status OnStart(IncomingCall& call) override {
    EXPECT_EQ(call.data(), nullptr);
    call.data() = this;
    return Started(Name(call));
  }
  void OnEnd(IncomingCall& call, const absl::Status& status) override {
    EXPECT_EQ(call.data(), this);
    Ended(Name(call), status, "");
  }

  bool add = false;
  absl::Status refuse;
  int started = 0;
  int ended = 0;

 private:
  template <class Call>
  static std::string Name(const Call& call) {
    return std::string(call.service()) + "/" + std::string(call.method());
  }
  absl::Status Started(const std::string& name) {
    log_.push_back(std::string(1, letter_) + " starts " + name);
    if (refuse.ok()) ++started;
    return refuse;
  }
  void Ended(const std::string& name, const absl::Status& status, const std::string& more) {
    ++ended;
    log_.push_back(std::string(1, letter_) + " ends " + name + " " +
                   absl::StatusCodeToString(status.code()) + more);
  }

  const char letter_;
  Log& log_;
};

class InterceptorTest : public StreamTest {
 protected:
  ~InterceptorTest() override {
    chat_.reset();
    served_.clear();
    stub_.reset();
    channel_.reset();
    server_.reset();
    next_stub_.reset();
    next_channel_.reset();
    next_server_.reset();
  }

  void StartIntercepted() {
    ChannelOptions channel;
    channel.interceptors = {&a_, &b_};
    ServerOptions server;
    server.interceptors = {&c_, &d_};
    StartStreams(channel, server);
  }
  void ExpectBalance() {
    for (const Writer* writer : {&a_, &b_, &c_, &d_}) EXPECT_EQ(writer->started, writer->ended);
  }

  Log log_;
  Writer a_{'a', &log_};
  Writer b_{'b', &log_};
  Writer c_{'c', &log_};
  Writer d_{'d', &log_};
  // A server that another one's handlers ask.
  ProbeService next_service_;
  std::unique_ptr<Server> next_server_;
  std::unique_ptr<Channel> next_channel_;
  std::optional<Probe::Stub> next_stub_;
};

TEST_F(InterceptorTest, TheyStartInOrderAndEndInTheOpposite) {
  StartIntercepted();
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
  EXPECT_EQ(log_, (Log{"a starts weft.test.Probe/Echo", "b starts weft.test.Probe/Echo",
                       "c starts weft.test.Probe/Echo", "d starts weft.test.Probe/Echo",
                       "d ends weft.test.Probe/Echo OK", "c ends weft.test.Probe/Echo OK",
                       "b ends weft.test.Probe/Echo OK", "a ends weft.test.Probe/Echo OK"}));
}

TEST_F(InterceptorTest, EveryFormOfACallComesByThem) {
  StartIntercepted();
  Data reply;
  Failure failure;
  failure.set_code(static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_TRUE(absl::IsAborted(stub_->Fail(failure, &reply)));
  EXPECT_EQ(log_.back(), "a ends weft.test.Probe/Fail ABORTED");

  Outcome outcome;
  stub_->Echo(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(a_.ended, 2);

  const auto call = [](const Probe::Stub& stub) -> Task<absl::Status> {
    const Data request = MakeData(1, 10);
    Data answer;
    co_return co_await stub.CoEcho(request, &answer);
  };
  std::optional<absl::Status> status;
  weft::Start(call(*stub_), [&](absl::Status ended) { status = std::move(ended); });
  ASSERT_TRUE(RunUntil([&] { return status.has_value(); }));
  EXPECT_TRUE(status->ok()) << *status;
  EXPECT_EQ(d_.ended, 3);

  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  EXPECT_EQ(talk.TryWrite(MakeData(1, 10)), StreamResult::kDone);
  EXPECT_EQ(Read(served), "1");
  EXPECT_EQ(log_.back(), "d starts weft.test.Streams/Talk");
  served.Finish(absl::ResourceExhaustedError("enough"));
  EXPECT_TRUE(absl::IsResourceExhausted(EndOf(talk)));
  EXPECT_EQ(log_.back(), "a ends weft.test.Streams/Talk RESOURCE_EXHAUSTED");
  ExpectBalance();
  EXPECT_EQ(a_.ended, 4);
}

TEST_F(InterceptorTest, MetadataIsAddedAndSeen) {
  StartIntercepted();
  a_.add = b_.add = true;
  std::string seen;
  service_.look = [&](ServerContext& context) {
    for (const Metadata::Entry& entry : context.metadata()) seen += entry.key + entry.value + " ";
    EXPECT_TRUE(context.AddReplyMetadata("reply", "thanks").ok());
  };
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
  EXPECT_EQ(seen, "froma fromb ");
  EXPECT_EQ(log_.back(), "a ends weft.test.Probe/Echo OK thanks");

  seen.clear();
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("user", "anna").ok());
  ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply, {.context = &context}).ok());
  EXPECT_EQ(seen, "useranna froma fromb ");
  ASSERT_NE(context.reply_metadata().Find("reply"), nullptr);
}

TEST_F(InterceptorTest, AClientsRefusalKeepsTheCallHere) {
  StartIntercepted();
  b_.refuse = absl::UnauthenticatedError("no token");
  a_.add = true;
  Data reply;
  const absl::Status status = stub_->Echo(MakeData(1, 10), &reply);
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_EQ(log_, (Log{"a starts weft.test.Probe/Echo", "b starts weft.test.Probe/Echo",
                       "a ends weft.test.Probe/Echo UNAUTHENTICATED"}));
  EXPECT_EQ(server_->stats().requests, 0u);

  Outcome outcome;
  stub_->Echo(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  EXPECT_FALSE(outcome.done()) << "not inside";
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsUnauthenticated(*outcome.status));
  Talk talk = chat_->Talk();
  EXPECT_TRUE(absl::IsUnauthenticated(EndOf(talk)));
  // A context whose call was refused may be used again.
  ClientContext context;
  EXPECT_FALSE(stub_->Echo(MakeData(1, 10), &reply, {.context = &context}).ok());
  b_.refuse = absl::OkStatus();
  size_t entries = 0;
  service_.look = [&](ServerContext& at_server) { entries = at_server.metadata().size(); };
  EXPECT_TRUE(stub_->Echo(MakeData(1, 10), &reply, {.context = &context}).ok());
  EXPECT_EQ(entries, 1u) << "what interceptors had added to the refused call came again";
  ExpectBalance();
}

TEST_F(InterceptorTest, AServersRefusalKeepsTheHandlerFromRunning) {
  StartIntercepted();
  d_.refuse = absl::PermissionDeniedError("not you");
  Data reply;
  const absl::Status refused = stub_->Echo(MakeData(1, 10), &reply);
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_EQ(refused.message(), "not you");
  EXPECT_EQ(DeliveryOf(refused), Delivery::kNotSent) << "no handler has seen it";
  EXPECT_EQ(service_.echoes, 0);
  EXPECT_EQ(c_.ended, 1);
  EXPECT_EQ(d_.ended, 0);
  Talk talk = chat_->Talk();
  EXPECT_TRUE(absl::IsPermissionDenied(EndOf(talk)));
  EXPECT_TRUE(streams_.talks.empty());
  ExpectBalance();
  EXPECT_EQ(server_->stats().running, 0u);
}

// However a call ends, each interceptor that has started ends once.
TEST_F(InterceptorTest, EveryEndIsTold) {
  StartIntercepted();
  Data reply;
  EXPECT_TRUE(absl::IsDeadlineExceeded(stub_->Hold(MakeData(1, 10), &reply, {.timeout_us = 2000})));
  ClientContext context;
  Outcome cancelled;
  stub_->Hold(MakeData(2, 10), &cancelled.reply, {.context = &context}, cancelled.Callback());
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2; }));
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return cancelled.done(); }));
  Outcome lost;
  stub_->Hold(MakeData(3, 10), &lost.reply, {}, lost.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 3; }));
  talk.Cancel();
  EXPECT_TRUE(absl::IsCancelled(EndOf(talk)));
  { const Talk gone = std::move(talk); }
  served.Finish(absl::OkStatus());
  chat_.reset();
  stub_.reset();
  channel_.reset();
  EXPECT_TRUE(lost.done());
  EXPECT_EQ(a_.started, 4);
  while (!service_.held.empty()) service_.Release();
  ASSERT_TRUE(RunUntil([&] { return server_->stats().running == 0; }));
  EXPECT_EQ(c_.started, 4);
  ExpectBalance();
}

TEST_F(InterceptorTest, MoreThanThereIsRoomForAreRefused) {
  ServerOptions server;
  server.interceptors.assign(kMaxInterceptors + 1, &a_);
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(server_engine(), server).status()));
  ChannelOptions channel;
  channel.interceptors.assign(kMaxInterceptors + 1, &a_);
  EXPECT_TRUE(absl::IsInvalidArgument(Channel::Open(client(), "sim:server", channel).status()));
}

// --- calls on behalf of a call -------------------------------------------------------------------

// Asks the next server, and holds its own call until that has answered.
class Asking final : public Probe::CoService {
 public:
  Task<absl::Status> CoEcho(ServerContext& context, const Data& request, Data* reply) override {
    const std::unique_ptr<ClientContext> own = ClientContext::FromServerContext(context);
    co_return co_await next->CoEcho(request, reply, {.context = own.get()});
  }
  Task<absl::Status> CoHold(ServerContext& context, const Data& request, Data* reply) override {
    const std::unique_ptr<ClientContext> own = ClientContext::FromServerContext(context);
    last = co_await next->CoHold(request, reply, {.context = own.get()});
    ++ended;
    co_return last;
  }
  Probe::Stub* next = nullptr;
  absl::Status last;
  int ended = 0;
};

class ChildContextTest : public InterceptorTest {
 protected:
  ~ChildContextTest() override {
    stub_.reset();
    channel_.reset();
    next_service_.held.clear();
    server_.reset();
  }
  void StartBoth() {
    next_server_ = *Server::Create(CoreOf(network_.Node("next")));
    ASSERT_TRUE(next_server_->AddService(&next_service_).ok());
    ASSERT_TRUE(next_server_->Listen("sim:next").ok());
    ChannelOptions options;
    options.connect_at_once = false;
    next_channel_ = *Channel::Open(server_engine(), "sim:next", options);
    next_stub_.emplace(*next_channel_);
    asking_.next = &*next_stub_;
    server_ = *Server::Create(server_engine());
    ASSERT_TRUE(server_->AddService(&asking_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
    OpenChannel();
  }
  Asking asking_;
};

TEST_F(ChildContextTest, TheTraceIsCarriedOn) {
  StartBoth();
  constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  std::string seen;
  next_service_.look = [&](ServerContext& context) {
    for (const Metadata::Entry& entry : context.metadata()) {
      seen += entry.key + "=" + entry.value + " ";
    }
  };
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("traceparent", kTrace).ok());
  ASSERT_TRUE(context.AddMetadata("tracestate", "vendor=1").ok());
  ASSERT_TRUE(context.AddMetadata("user", "anna").ok());
  Data reply;
  const absl::Status status = stub_->Echo(MakeData(1, 10), &reply, {.context = &context});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, std::string("traceparent=") + kTrace + " tracestate=vendor=1 ");
}

TEST_F(ChildContextTest, TheDeadlineIsTheOneOfTheCall) {
  StartBoth();
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply, {.timeout_us = 5'000'000}).ok());
  EXPECT_LE(next_service_.last_remaining_us, 5'000'000u);
  EXPECT_GT(next_service_.last_remaining_us, 1'000'000u);
  ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
  EXPECT_EQ(next_service_.last_remaining_us, ServerContext::kNoDeadline);

  EXPECT_TRUE(
      absl::IsDeadlineExceeded(stub_->Hold(MakeData(1, 10), &reply, {.timeout_us = 50'000})));
  ASSERT_TRUE(RunUntil([&] { return asking_.ended == 1; }));
  EXPECT_FALSE(asking_.last.ok());
}

TEST_F(ChildContextTest, ACancelReachesTheLastHandler) {
  StartBoth();
  ClientContext context;
  Outcome outcome;
  stub_->Hold(MakeData(1, 10), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return next_service_.held.size() == 1; }));
  EXPECT_FALSE(next_service_.held.front().context().cancelled());
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return next_service_.held.front().context().cancelled(); }));
  ASSERT_TRUE(RunUntil([&] { return asking_.ended == 1; }));
  EXPECT_TRUE(absl::IsCancelled(asking_.last)) << asking_.last;
  next_service_.Release();
}

// The context outlives the handler's call here: its end is no cancel.
TEST_F(ChildContextTest, TheEndOfTheCallCancelsNothing) {
  StartBoth();
  std::unique_ptr<ClientContext> kept;
  Outcome outcome;
  service_.look = [&](ServerContext& context) {
    kept = ClientContext::FromServerContext(context);
    next_stub_->Hold(MakeData(1, 10), &outcome.reply, {.context = kept.get()}, outcome.Callback());
  };
  auto server = *Server::Create(server_engine());
  ASSERT_TRUE(server->AddService(&service_).ok());
  ASSERT_TRUE(server->Listen("sim:server2").ok());
  auto channel = *Channel::Open(client(), "sim:server2");
  Data reply;
  ASSERT_TRUE(Probe::Stub(*channel).Echo(MakeData(1, 10), &reply).ok());
  ASSERT_TRUE(RunUntil([&] { return next_service_.held.size() == 1; }));
  EXPECT_FALSE(next_service_.held.front().context().cancelled());
  next_service_.Release();
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
}

}  // namespace
}  // namespace weft::test
