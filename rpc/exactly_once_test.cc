// Calls that run exactly once: over connections that are lost, servers that are restarted and
// sessions that expire, on a simulated network.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/client_context.h"
#include "rpc/operation/executor.h"
#include "rpc/server/server_interceptor.h"
#include "rpc/testing/ledger_service.h"
#include "rpc/testing/memory_store.h"
#include "rpc/testing/once_test.h"
#include "rpc/wire/completion_id.h"
#include "weft/status.h"

namespace weft::test {
namespace {

bool Says(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

class ExactlyOnceTest : public OnceTest {
 protected:
  // Told, and not by a lease that is over.
  void WaitForCancelled(int handlers) {
    ASSERT_TRUE(network_.RunUntil([&] { return service_.cancelled == handlers; }, kNsPerSec));
  }
};

// --- while the server runs ----------------------------------------------------------------------

TEST_F(ExactlyOnceTest, WithoutFaultsACallRunsAsAlways) {
  Start(Once());
  for (int i = 0; i < 3; ++i) {
    RetriedOutcome outcome;
    Add(outcome);
    EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  }
  EXPECT_EQ(service_.seen.size(), 3u);
  EXPECT_EQ(Stats().sessions, 1u);
  EXPECT_EQ(Stats().repeated, 0u);
  EXPECT_EQ(Stats().requests, 4u) << "one of them for the session";
  ExpectNothingIsLeft();
}

TEST_F(ExactlyOnceTest, AnAttemptFindsTheHandlerOfTheOneBeforeRunning) {
  Start(Once());
  RetriedOutcome outcome;
  AddHeld(outcome);
  LoseConnection();
  ASSERT_TRUE(RunUntil([&] { return Stats().repeated == 1; }));
  EXPECT_EQ(service_.cancelled, 0) << "its client comes back";
  EXPECT_FALSE(outcome.done());
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  ExpectNothingIsLeft();
  EXPECT_EQ(Stats().running, 0u);
}

TEST_F(ExactlyOnceTest, AReplyThatWasLostIsSentAgain) {
  Start(Once());
  ClientContext context;
  RetriedOutcome outcome;
  AddHeld(outcome, {.wait_for_server = true, .context = &context});
  network_.Partition("client", server_node_);
  ASSERT_TRUE(service_.held[0].context().AddReplyMetadata("k", "v").ok());
  service_.held[0].context().SetReplyAttachment(absl::Cord("attached"));
  service_.End(0);
  network_.RunFor(3 * kNsPerSec / 2);
  EXPECT_FALSE(outcome.done());
  network_.Heal("client", server_node_);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  ASSERT_NE(context.reply_metadata().Find("k"), nullptr);
  EXPECT_EQ(*context.reply_metadata().Find("k"), "v");
  EXPECT_EQ(context.reply_attachment(), "attached");
  EXPECT_EQ(Stats().repeated, 1u);
}

// The fourth would have been sent once, and without a name: what it was promised did not hold.
TEST_F(ExactlyOnceTest, ACallThatCanHaveNoSecondAttemptIsNotSent) {
  ChannelOptions options = Once();
  options.max_outstanding_calls = 1;
  options.max_queued_calls = 2;
  Start(options);
  service_.Next(service_.Hold());
  std::array<RetriedOutcome, 3> outcomes;
  for (RetriedOutcome& outcome : outcomes) Add(outcome);
  WaitForHeld(1);
  RetriedOutcome refused;
  Add(refused);
  const absl::Status status = EndOf(refused);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  service_.End(0);
  for (RetriedOutcome& outcome : outcomes) EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 3u);
}

TEST_F(ExactlyOnceTest, AnErrorOfTheHandlerIsTheOutcomeAsWell) {
  Start(Once());
  RetriedOutcome outcome;
  AddHeld(outcome);
  LoseConnection();
  absl::Status error = absl::NotFoundError("no such account");
  error.SetPayload("example.com/account", absl::Cord("7"));
  service_.End(0, error);
  EXPECT_EQ(EndOf(outcome), error);
  EXPECT_EQ(service_.seen.size(), 1u);
}

TEST_F(ExactlyOnceTest, WhatTheHandlerAnswersIsNotSentAgainThoughItIsUnavailable) {
  Start(Once());
  service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Add(outcome);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(outcome)));
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(channel_->stats().retries, 0u);
}

