// Messages to one-way methods on a simulated network: nobody answers them, and no slot is held.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/bulk_call.h"
#include "rpc/client/client_context.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/testing/signal_service.h"
#include "rpc/testing/ticks.h"
#include "weft/coroutine.h"
#include "weft/interceptor.h"
#include "weft/status.h"

namespace weft::test {
namespace {

bool Contains(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

std::vector<uint64_t> NumbersUpTo(uint64_t count) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

class OneWayTest : public RpcTest {
 protected:
  ~OneWayTest() override {
    signals_.held.clear();
    lost_.clear();
    channel_.reset();
    server_.reset();
    killed_servers_.clear();
  }

  void StartSignalServer(const ServerOptions& options = {}) {
    server_ = *Server::Create(server_engine(), options);
    ASSERT_TRUE(server_->AddService(&signals_).ok());
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen("sim:server");
    ASSERT_TRUE(listening.ok()) << listening;
  }
  void OpenSignals(const ChannelOptions& options = {}) {
    OpenChannel(options);
    send_.emplace(*channel_);
  }
  void StartSignals(const ChannelOptions& channel = {}, const ServerOptions& server = {}) {
    StartSignalServer(server);
    OpenSignals(channel);
  }
  void OpenLazily(ChannelOptions options = {}) {
    options.connect_at_once = false;
    OpenSignals(options);
  }

  bool Arrived(size_t count) {
    return RunUntil([this, count] { return signals_.numbers.size() >= count; });
  }
  bool Held(size_t count) {
    return RunUntil([this, count] { return signals_.held.size() >= count; });
  }
  void KillSignalServer() {
    for (SignalService::HeldSignal& signal : signals_.held) lost_.push_back(std::move(signal));
    signals_.held.clear();
    KillServer();
  }

  SignalService signals_;
  std::deque<SignalService::HeldSignal> lost_;
  std::optional<Signals::Stub> send_;
};

// --- the way there -------------------------------------------------------------------------------

TEST_F(OneWayTest, AMessageArrivesOnceAndNothingComesBack) {
  StartSignals();
  ASSERT_EQ(send_->Notify(MakeData(7, 64)), absl::OkStatus());
  EXPECT_EQ(channel_->stats().outstanding, 0u);
  ASSERT_TRUE(Arrived(1));
  network_.Settle();
  EXPECT_EQ(signals_.numbers, std::vector<uint64_t>{7});
  const ServerStats stats = server_->stats();
  EXPECT_EQ(stats.requests, 1u);
  EXPECT_EQ(stats.one_way, 1u);
  EXPECT_EQ(stats.replies_ok + stats.replies_failed, 0u);
  EXPECT_EQ(stats.one_way_failed + stats.one_way_dropped, 0u);
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.running_bytes, 0u);
  EXPECT_EQ(channel_->stats().calls_ok, 1u);
}

TEST_F(OneWayTest, MoreThanCreditsArriveInTheirOrder) {
  ChannelOptions channel;
  channel.link.window_slots = 4;
  ServerOptions server;
  server.link.window_slots = 4;
  StartSignals(channel, server);
  constexpr uint64_t kCount = 500;
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(send_->Notify(MakeData(i, 300)).ok());
  ASSERT_TRUE(Arrived(kCount));
  EXPECT_EQ(signals_.numbers, NumbersUpTo(kCount));
}

TEST_F(OneWayTest, CallsKeepTheirPlaceAmongThem) {
  StartSignals();
  std::vector<size_t> seen;
  service_.look = [&](ServerContext&) { seen.push_back(signals_.numbers.size()); };
  Outcome outcomes[3];
  for (uint64_t i = 0; i < 3; ++i) {
    send_->Notify(MakeData(i, 10), {}, nullptr);
    stub_->Echo(Data(), &outcomes[i].reply, {}, outcomes[i].Callback());
  }
  ASSERT_TRUE(RunUntil([&] { return outcomes[2].done(); }));
  EXPECT_EQ(seen, (std::vector<size_t>{1, 2, 3}));
}

TEST_F(OneWayTest, ALargeMessageArrivesToo) {
  StartSignals();
  ASSERT_TRUE(send_->Notify(MakeData(3, 300'000)).ok());
  ASSERT_TRUE(Arrived(1));
  EXPECT_EQ(signals_.numbers, std::vector<uint64_t>{3});
}

TEST_F(OneWayTest, AnAttachmentArrivesWithIt) {
  StartSignals();
  absl::Cord seen;
  signals_.look = [&seen](ServerContext& context) { seen = context.attachment(); };
  for (const size_t bytes : {size_t{5}, size_t{1} << 20}) {
    ClientContext context;
    const std::string attached(bytes, 'a');
    ASSERT_TRUE(context.SetAttachment(absl::Cord(attached)).ok());
    ASSERT_EQ(send_->Notify(MakeData(7, 10), {.context = &context}), absl::OkStatus());
    ASSERT_TRUE(RunUntil([&] { return seen.size() == bytes; }));
    EXPECT_EQ(seen, attached);
  }
  network_.Settle();
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

TEST_F(OneWayTest, TheyTakeNoSlot) {
  ChannelOptions channel;
  channel.max_outstanding_calls = 1;
  StartSignals(channel);
  Outcome held;
  stub_->Hold(Data(), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(send_->Notify(MakeData(i, 10)).ok());
  ASSERT_TRUE(Arrived(20));
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return held.done(); }));
  EXPECT_TRUE(held.status->ok());
}

TEST_F(OneWayTest, ACallbackComesAfterTheFunctionThatSends) {
  StartSignals();
  Outcome outcome;
  send_->Notify(MakeData(1, 10), {}, outcome.Callback());
  EXPECT_FALSE(outcome.done());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  ASSERT_TRUE(Arrived(1));
}

TEST_F(OneWayTest, InsideACallbackTheBlockingFormIsRefusedAndTheOtherSends) {
  StartSignals();
  absl::Status blocking;
  Outcome outer;
  stub_->Echo(Data(), &outer.reply, {}, [&](const absl::Status&) {
    blocking = send_->Notify(MakeData(1, 10));
    send_->Notify(MakeData(2, 10), {}, outer.Callback());
  });
  ASSERT_TRUE(RunUntil([&] { return outer.done(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(blocking)) << blocking;
  EXPECT_EQ(DeliveryOf(blocking), Delivery::kNotSent);
  ASSERT_TRUE(Arrived(1));
  EXPECT_EQ(signals_.numbers, std::vector<uint64_t>{2});
}

TEST_F(OneWayTest, ACoroutineAwaitsThem) {
  StartSignals();
  const auto send = [](const Signals::Stub& to) -> Task<absl::Status> {
    for (uint64_t i = 0; i < 3; ++i) {
      const absl::Status status = co_await to.CoNotify(MakeData(i, 10));
      if (!status.ok()) co_return status;
    }
    co_return absl::OkStatus();
  };
  EXPECT_EQ(Wait(client(), send(*send_)), absl::OkStatus());
  ASSERT_TRUE(Arrived(3));
  EXPECT_EQ(signals_.numbers, NumbersUpTo(3));
}

// --- structs -------------------------------------------------------------------------------------

BeaconLayout MakeBeacon(uint64_t number) {
  BeaconLayout beacon = {};
  beacon.number = number;
  return beacon;
}

TEST_F(OneWayTest, AStructIsConvertedForAServiceOfMessages) {
  StartSignals();
  ASSERT_EQ(send_->Mark(MakeBeacon(5)), absl::OkStatus());
  Outcome outcome;
  send_->Mark(MakeBeacon(6), {}, outcome.Callback());
  ASSERT_TRUE(Arrived(2));
  EXPECT_EQ(signals_.numbers, (std::vector<uint64_t>{5, 6}));
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
}

TEST_F(OneWayTest, AServiceOfStructsTakesStructsAndMessages) {
  class StructService final : public Signals::LayoutService {
   public:
    absl::Status Mark(ServerContext&, const BeaconLayout& request) override {
      numbers.push_back(request.number);
      return absl::OkStatus();
    }
    std::vector<uint64_t> numbers;
  } structs;
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&structs).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenSignals();
  ASSERT_EQ(send_->Mark(MakeBeacon(5)), absl::OkStatus());
  Beacon message;
  message.set_number(6);
  ASSERT_EQ(send_->Mark(message), absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return structs.numbers.size() == 2; }));
  EXPECT_EQ(structs.numbers, (std::vector<uint64_t>{5, 6}));
}

// --- what keeps one from being sent --------------------------------------------------------------

TEST_F(OneWayTest, WithoutAServerOneFailsAsACallDoes) {
  OpenLazily();
  const absl::Status status = send_->Notify(Data());
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_TRUE(Contains(status, "no server at sim:server")) << status;
}

// An attempt took such a message for a call: the server has no such method that answers.
TEST_F(OneWayTest, OneThatWasNotSentIsSentAgainWhereTheChannelDoesThat) {
  ChannelOptions options;
  options.retry.max_attempts = 4;
  OpenLazily(options);
  Outcome sent;
  send_->Notify(MakeData(3, 10), {}, sent.Callback());
  ASSERT_TRUE(RunUntil([this] { return channel_->stats().connect_failures == 1; }));
  StartSignalServer();
  ASSERT_TRUE(Arrived(1));
  ASSERT_TRUE(RunUntil([&] { return sent.done(); }));
  EXPECT_EQ(sent.status, absl::OkStatus());
  network_.Settle();
  EXPECT_EQ(signals_.numbers, std::vector<uint64_t>{3});
  EXPECT_EQ(channel_->stats().calls_ok, 1u);
  EXPECT_EQ(channel_->stats().retries, 1u);
}

TEST_F(OneWayTest, ALazyChannelConnectsWithItsFirstMessage) {
  StartSignalServer();
  OpenLazily();
  ASSERT_EQ(send_->Notify(MakeData(1, 10)), absl::OkStatus());
  ASSERT_TRUE(Arrived(1));
}

TEST_F(OneWayTest, ThatTheServerIsGoneIsFoundBeforeTheNextIsSent) {
  StartSignals();
  ASSERT_TRUE(send_->Notify(MakeData(1, 10)).ok());
  ASSERT_TRUE(Arrived(1));
  KillSignalServer();
  network_.RunFor(3 * kNsPerSec);
  const absl::Status status = send_->Notify(MakeData(2, 10));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
}

TEST_F(OneWayTest, OneThatWaitsEndsAtItsDeadline) {
  OpenLazily();
  const CallOptions patient = {.timeout_us = 300'000, .wait_for_server = true};
  EXPECT_EQ(send_->Notify(Data(), patient),
            WithDelivery(absl::DeadlineExceededError(
                             "not handed to a connection to sim:server within 300 ms: there was no "
                             "connection (not sent, safe to retry)"),
                         Delivery::kNotSent));
}

TEST_F(OneWayTest, WithoutCreditTheyWaitInTheQueueAndBeyondItFail) {
  ChannelOptions channel;
  channel.max_queued_calls = 10;
  channel.link.window_slots = 4;
  ServerOptions server;
  server.link.window_slots = 4;
  StartSignals(channel, server);
  // Nothing moves meanwhile: no credit comes back.
  std::vector<std::unique_ptr<Outcome>> outcomes;
  const auto send = [&] {
    outcomes.push_back(std::make_unique<Outcome>());
    send_->Notify(MakeData(outcomes.size() - 1, 4000), {}, outcomes.back()->Callback());
  };
  while (channel_->stats().queued < 10) send();
  EXPECT_GT(outcomes.size(), 10u);
  send();
  ASSERT_TRUE(RunUntil([&] { return outcomes.back()->done(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(*outcomes.back()->status)) << *outcomes.back()->status;
  EXPECT_EQ(DeliveryOf(*outcomes.back()->status), Delivery::kNotSent);
  ASSERT_TRUE(Arrived(outcomes.size() - 1));
  EXPECT_EQ(signals_.numbers, NumbersUpTo(outcomes.size() - 1));
  for (size_t i = 0; i + 1 < outcomes.size(); ++i) {
    ASSERT_TRUE(RunUntil([&] { return outcomes[i]->done(); }));
    EXPECT_TRUE(outcomes[i]->status->ok()) << *outcomes[i]->status;
  }
}

TEST_F(OneWayTest, TheServersLimitOfRequestsHolds) {
  ServerOptions server;
  server.max_request_bytes = 1000;
  StartSignals({}, server);
  const absl::Status status = send_->Notify(MakeData(1, 2000));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
}

TEST_F(OneWayTest, TheyLendNoMemory) {
  StartSignals();
  BulkCall bulk(*channel_);
  const absl::Status status = send_->Notify(Data(), {.bulk = &bulk});
  EXPECT_EQ(status, WithDelivery(absl::InvalidArgumentError(
                                     "a one-way message lends no memory: nobody says when the "
                                     "server is done with it (not sent)"),
                                 Delivery::kNotSent));
}

TEST_F(OneWayTest, AContextCancelsOneThatWaits) {
  OpenLazily();
  ClientContext context;
  Outcome outcome;
  send_->Notify(Data(), {.wait_for_server = true, .context = &context}, outcome.Callback());
  network_.RunFor(kNsPerMs);
  EXPECT_FALSE(outcome.done());
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
  EXPECT_EQ(DeliveryOf(*outcome.status), Delivery::kNotSent);
}

TEST_F(OneWayTest, AChannelThatGoesEndsThoseThatWait) {
  OpenLazily();
  Outcome outcome;
  send_->Notify(Data(), {.wait_for_server = true}, outcome.Callback());
  channel_.reset();
  ASSERT_TRUE(outcome.done());
  EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
  EXPECT_EQ(DeliveryOf(*outcome.status), Delivery::kNotSent);
}

// --- who knows the method, and as what -----------------------------------------------------------

// The service as an older or later release has it, where other methods are one-way.
class OtherSignals final : public Service {
 public:
  static void StartAsk(Service&, internal::HandledCall& call) {
    UnaryCall<Data, Data>(call).Finish(absl::OkStatus());
  }
  const ServiceDescriptor& weft_descriptor() const override {
    static constexpr MethodDescriptor kMethods[] = {
        {"Notify", "weft.test.Data", "weft.test.Data", &internal::MakeMessages<Data, Data>,
         &StartAsk},
        {"Ask", "weft.test.Data", "google.protobuf.Empty",
         &internal::MakeMessages<Data, google::protobuf::Empty>, &StartAsk, nullptr,
         MethodKind::kOneWay},
    };
    static constexpr ServiceDescriptor kService = {"weft.test.Signals", kMethods};
    return kService;
  }
};

TEST_F(OneWayTest, WhereBothSidesDisagreeNothingIsSent) {
  OtherSignals other;
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&other).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenSignals();
  EXPECT_EQ(send_->Notify(Data()),
            WithDelivery(absl::UnimplementedError(
                             "method weft.test.Signals.Notify of server sim:server takes no "
                             "one-way messages, which this client wants to send"),
                         Delivery::kNotSent));
  Data reply;
  EXPECT_EQ(send_->Ask(Data(), &reply),
            WithDelivery(absl::UnimplementedError(
                             "method weft.test.Signals.Ask of server sim:server takes one-way "
                             "messages, and this client wants a reply"),
                         Delivery::kNotSent));
  EXPECT_EQ(server_->stats().requests, 0u);
}

// --- at the server -------------------------------------------------------------------------------

TEST_F(OneWayTest, AHandlersErrorIsCountedAndTheConnectionLives) {
  StartSignals();
  signals_.end = absl::AbortedError("no");
  ASSERT_TRUE(send_->Notify(MakeData(1, 10)).ok());
  ASSERT_TRUE(Arrived(1));
  EXPECT_EQ(server_->stats().one_way_failed, 1u);
  EXPECT_EQ(server_->stats().one_way_dropped, 0u);
  Data reply;
  EXPECT_TRUE(send_->Ask(Data(), &reply).ok());
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(OneWayTest, AMethodThatNobodyImplementsDropsItsMessages) {
  StartSignals();
  ASSERT_TRUE(send_->Missing(Data()).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->stats().one_way_dropped == 1; }));
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(OneWayTest, AHandlerThatForgetsItsMessageHasFailed) {
  StartSignals();
  ASSERT_TRUE(send_->Hold(Data()).ok());
  ASSERT_TRUE(Held(1));
  EXPECT_EQ(server_->stats().running, 1u);
  signals_.held.clear();
  EXPECT_EQ(server_->stats().one_way_failed, 1u);
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(OneWayTest, TheRequestStaysUntilTheHandlerIsDone) {
  StartSignals();
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(send_->Hold(MakeData(i, 100)).ok());
  ASSERT_TRUE(Held(5));
  EXPECT_GE(server_->stats().running_bytes, 500u);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(signals_.held.front().request().number(), i);
    EXPECT_EQ(signals_.held.front().request().payload(), MakeData(i, 100).payload());
    signals_.Release();
  }
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

TEST_F(OneWayTest, MoreThanMayRunAreDroppedAndCallsAreNot) {
  ServerOptions server;
  server.max_outstanding_calls = 3;
  StartSignals({}, server);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(send_->Hold(MakeData(i, 10)).ok());
  network_.Settle();
  EXPECT_EQ(signals_.held.size(), 3u);
  EXPECT_EQ(server_->stats().one_way, 5u);
  EXPECT_EQ(server_->stats().one_way_dropped, 2u);
  EXPECT_EQ(server_->stats().running, 3u);
  Data reply;
  EXPECT_TRUE(send_->Ask(Data(), &reply).ok());
  signals_.Release();
  ASSERT_TRUE(send_->Hold(MakeData(9, 10)).ok());
  network_.Settle();
  EXPECT_EQ(signals_.held.back().request().number(), 9u);
}

TEST_F(OneWayTest, MoreBytesThanMayRunAreDropped) {
  ServerOptions server;
  server.max_running_bytes = 1500;
  StartSignals({}, server);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(send_->Hold(MakeData(i, 600)).ok());
  network_.Settle();
  EXPECT_EQ(signals_.held.size(), 2u);
  EXPECT_EQ(server_->stats().one_way_dropped, 1u);
  while (!signals_.held.empty()) signals_.Release();
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

TEST_F(OneWayTest, ADeadlineTravelsAndIsTold) {
  StartSignals();
  int told = 0;
  signals_.look = [&](ServerContext& context) {
    EXPECT_GT(context.remaining_us(), 0u);
    EXPECT_LE(context.remaining_us(), 5'000u);
    if (told == 0) context.OnCancel([&] { ++told; });
  };
  // One that asks to be told, and one that only looks.
  ASSERT_TRUE(send_->Hold(Data(), {.timeout_us = 5'000}).ok());
  ASSERT_TRUE(Held(1));
  signals_.look = nullptr;
  ASSERT_TRUE(send_->Hold(Data(), {.timeout_us = 4'000}).ok());
  ASSERT_TRUE(send_->Hold(Data()).ok());
  ASSERT_TRUE(Held(3));
  network_.RunFor(20 * kNsPerMs);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(signals_.held[0].context().cancelled());
  EXPECT_TRUE(signals_.held[1].context().cancelled());
  EXPECT_FALSE(signals_.held[2].context().cancelled());
  EXPECT_EQ(signals_.held[1].context().remaining_us(), 0u);
  while (!signals_.held.empty()) signals_.Release();
}

TEST_F(OneWayTest, OneThatComesTooLateIsNotRun) {
  class Later final : public Executor {
   public:
    bool Run(Function<void()> task) override {
      tasks.push_back(std::move(task));
      return true;
    }
    std::vector<Function<void()>> tasks;
  } later;
  StartSignals({}, {.executor = &later});
  ASSERT_TRUE(send_->Notify(MakeData(1, 10), {.timeout_us = 2'000}).ok());
  ASSERT_TRUE(send_->Notify(MakeData(2, 10)).ok());
  ASSERT_TRUE(RunUntil([&] { return later.tasks.size() == 2; }));
  network_.RunFor(10 * kNsPerMs);
  for (Function<void()>& task : later.tasks) task();
  network_.Settle();
  EXPECT_EQ(signals_.numbers, std::vector<uint64_t>{2});
  EXPECT_EQ(server_->stats().one_way_dropped, 1u);
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(OneWayTest, AnExecutorThatHasNoRoomDropsThem) {
  class Full final : public Executor {
   public:
    bool Run(Function<void()>) override { return false; }
  } full;
  StartSignals({}, {.executor = &full});
  ASSERT_TRUE(send_->Notify(MakeData(1, 10)).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->stats().one_way_dropped == 1; }));
  EXPECT_EQ(server_->stats().running, 0u);
  EXPECT_TRUE(signals_.numbers.empty());
}

TEST_F(OneWayTest, TheLossOfTheConnectionCancelsThem) {
  StartSignals();
  int told = 0;
  signals_.look = [&](ServerContext& context) { context.OnCancel([&] { ++told; }); };
  ASSERT_TRUE(send_->Hold(Data()).ok());
  ASSERT_TRUE(Held(1));
  signals_.look = nullptr;
  ASSERT_TRUE(send_->Hold(Data()).ok());
  ASSERT_TRUE(Held(2));
  channel_.reset();
  network_.Settle();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(signals_.held[0].context().cancelled());
  EXPECT_TRUE(signals_.held[1].context().cancelled());
  EXPECT_EQ(server_->stats().running, 2u);
  signals_.Release();
  EXPECT_EQ(server_->stats().connections, 1u) << "it stays until its handlers have ended";
  signals_.Release();
  EXPECT_EQ(server_->stats().connections, 0u);
}

// Each ends the next, while the list of those that run is gone through.
TEST_F(OneWayTest, HandlersThatAreToldMayEndThemselvesAndOthers) {
  StartSignals();
  signals_.look = [&](ServerContext& context) {
    context.OnCancel([&] {
      while (!signals_.held.empty()) signals_.Release(absl::CancelledError());
    });
  };
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(send_->Hold(Data(), {.timeout_us = 3'000}).ok());
  ASSERT_TRUE(Held(4));
  network_.RunFor(20 * kNsPerMs);
  EXPECT_TRUE(signals_.held.empty());
  EXPECT_EQ(server_->stats().running, 0u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(send_->Hold(Data()).ok());
  ASSERT_TRUE(Held(4));
  channel_.reset();
  network_.Settle();
  EXPECT_EQ(server_->stats().running, 0u);
  EXPECT_EQ(server_->stats().connections, 0u);
}

TEST_F(OneWayTest, AShutdownWaitsForThoseThatRunAndRunsNoMore) {
  StartSignals();
  ASSERT_TRUE(send_->Hold(MakeData(1, 10)).ok());
  ASSERT_TRUE(Held(1));
  // Within the grace a message comes and is dropped, and then the handler ends.
  const At late(client(), kNsPerMs, [this] { send_->Notify(MakeData(2, 10), {}, nullptr); });
  const At end(server_engine(), 5 * kNsPerMs, [this] {
    EXPECT_FALSE(signals_.held.front().context().cancelled());
    signals_.Release();
  });
  server_->Shutdown(/*grace_us=*/1'000'000);
  EXPECT_TRUE(signals_.held.empty());
  EXPECT_TRUE(signals_.numbers.empty());
  EXPECT_EQ(server_->stats().one_way_dropped, 1u);
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(OneWayTest, ACoroutineHandlesThem) {
  class CoSignals final : public Signals::CoService {
   public:
    Task<absl::Status> CoNotify(ServerContext&, const Data& request) override {
      numbers.push_back(request.number());
      co_return absl::OkStatus();
    }
    absl::Status Missing(ServerContext&, const Data&) override {
      ++plain;
      return absl::OkStatus();
    }
    std::vector<uint64_t> numbers;
    int plain = 0;
  } signals;
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&signals).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenSignals();
  ASSERT_TRUE(send_->Notify(MakeData(4, 10)).ok());
  ASSERT_TRUE(send_->Missing(Data()).ok());
  ASSERT_TRUE(RunUntil([&] { return signals.plain == 1; }));
  EXPECT_EQ(signals.numbers, std::vector<uint64_t>{4});
  EXPECT_EQ(server_->stats().running, 0u);
}

// --- behind writes -------------------------------------------------------------------------------

// A batch of writes that ends in a notification: the handler finds the bytes, and the writer hears
// when they are there.
TEST_F(OneWayTest, AHandlerFindsWhatWasWrittenBeforeItsMessage) {
  StartSignals();
  alignas(64) std::array<std::byte, 4096> owned = {};
  auto exported = *server_->Export(owned, {.rights = kAllRights});
  for (const bool lease_is_there : {false, true}) {
    auto memory =
        *RemoteMemory::Open(*channel_, exported->handle(), {.resolve_at_once = lease_is_there});
    auto buffer = *channel_->AllocateBuffer(owned.size());
    int found = 0;
    signals_.look = [&](ServerContext&) {
      found += std::memcmp(owned.data(), buffer->bytes().data(), owned.size()) == 0;
    };
    for (int round = 1; round <= 10; ++round) {
      std::memset(buffer->bytes().data(), round + 100 * lease_is_there, owned.size());
      const RemotePiece pieces[] = {{0, buffer->slice(0, 2048)}, {2048, buffer->slice(2048, 2048)}};
      Outcome written;
      const int before = found;
      memory->WriteAcknowledged(pieces, written.Callback());
      send_->Notify(Data(), {}, nullptr);
      ASSERT_TRUE(RunUntil([&] { return written.done(); }));
      EXPECT_TRUE(written.status->ok()) << *written.status;
      network_.Settle();
      ASSERT_EQ(found, before + 1) << round;
    }
    signals_.look = nullptr;
  }
}

// --- metadata and interceptors -------------------------------------------------------------------

TEST_F(OneWayTest, MetadataArrives) {
  StartSignals();
  std::string user;
  signals_.look = [&](ServerContext& context) { user = *context.metadata().Find("user"); };
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("user", "anna").ok());
  ASSERT_EQ(send_->Notify(MakeData(1, 10), {.context = &context}), absl::OkStatus());
  ASSERT_TRUE(Arrived(1));
  EXPECT_EQ(user, "anna");
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

TEST_F(OneWayTest, InterceptorsRunAtBothEnds) {
  class Log final : public ClientInterceptor, public ServerInterceptor {
   public:
    absl::Status OnStart(OutgoingCall& call) override {
      lines.push_back("client starts " + std::string(call.method()));
      return absl::OkStatus();
    }
    void OnEnd(OutgoingCall&, const absl::Status& status) override {
      lines.push_back("client ends " + std::string(status.ok() ? "well" : "badly"));
    }
    absl::Status OnStart(IncomingCall& call) override {
      lines.push_back("server starts " + std::string(call.method()));
      return refuse;
    }
    void OnEnd(IncomingCall&, const absl::Status& status) override {
      lines.push_back("server ends " + std::string(status.ok() ? "well" : "badly"));
    }
    absl::Status refuse;
    std::vector<std::string> lines;
  } log;
  ChannelOptions channel;
  channel.interceptors = {&log};
  ServerOptions server;
  server.interceptors = {&log};
  StartSignals(channel, server);
  signals_.end = absl::AbortedError("no");
  ASSERT_TRUE(send_->Notify(MakeData(1, 10)).ok());
  ASSERT_TRUE(Arrived(1));
  EXPECT_EQ(log.lines, (std::vector<std::string>{"client starts Notify", "client ends well",
                                                 "server starts Notify", "server ends badly"}));
  log.refuse = absl::PermissionDeniedError("who are you?");
  ASSERT_TRUE(send_->Notify(MakeData(2, 10)).ok());
  network_.Settle();
  EXPECT_EQ(signals_.numbers.size(), 1u);
  EXPECT_EQ(server_->stats().one_way_failed, 1u);
  EXPECT_EQ(server_->stats().one_way_dropped, 1u) << "no handler ran";
  EXPECT_EQ(server_->stats().running, 0u);
}

}  // namespace
}  // namespace weft::test