TEST_F(ExactlyOnceTest, IdempotentMethodsGoAsWithoutTheOption) {
  Start(Once());
  RetriedOutcome outcome;
  Look(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(Stats().sessions, 0u);
}

TEST_F(ExactlyOnceTest, TheClientsCancelReachesTheHandlerByALaterAttempt) {
  Start(Once());
  ClientContext context;
  RetriedOutcome outcome;
  AddHeld(outcome, {.wait_for_server = true, .context = &context});
  LoseConnection();
  ASSERT_TRUE(RunUntil([&] { return Stats().repeated == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  WaitForCancelled(1);
  service_.End(0);
  ExpectNothingIsLeft();
  EXPECT_EQ(Stats().running, 0u);
}

// Nothing was under way that could be cancelled: the handler ran on until the lease was over.
TEST_F(ExactlyOnceTest, TheClientsCancelReachesTheHandlerWhileTheCallPauses) {
  Start(OnceWithLongPauses());
  ClientContext context;
  RetriedOutcome outcome;
  AddHeld(outcome, {.context = &context});
  Interrupt();
  network_.Heal("client", server_node_);
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  EXPECT_EQ(DeliveryOf(outcome.status), Delivery::kMayHaveRun);
  WaitForCancelled(1);
  service_.End(0);
  ExpectNothingIsLeft();
  EXPECT_EQ(Stats().running, 0u);
  EXPECT_EQ(service_.seen.size(), 1u);
}

// The same, of an attempt that had not left.
TEST_F(ExactlyOnceTest, TheClientsCancelReachesTheHandlerWhileTheNextAttemptWaitsToBeSent) {
  StartServer();
  ChannelOptions options = Once();
  options.max_outstanding_calls = 1;
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 4'000'000;
  OpenChannel(options);
  ClientContext context;
  RetriedOutcome outcome, other;
  AddHeld(outcome, {.wait_for_server = true, .context = &context});
  Interrupt();
  service_.Next(service_.Hold());
  Look(other, kPatient);  // it has the slot
  network_.Heal("client", server_node_);
  WaitForHeld(2);
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().queued == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  WaitForCancelled(1);
  EXPECT_TRUE(service_.held[0].context().cancelled());
  service_.End(0);
  service_.End(1);
  EXPECT_EQ(EndOf(other), absl::OkStatus());
  ExpectNothingIsLeft();
}

TEST_F(ExactlyOnceTest, ManyPausingCallsAreCancelledTogether) {
  Start(OnceWithLongPauses());
  std::array<ClientContext, 20> contexts;
  std::array<RetriedOutcome, 20> outcomes;
  for (size_t i = 0; i < outcomes.size(); ++i) AddHeld(outcomes[i], {.context = &contexts[i]});
  Interrupt();
  network_.Heal("client", server_node_);
  const uint64_t requests = Stats().requests;
  for (ClientContext& context : contexts) ASSERT_TRUE(context.Cancel().ok());
  WaitForCancelled(20);
  EXPECT_LE(Stats().requests, requests + 2) << "the first one alone, then all others";
  for (RetriedOutcome& outcome : outcomes) EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  for (size_t i = 0; i < outcomes.size(); ++i) service_.End(i);
  ExpectNothingIsLeft();
}

TEST_F(ExactlyOnceTest, WithoutAServerACancelHoldsNothingUp) {
  Start(OnceWithLongPauses());
  ClientContext context;
  RetriedOutcome outcome;
  AddHeld(outcome, {.context = &context});
  Interrupt();
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  ExpectNothingIsLeft();
  EXPECT_EQ(service_.cancelled, 0) << "nobody has told it";
  network_.Heal("client", server_node_);
  RetriedOutcome next;
  Add(next);
  EXPECT_EQ(EndOf(next), absl::OkStatus());
}

TEST_F(ExactlyOnceTest, TheDeadlineReachesAHandlerWhoseConnectionIsGone) {
  Start(Once());
  RetriedOutcome outcome;
  AddHeld(outcome, {.timeout_us = 4'000'000, .wait_for_server = true});
  network_.Partition("client", server_node_);
  EXPECT_TRUE(absl::IsDeadlineExceeded(EndOf(outcome)));
  EXPECT_EQ(DeliveryOf(outcome.status), Delivery::kMayHaveRun);
  WaitForCancelled(1);
  service_.End(0);
  network_.Heal("client", server_node_);
  ExpectNothingIsLeft();
}

TEST_F(ExactlyOnceTest, AShutdownCancelsAHandlerWhoseConnectionIsGone) {
  Start(Once());
  service_.Next([this](StoreService::Attempt attempt) {
    auto kept = std::make_shared<StoreService::Attempt>(std::move(attempt));
    kept->context().OnCancel([this, kept] {
      ++service_.cancelled;
      kept->Finish(absl::CancelledError("nobody waits"));
    });
  });
  RetriedOutcome outcome;
  Add(outcome, kPatient);
  ASSERT_TRUE(RunUntil([&] { return service_.seen.size() == 1; }));
  network_.Partition("client", server_node_);
  network_.RunFor(3 * kNsPerSec / 2);
  EXPECT_EQ(service_.cancelled, 0);
  server_->Shutdown(1'000'000);
  EXPECT_EQ(service_.cancelled, 1);
  channel_.reset();
  EXPECT_EQ(outcome.completions, 1);
}

// Keeps what it was asked, and answers with structs.
class HoldingLedger final : public Ledger::LayoutService {
 public:
  using Call = UnaryCall<PaymentLayout, BalanceLayout>;
  void StartMove(Call call) override {
    call.reply()->amount = call.request().amount;
    held.push_back(std::move(call));
  }
  std::vector<Call> held;
};

TEST_F(ExactlyOnceTest, CallsWithStructsAreAnsweredFromTheRecordToo) {
  HoldingLedger ledger;
  server_ = *Server::Create(network_.Node("server"));
  ASSERT_TRUE(server_->AddService(&ledger).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel(Once());
  const Ledger::Stub stub(*channel_);
  BalanceLayout reply = {};
  absl::Status status = absl::UnknownError("not ended");
  stub.Move(MakePayment(1, 55), &reply, kPatient,
            [&](absl::Status end) { status = std::move(end); });
  ASSERT_TRUE(RunUntil([&] { return ledger.held.size() == 1; }));
  LoseConnection();
  ASSERT_TRUE(RunUntil([&] { return Stats().repeated == 1; }));
  ledger.held[0].Finish(absl::OkStatus());
  ledger.held.clear();
  ASSERT_TRUE(RunUntil([&] { return !absl::IsUnknown(status); }));
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(reply.amount, 55);
}

// --- interceptors -------------------------------------------------------------------------------

// Lets calls pass as long as it is told to, and writes down what it sees.
class Guard final : public ServerInterceptor {
 public:
  absl::Status OnStart(IncomingCall& call) override {
    log.push_back(call.is_repeated() ? "repeated" : "starts");
    return refuse;
  }
  void OnEnd(IncomingCall& call, const absl::Status& status) override {
    log.push_back((call.is_repeated() ? "repeated ends " : "ends ") +
                  absl::StatusCodeToString(status.code()));
  }

  absl::Status refuse;
  std::vector<std::string> log;
};

// Keeps tasks until it is told to run them.
class LaterExecutor final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    if (has_room) tasks.push_back(std::move(task));
    return has_room;
  }
  void RunAll() {
    while (!tasks.empty()) {
      Function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }

  bool has_room = true;
  std::deque<Function<void()>> tasks;
};

class GuardedOnceTest : public ExactlyOnceTest {
 protected:
  ~GuardedOnceTest() override {
    service_.held.clear();
    executor_.tasks.clear();
    stub_.reset();
    channel_.reset();
    server_.reset();
  }
  void StartGuarded(Executor* executor = nullptr) {
    ServerOptions options;
    options.interceptors = {&guard_};
    options.executor = executor;
    StartServer(options);
    OpenChannel(Once());
  }
  void WaitForTasks(size_t count) {
    ASSERT_TRUE(RunUntil([&] { return executor_.tasks.size() == count; }));
  }
  // A call whose handler holds it, and whose second attempt has come to the executor.
  void AddTwice(RetriedOutcome& outcome, const CallOptions& options = kPatient) {
    StartGuarded(&executor_);
    service_.Next(service_.Hold());
    Add(outcome, options);
    WaitForTasks(1);
    executor_.RunAll();
    ASSERT_EQ(service_.held.size(), 1u);
    LoseConnection();
    WaitForTasks(1);
  }

  Guard guard_;
  LaterExecutor executor_;
};

// Attempts that were answered from a record passed no interceptor: no log had them.
TEST_F(GuardedOnceTest, EveryAttemptComesByTheInterceptors) {
  StartGuarded();
  RetriedOutcome outcome;
  AddHeld(outcome);
  LoseConnection();
  ASSERT_TRUE(RunUntil([&] { return Stats().repeated == 1; }));
  EXPECT_EQ(guard_.log, (std::vector<std::string>{"starts", "repeated"}));
  service_.End(0, absl::NotFoundError("no such account"));
  EXPECT_TRUE(absl::IsNotFound(EndOf(outcome)));
  EXPECT_EQ(guard_.log, (std::vector<std::string>{"starts", "repeated", "ends NOT_FOUND",
                                                  "repeated ends NOT_FOUND"}));
  EXPECT_EQ(service_.seen.size(), 1u);
}

// And none could refuse them: who was not to have the answer any more got it all the same.
TEST_F(GuardedOnceTest, WhatTheInterceptorsRefuseIsNotGivenAwayFromARecord) {
  StartGuarded();
  RetriedOutcome outcome;
  AddHeld(outcome);
  Interrupt();
  service_.End(0);  // the record has the answer
  guard_.refuse = absl::PermissionDeniedError("you have been signed out");
  guard_.refuse.SetPayload("example.com/hint", absl::Cord("sign in"));
  network_.Heal("client", server_node_);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsPermissionDenied(outcome.status)) << outcome.status;
  EXPECT_EQ(DeliveryOf(outcome.status), Delivery::kMayHaveRun) << "an earlier attempt";
  EXPECT_EQ(outcome.status.GetPayload("example.com/hint"), absl::Cord("sign in"));
  EXPECT_EQ(outcome.reply.number(), 0u);
  EXPECT_EQ(Stats().repeated, 0u);
}

TEST_F(GuardedOnceTest, AHandlerMayEndWhileInterceptorsLookAtAFurtherAttempt) {
  RetriedOutcome outcome;
  AddTwice(outcome);
  service_.End(0);
  executor_.RunAll();
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
}

TEST_F(GuardedOnceTest, ACancelReachesTheHandlerWhileInterceptorsLookAtAFurtherAttempt) {
  ClientContext context;
  RetriedOutcome outcome;
  AddTwice(outcome, {.wait_for_server = true, .context = &context});
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  WaitForCancelled(1);
  executor_.RunAll();
  service_.End(0);
  ExpectNothingIsLeft();
  EXPECT_EQ(Stats().running, 0u);
}

TEST_F(GuardedOnceTest, AConnectionMayBeLostWhileInterceptorsLookAtAFurtherAttempt) {
  RetriedOutcome outcome;
  AddTwice(outcome);
  LoseConnection();
  WaitForTasks(2);
  executor_.RunAll();
  EXPECT_EQ(service_.cancelled, 0) << "its client comes back";
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  ExpectNothingIsLeft();
}

TEST_F(GuardedOnceTest, AnExecutorWithoutRoomForAFurtherAttemptLosesNothing) {
  RetriedOutcome outcome;
  AddTwice(outcome);
  executor_.tasks.clear();  // dropped
  executor_.has_room = false;
  network_.RunFor(20 * kNsPerMs);
  executor_.has_room = true;
  WaitForTasks(1);
  executor_.RunAll();
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
}

// --- what the server forgets --------------------------------------------------------------------

TEST_F(ExactlyOnceTest, ARecordGoesWhenTheClientHasTheAnswer) {
  Start(Once());
  for (int i = 0; i < 100; ++i) {
    RetriedOutcome outcome;
    Add(outcome);
    ASSERT_EQ(EndOf(outcome), absl::OkStatus());
    EXPECT_LT(Stats().record_bytes, 2'000u) << "the last one's";
  }
}

TEST_F(ExactlyOnceTest, ASessionExpiresWhenItIsNotUsedAndTheNextCallOpensAnother) {
  StartServer(ShortLease());
  OpenChannel(Once());
  RetriedOutcome first, second;
  Add(first);
  EXPECT_EQ(EndOf(first), absl::OkStatus());
  network_.RunFor(kLeaseNs + kNsPerSec);
  EXPECT_EQ(Stats().sessions, 0u);
  EXPECT_EQ(Stats().record_bytes, 0u);
  Add(second);
  EXPECT_EQ(EndOf(second), absl::OkStatus());
  EXPECT_EQ(Stats().refused, 0u);
  EXPECT_EQ(service_.seen.size(), 2u);
}

TEST_F(ExactlyOnceTest, ASessionLivesWhileACallOfItWaits) {
  StartServer(ShortLease());
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddHeld(outcome, {});
  network_.RunFor(4 * kLeaseNs);
  EXPECT_EQ(Stats().sessions, 1u);
  EXPECT_EQ(service_.cancelled, 0);
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
}

TEST_F(ExactlyOnceTest, AClientThatIsAwayForTooLongIsToldThatNobodyKnows) {
  StartServer(ShortLease());
  OpenChannel(Once());
  RetriedOutcome outcome, next;
  AddHeld(outcome);
  network_.Partition("client", server_node_);
  network_.RunFor(2 * kNsPerSec);
  service_.End(0);
  network_.RunFor(2 * kLeaseNs);
  EXPECT_EQ(Stats().sessions, 0u);
  network_.Heal("client", server_node_);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  EXPECT_TRUE(Says(status, "the server has no record of what became of this call: its session"))
      << status;
  Add(next);
  EXPECT_EQ(EndOf(next), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u);
}

TEST_F(ExactlyOnceTest, AHandlerWhoseClientStaysAwayIsCancelledAfterALease) {
  StartServer(ShortLease());
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddHeld(outcome);
  network_.Partition("client", server_node_);
  network_.RunFor(kLeaseNs / 2);
  EXPECT_EQ(service_.cancelled, 0);
  network_.RunFor(2 * kLeaseNs);
  EXPECT_EQ(service_.cancelled, 1);
  service_.End(0);
  network_.RunFor(2 * kLeaseNs);
  EXPECT_EQ(Stats().sessions, 0u);
  network_.Heal("client", server_node_);
  EXPECT_TRUE(absl::IsAborted(EndOf(outcome)));
}

// --- restarts -----------------------------------------------------------------------------------

TEST_F(ExactlyOnceTest, WithoutAStoreARestartedServerRunsNothingAgain) {
  Start(Once());
  RetriedOutcome outcome, next;
  AddHeld(outcome);
  KillServer();
  StartServer();
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  Add(next);
  EXPECT_EQ(EndOf(next), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u);
  ExpectNothingIsLeft();
}

TEST_F(ExactlyOnceTest, ACallThatSurelyDidNotRunGoesOnInANewSession) {
  Start(Once());
  RetriedOutcome first, second;
  Add(first);
  EXPECT_EQ(EndOf(first), absl::OkStatus());
  KillServer();
  StartServer();
  network_.RunFor(2 * kNsPerSec);  // the loss is known
  Add(second, kPatient);
  EXPECT_EQ(EndOf(second), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u);
}

class StoredOnceTest : public ExactlyOnceTest {
 protected:
  ServerOptions Stored() {
    ServerOptions options;
    options.completion_store = &store_;
    return options;
  }
  // Commits, and keeps the answer to itself.
  StoreService::Step CommitAndHold() {
    return [this](StoreService::Attempt attempt) {
      const CompletionId* const id = attempt.context().completion_id();
      ASSERT_NE(id, nullptr);
      store_.Commit(*id, attempt.request().number(),
                    {absl::OkStatus(), attempt.request().SerializeAsString()});
      service_.held.push_back(std::move(attempt));
    };
  }
  void AddCommitted(RetriedOutcome& outcome, uint64_t number = 7) {
    service_.Next(CommitAndHold());
    Add(outcome, kPatient, number);
    WaitForHeld(1);
  }

  MemoryStore store_;
};

TEST_F(StoredOnceTest, ARestartedServerAnswersFromItsStore) {
  StartServer(Stored());
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddCommitted(outcome);
  KillServer();
  StartServer(Stored());
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(store_.ledger[7], 1);
  RetriedOutcome next;
  AddCommitted(next, 8);
  EXPECT_EQ(store_.sessions.size(), 1u) << "it lives on";
  EXPECT_EQ(store_.outcomes.size(), 1u) << "the first one's is forgotten";
  service_.End(0);
  EXPECT_TRUE(RunUntil([&] { return next.done(); }));
  EXPECT_EQ(next.status, absl::OkStatus());
}

TEST_F(StoredOnceTest, WhatWasNotCommittedRunsAgainAfterARestart) {
  StartServer(Stored());
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddHeld(outcome);
  KillServer();
  StartServer(Stored());
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u);
}

TEST_F(StoredOnceTest, AStoreThatCannotBeAskedLosesNothing) {
  StartServer(Stored());
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddCommitted(outcome);
  KillServer();
  store_.find_errors = 2;
  StartServer(Stored());
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(store_.find_errors, 0);
  EXPECT_EQ(service_.seen.size(), 1u);
}

TEST_F(StoredOnceTest, WithoutASessionACallFailsAsNotSent) {
  store_.add_error = absl::ResourceExhaustedError("the disk is full");
  StartServer(Stored());
  OpenChannel(Once());
  RetriedOutcome outcome;
  Add(outcome);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_TRUE(Says(status,
                   "no session in which the call could run exactly once: the server's "
                   "store takes no session: the disk is full"))
      << status;
  EXPECT_EQ(service_.seen.size(), 0u);
}

TEST_F(StoredOnceTest, AnExpiredSessionLeavesTheStore) {
  ServerOptions options = Stored();
  options.session_lease_us = ShortLease().session_lease_us;
  StartServer(options);
  OpenChannel(Once());
  RetriedOutcome outcome;
  Add(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  KillServer();
  StartServer(options);
  EXPECT_EQ(Stats().sessions, 1u);
  network_.RunFor(2 * kLeaseNs);
  EXPECT_EQ(Stats().sessions, 0u);
  EXPECT_TRUE(store_.sessions.empty());
}

// --- servers and options that know nothing of it ------------------------------------------------

TEST_F(ExactlyOnceTest, AtAServerWithoutSessionsACallRunsOnceAtMost) {
  ServerOptions options;
  options.max_sessions = 0;
  StartServer(options);
  OpenChannel(Once());
  RetriedOutcome outcome;
  AddHeld(outcome, {});
  network_.Partition("client", server_node_);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  EXPECT_EQ(service_.cancelled, 1);
  network_.Heal("client", server_node_);
  service_.End(0);
}

// It would run it as any other.
TEST_F(ExactlyOnceTest, ANamedAttemptIsNotSentToAServerWithoutSessions) {
  Start(Once());
  RetriedOutcome outcome, next;
  AddHeld(outcome);
  KillServer();
  ServerOptions options;
  options.max_sessions = 0;
  StartServer(options);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  Add(next);
  EXPECT_EQ(EndOf(next), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u);
}

TEST_F(ExactlyOnceTest, OptionsThatMakeNoSenseAreRefused) {
  StartServer();
  ChannelOptions options;
  options.retry.exactly_once = true;
  EXPECT_TRUE(absl::IsInvalidArgument(Channel::Open(client(), "sim:server", options).status()));
  for (const uint64_t lease_us : {uint64_t{999'999}, uint64_t{3'600'000'001}}) {
    ServerOptions wrong;
    wrong.session_lease_us = lease_us;
    EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(network_.Node("b"), wrong).status()));
  }
}

// --- bounds -------------------------------------------------------------------------------------

TEST_F(ExactlyOnceTest, SessionsBeyondTheBoundAreRefused) {
  ServerOptions options = ShortLease();
  options.max_sessions = 1;
  StartServer(options);
  OpenChannel(Once());
  RetriedOutcome first, second;
  Add(first);
  EXPECT_EQ(EndOf(first), absl::OkStatus());
  const std::unique_ptr<Channel> other = std::move(channel_);  // its end would end its session
  OpenChannel(Once());
  Add(second);
  const absl::Status status = EndOf(second);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  network_.RunFor(2 * kLeaseNs);
  RetriedOutcome third;
  Add(third);
  EXPECT_EQ(EndOf(third), absl::OkStatus());
}

// The session of a channel that was destroyed stayed for a lease, and its handlers ran on for
// nobody: a program that opened channels now and then took all sessions from the others.
TEST_F(ExactlyOnceTest, AChannelThatIsDestroyedEndsItsSessionAndWhatRunsOfIt) {
  StartServer();
  OpenChannel(Once());
  RetriedOutcome ended, held;
  Add(ended);
  EXPECT_EQ(EndOf(ended), absl::OkStatus());
  AddHeld(held);
  EXPECT_EQ(Stats().sessions, 1u);
  channel_.reset();
  EXPECT_TRUE(absl::IsCancelled(EndOf(held)));
  WaitForCancelled(1);
  EXPECT_EQ(Stats().sessions, 1u) << "a handler of it runs";
  service_.held.clear();
  EXPECT_EQ(Stats().sessions, 0u);
  EXPECT_EQ(Stats().record_bytes, 0u);
}

TEST_F(ExactlyOnceTest, RecordsBeyondTheBoundAreRefusedBeforeTheirHandlersRun) {
  ServerOptions options;
  options.max_record_bytes = 4 * 1024;
  StartServer(options);
  ChannelOptions channel = Once();
  channel.retry.max_attempts = 2;
  OpenChannel(channel);
  RetriedOutcome outcomes[3];
  for (int i = 0; i < 2; ++i) AddHeld(outcomes[i], {});
  Add(outcomes[2]);
  const absl::Status status = EndOf(outcomes[2]);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_EQ(service_.seen.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    service_.End(static_cast<size_t>(i));
    EXPECT_EQ(EndOf(outcomes[i]), absl::OkStatus());
  }
}

TEST_F(ExactlyOnceTest, CallsBeyondASessionsWindowWaitForTheOldestOne) {
  Start(Once());
  RetriedOutcome oldest;
  AddHeld(oldest, {});
  std::vector<std::unique_ptr<RetriedOutcome>> others;
  const auto call = [&] {
    others.push_back(std::make_unique<RetriedOutcome>());
    Add(*others.back());
  };
  for (uint64_t i = 1; i < kMaxSessionCalls; ++i) {
    call();
    ASSERT_EQ(EndOf(*others.back()), absl::OkStatus());
  }
  call();
  network_.RunFor(kNsPerSec);
  EXPECT_FALSE(others.back()->done());
  service_.End(0);
  EXPECT_EQ(EndOf(oldest), absl::OkStatus());
  EXPECT_EQ(EndOf(*others.back()), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), kMaxSessionCalls + 1);
  ExpectNothingIsLeft();
}

// --- the end of a channel -----------------------------------------------------------------------

TEST_F(ExactlyOnceTest, AChannelsEndEndsWhatWaitsForASession) {
  StartAlone(Once());
  RetriedOutcome outcomes[3];
  for (RetriedOutcome& outcome : outcomes) Add(outcome, kPatient);
  network_.RunFor(kNsPerSec);
  stub_.reset();
  channel_.reset();
  for (RetriedOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.completions, 1);
    EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
    EXPECT_EQ(DeliveryOf(outcome.status), Delivery::kNotSent);
  }
}

TEST_F(ExactlyOnceTest, WithoutAServerOnlyThePatientWait) {
  StartAlone(Once());
  RetriedOutcome patient, other, late;
  Add(patient, kPatient);
  Add(other);
  Add(late, {.timeout_us = 300'000, .wait_for_server = true});
  EXPECT_TRUE(absl::IsUnavailable(EndOf(other)));
  EXPECT_EQ(DeliveryOf(other.status), Delivery::kNotSent);
  EXPECT_TRUE(absl::IsDeadlineExceeded(EndOf(late)));
  EXPECT_EQ(DeliveryOf(late.status), Delivery::kNotSent);
  EXPECT_TRUE(Says(late.status, "it waited for its session with the server")) << late.status;
  EXPECT_FALSE(patient.done());
  StartServer();
  EXPECT_EQ(EndOf(patient), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace weft::test
