// Which calls a channel sends again, when, and how often, on a simulated network.
#include "rpc/testing/retry_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rpc/client/bulk_call.h"
#include "rpc/client/client_context.h"
#include "rpc/client/client_interceptor.h"
#include "rpc/client/retried_calls.h"
#include "rpc/testing/ledger_service.h"
#include "weft/coroutine.h"
#include "weft/status.h"

namespace weft::test {
namespace {

bool Says(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

// --- what is sent again --------------------------------------------------------------------------

TEST_F(RetryTest, NothingIsSentAgainUnlessAskedFor) {
  Start({});
  service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Look(outcome);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(outcome)));
  EXPECT_EQ(service_.seen.size(), 1u);
}

TEST_F(RetryTest, AMethodThatMayRunTwiceIsSentAgainAfterUnavailable) {
  Start(Retrying());
  for (const bool look : {true, false}) {
    service_.seen.clear();
    service_.Next(StoreService::Unavailable());
    service_.Next(StoreService::Unavailable());
    RetriedOutcome outcome;
    if (look) {
      Look(outcome);
    } else {
      stub_->Set(MakeData(7, 10), &outcome.reply, {}, outcome.Callback(clock()));
    }
    EXPECT_EQ(EndOf(outcome), absl::OkStatus());
    EXPECT_EQ(service_.seen.size(), 3u);
  }
  const ChannelStats stats = channel_->stats();
  EXPECT_EQ(stats.calls_started, 2u);
  EXPECT_EQ(stats.calls_ok, 2u);
  EXPECT_EQ(stats.calls_failed, 0u);
  EXPECT_EQ(stats.retries, 4u);
  EXPECT_EQ(stats.hedges, 0u);
  EXPECT_EQ(stats.retries_refused, 0u);
  ExpectNothingIsLeft();
}

// The sums over several engines left them out: a program that watched its retries saw none.
TEST_F(RetryTest, AChannelOnSeveralEnginesCountsTheRetriesOfEach) {
  StartServer();
  const std::vector<Engine*> engines = {&network_.Node("client"), &network_.Node("another")};
  auto channel = Channel::Open(engines, "sim:server", Retrying());
  ASSERT_TRUE(channel.ok()) << channel.status();
  channel_ = *std::move(channel);
  stub_.emplace(*channel_);
  service_.Next(StoreService::Unavailable());
  service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Look(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(channel_->stats().calls_ok, 1u);
  EXPECT_EQ(channel_->stats().retries, 2u);
}

TEST_F(RetryTest, AMethodOfWhichNothingIsSaidRunsOnce) {
  Start(Retrying());
  service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Add(outcome);
  EXPECT_EQ(EndOf(outcome),
            WithDelivery(absl::UnavailableError("come again"), Delivery::kMayHaveRun));
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(channel_->stats().retries, 0u);
}

TEST_F(RetryTest, ALostConnectionIsNoAnswer) {
  Start(Retrying());
  service_.Next(service_.Hold());
  service_.Next(service_.Hold());
  RetriedOutcome look, add;
  Look(look, {.wait_for_server = true});
  Add(add, {.wait_for_server = true});
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2; }));
  KillServer();
  StartServer();
  EXPECT_EQ(EndOf(look), absl::OkStatus());
  const absl::Status once = EndOf(add);
  EXPECT_TRUE(absl::IsUnavailable(once)) << once;
  EXPECT_EQ(DeliveryOf(once), Delivery::kMayHaveRun);
  EXPECT_EQ(service_.seen.size(), 3u);
  ExpectNothingIsLeft();
}

// As long as nothing of it was sent, any call may be repeated.
TEST_F(RetryTest, WhatWasNotSentIsSentAgainWhateverItIs) {
  StartAlone(Retrying());
  RetriedOutcome outcome;
  Add(outcome);
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().connect_failures == 1; }));
  EXPECT_FALSE(outcome.done());
  StartServer();
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(channel_->stats().retries, 1u);
}

// Has no room for the first so many.
class FullExecutor final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    if (refuse > 0) return --refuse, false;
    task();
    return true;
  }
  int refuse = 0;
};

TEST_F(RetryTest, WhatTheServerHadNoRoomForIsSentAgainWhateverItIs) {
  FullExecutor executor;
  executor.refuse = 2;
  server_ = *Server::Create(network_.Node("server"));
  ASSERT_TRUE(server_->AddService(&service_, &executor).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel(Retrying());
  RetriedOutcome outcome;
  Add(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(channel_->stats().retries, 2u);
  executor.refuse = 100;
  RetriedOutcome refused;
  Add(refused);
  const absl::Status status = EndOf(refused);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_TRUE(Says(status, "no room for another call (not run, safe to retry) [4 attempts]"))
      << status;
}

TEST_F(RetryTest, TheChannelsOwnLimitsAreNotMetByRepeating) {
  ChannelOptions options = Retrying();
  options.max_queued_calls = 0;
  StartAlone(options);
  RetriedOutcome outcome;
  Look(outcome);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(channel_->stats().retries, 0u);
}

TEST_F(RetryTest, AllOtherErrorsOfHandlersAreAnswers) {
  Start(Retrying());
  for (int code = 1; code <= 16; ++code) {
    if (code == static_cast<int>(absl::StatusCode::kUnavailable)) continue;
    service_.seen.clear();
    const absl::Status answer(static_cast<absl::StatusCode>(code), "the answer");
    service_.Next(StoreService::Fail(answer));
    RetriedOutcome outcome;
    Look(outcome);
    const absl::Status status = EndOf(outcome);
    EXPECT_EQ(status.code(), answer.code());
    EXPECT_EQ(status.message(), "the answer");
    EXPECT_EQ(service_.seen.size(), 1u);
  }
}

TEST_F(RetryTest, ACallMaySayNo) {
  Start(Retrying());
  service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Look(outcome, {.no_retry = true});
  EXPECT_TRUE(absl::IsUnavailable(EndOf(outcome)));
  EXPECT_EQ(service_.seen.size(), 1u);
}

// --- how often, and when -------------------------------------------------------------------------

TEST_F(RetryTest, TheLastAttemptsErrorIsTheCalls) {
  Start(Retrying());
  for (const char* text : {"one", "two", "three", "four"}) {
    service_.Next(StoreService::Fail(absl::UnavailableError(text)));
  }
  RetriedOutcome outcome;
  Look(outcome);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(status.message(), "four [4 attempts, one of which may have run]");
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  EXPECT_EQ(service_.seen.size(), 4u);
}

// The last attempt has not left, but another had.
TEST_F(RetryTest, WhatMayHaveRunIsNeverSaidNotToHave) {
  Start(Retrying());
  service_.Next(service_.Hold());
  RetriedOutcome outcome;
  Look(outcome);
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  KillServer();
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  EXPECT_TRUE(Says(status, "[4 attempts, one of which may have run]")) << status;
  EXPECT_FALSE(Says(status, "not sent")) << status;
}

// When its attempts came, after each other, in microseconds.
std::vector<uint64_t> PausesUs(const std::vector<StoreService::Seen>& seen) {
  std::vector<uint64_t> pauses;
  for (size_t i = 1; i < seen.size(); ++i) {
    pauses.push_back((seen[i].at_ns - seen[i - 1].at_ns) / kNsPerUs);
  }
  return pauses;
}

class RetryPausesTest : public RetryTest {
 protected:
  explicit RetryPausesTest(uint64_t seed) : RetryTest(seed) {}

 public:
  static std::vector<uint64_t> Of(uint64_t seed);
  void TestBody() override {}
};

std::vector<uint64_t> RetryPausesTest::Of(uint64_t seed) {
  RetryPausesTest test(seed);
  test.network_.RunFor(seed * kNsPerMs);  // the channel's own seed is its time of birth
  ChannelOptions options = Retrying();
  options.retry.initial_backoff_us = 10'000;
  options.retry.max_backoff_us = 25'000;
  test.Start(options);
  for (int i = 0; i < 3; ++i) test.service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  test.Look(outcome);
  EXPECT_EQ(test.EndOf(outcome), absl::OkStatus());
  return PausesUs(test.service_.seen);
}

TEST(RetryBackoffTest, PausesDoubleUpToTheirBoundAndHalfOfThemIsRandom) {
  constexpr uint64_t kOnTheWayUs = 500;  // there and back, and a tick of the timer
  std::vector<uint64_t> firsts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<uint64_t> pauses = RetryPausesTest::Of(seed);
    ASSERT_EQ(pauses.size(), 3u);
    const std::array<uint64_t, 3> longest = {10'000, 20'000, 25'000};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GE(pauses[i], longest[i] / 2);
      EXPECT_LE(pauses[i], longest[i] + kOnTheWayUs);
    }
    firsts.push_back(pauses[0]);
  }
  const auto [least, most] = std::minmax_element(firsts.begin(), firsts.end());
  EXPECT_GT(*most - *least, 2'000u) << "a crowd of clients would come back at the same instant";
}

TEST_F(RetryTest, AnAttemptThatCouldNotStartInTimeIsNotWaitedFor) {
  ChannelOptions options = Retrying();
  options.retry.initial_backoff_us = 20'000;
  Start(options);
  service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Look(outcome, {.timeout_us = 9'000});
  const uint64_t start_ns = clock().NowNs();
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_LT(outcome.at_ns - start_ns, 5'000 * kNsPerUs);
}

TEST_F(RetryTest, EachAttemptHasTheTimeThatIsLeft) {
  Start(Retrying());
  service_.Next(StoreService::Unavailable());
  service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Look(outcome, {.timeout_us = 100'000});
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  ASSERT_EQ(service_.seen.size(), 3u);
  EXPECT_LE(service_.seen[0].remaining_us, 100'000u);
  EXPECT_LE(service_.seen[1].remaining_us, 95'000u);
  EXPECT_LE(service_.seen[2].remaining_us, 85'000u);
  EXPECT_GE(service_.seen[2].remaining_us, 60'000u);
}

TEST_F(RetryTest, TheDeadlineIsOfAllAttemptsTogether) {
  Start(Retrying());
  service_.Next(StoreService::Unavailable());
  service_.Next(service_.Hold());
  RetriedOutcome outcome;
  const uint64_t start_ns = clock().NowNs();
  Look(outcome, {.timeout_us = 50'000});
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(Says(status, "no reply from sim:server within 50 ms")) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  EXPECT_GE(outcome.at_ns - start_ns, 50'000 * kNsPerUs);
  EXPECT_LE(outcome.at_ns - start_ns, 51'000 * kNsPerUs);
  EXPECT_EQ(channel_->stats().deadlines_exceeded, 1u);
  EXPECT_TRUE(RunUntil([&] { return service_.cancelled == 1; })) << "the server is told";
}

// A pause ends before the deadline, but the engine looks at its timers later than at the clock.
TEST_F(RetryTest, ADeadlineMayComeInAPause) {
  ChannelOptions options = Retrying();
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 1;
  options.retry.budget_tokens = 1000;
  options.retry.refill_millitokens = 1000;
  Start(options);
  int in_a_pause = 0;
  for (uint64_t timeout_us = 10; timeout_us < 300; ++timeout_us) {
    SCOPED_TRACE(timeout_us);
    service_.ForgetScript();
    service_.Next(StoreService::Unavailable());
    Data reply;
    const absl::Status status = stub_->Look(MakeData(1, 1), &reply, {.timeout_us = timeout_us});
    ASSERT_TRUE(status.ok() || absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
        << status;
    if (!absl::IsDeadlineExceeded(status) || !Says(status, "come again")) continue;
    ++in_a_pause;
    EXPECT_TRUE(Says(status, "no reply from sim:server within")) << status;
    EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  }
  EXPECT_GT(in_a_pause, 0);
  ExpectNothingIsLeft();
}

// --- the budget ----------------------------------------------------------------------------------

TEST(RetryBudgetTest, PermitsWhileMoreThanHalfIsLeft) {
  RetryBudget budget(/*tokens=*/10, /*refill_millitokens=*/300);
  for (int i = 0; i < 4; ++i) {
    budget.Take();
    EXPECT_TRUE(budget.permits());
  }
  budget.Take();
  EXPECT_FALSE(budget.permits());  // five of ten
  budget.Refill();
  EXPECT_TRUE(budget.permits());
  for (int i = 0; i < 100; ++i) budget.Take();
  for (int i = 0; i < 16; ++i) budget.Refill();
  EXPECT_FALSE(budget.permits());
  budget.Refill();
  EXPECT_TRUE(budget.permits());
  for (int i = 0; i < 100; ++i) budget.Refill();
  for (int i = 0; i < 4; ++i) budget.Take();
  EXPECT_TRUE(budget.permits());
  budget.Take();
  EXPECT_FALSE(budget.permits());  // it never had more than ten
}

TEST_F(RetryTest, ABudgetThatIsSpentRefusesUntilCallsEndWell) {
  ChannelOptions options = Retrying();
  options.retry.budget_tokens = 4;
  options.retry.refill_millitokens = 500;
  Start(options);
  for (int i = 0; i < 2; ++i) service_.Next(StoreService::Unavailable());
  RetriedOutcome first;
  Look(first);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(first)));
  EXPECT_EQ(service_.seen.size(), 2u) << "two of four tokens were left then";
  EXPECT_EQ(channel_->stats().retries_refused, 1u);

  service_.Next(StoreService::Unavailable());
  RetriedOutcome second;
  Look(second);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(second)));
  EXPECT_EQ(service_.seen.size(), 3u);
  EXPECT_EQ(channel_->stats().retries_refused, 2u);

  for (int i = 0; i < 5; ++i) {  // from 1 to 3.5
    RetriedOutcome good;
    Add(good);
    EXPECT_EQ(EndOf(good), absl::OkStatus());
  }
  service_.seen.clear();
  service_.Next(StoreService::Unavailable());
  RetriedOutcome third;
  Look(third);
  EXPECT_EQ(EndOf(third), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u);
}

// --- its end from outside ------------------------------------------------------------------------

TEST_F(RetryTest, ACallThatPausesIsCancelledAtOnce) {
  ChannelOptions options = Retrying();
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 1'000'000;
  Start(options);
  service_.Next(StoreService::Unavailable());
  ClientContext context;
  RetriedOutcome outcome;
  Look(outcome, {.context = &context});
  network_.RunFor(10 * kNsPerMs);
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_FALSE(outcome.done());
  ASSERT_TRUE(context.Cancel().ok());
  network_.RunFor(kNsPerMs);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(Says(status, "cancelled by the caller")) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  network_.RunFor(3 * kNsPerSec);
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(outcome.completions, 1);
}

TEST_F(RetryTest, ACancelReachesTheAttemptThatRuns) {
  Start(Retrying());
  service_.Next(StoreService::Unavailable());
  service_.Next(service_.Hold());
  ClientContext context;
  RetriedOutcome outcome;
  Look(outcome, {.context = &context});
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(RunUntil([&] { return service_.cancelled == 1; }));
  service_.End(0);
  ExpectNothingIsLeft();
}

TEST_F(RetryTest, AChannelThatEndsEndsCallsThatPause) {
  ChannelOptions options = Retrying();
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 1'000'000;
  Start(options);
  service_.Next(StoreService::Unavailable());
  RetriedOutcome ran, again;
  Look(ran);
  network_.RunFor(10 * kNsPerMs);
  KillServer();
  network_.RunFor(kNsPerSec / 2);
  RetriedOutcome never_sent;
  Add(never_sent);
  network_.RunFor(10 * kNsPerMs);
  EXPECT_FALSE(ran.done() || never_sent.done());
  channel_.reset();
  EXPECT_EQ(ran.completions, 1);
  EXPECT_TRUE(absl::IsCancelled(ran.status)) << ran.status;
  EXPECT_EQ(DeliveryOf(ran.status), Delivery::kMayHaveRun);
  EXPECT_EQ(never_sent.completions, 1);
  EXPECT_TRUE(absl::IsCancelled(never_sent.status)) << never_sent.status;
  EXPECT_EQ(DeliveryOf(never_sent.status), Delivery::kNotSent);
}

// A callback of the channel's destructor starts another call: that one ends too.
TEST_F(RetryTest, ACallStartedByTheLastCallbackEnds) {
  ChannelOptions options = Retrying();
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 1'000'000;
  Start(options);
  service_.Next(StoreService::Unavailable());
  RetriedOutcome last, outcome;
  stub_->Look(MakeData(7, 1), &outcome.reply, {}, [&](absl::Status status) {
    Look(last);
    outcome.Callback(clock())(std::move(status));
  });
  network_.RunFor(10 * kNsPerMs);
  channel_.reset();
  EXPECT_EQ(outcome.completions, 1);
  EXPECT_EQ(last.completions, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(last.status)) << last.status;
}

// As many calls may be sent again as can be under way or queued; further ones have one attempt.
TEST_F(RetryTest, CallsThatMayBeSentAgainAreBounded) {
  ChannelOptions options = Retrying();
  options.max_outstanding_calls = 1;
  options.max_queued_calls = 2;
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 1'000'000;
  Start(options);
  for (int i = 0; i < 4; ++i) service_.Next(StoreService::Unavailable());
  std::array<RetriedOutcome, 4> outcomes;
  for (RetriedOutcome& outcome : outcomes) {
    Look(outcome);
    network_.RunFor(10 * kNsPerMs);
  }
  EXPECT_TRUE(outcomes[3].done());
  EXPECT_TRUE(absl::IsUnavailable(outcomes[3].status));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(EndOf(outcomes[i]), absl::OkStatus());
}

// --- all of it is one call -----------------------------------------------------------------------

TEST_F(RetryTest, ServersSeeHowManyAttemptsWentBefore) {
  Start(Retrying());
  for (int i = 0; i < 2; ++i) {
    service_.Next([i](StoreService::Attempt attempt) {
      EXPECT_TRUE(attempt.context().AddReplyMetadata("attempt", std::to_string(i)).ok());
      attempt.Finish(absl::UnavailableError("come again"));
    });
  }
  service_.Next([](StoreService::Attempt attempt) {
    EXPECT_TRUE(attempt.context().AddReplyMetadata("attempt", "last").ok());
    StoreService::Echo()(std::move(attempt));
  });
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("user", "anna").ok());
  RetriedOutcome outcome;
  Look(outcome, {.context = &context});
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  ASSERT_EQ(service_.seen.size(), 3u);
  EXPECT_EQ(service_.seen[0].previous_attempts, "");
  EXPECT_EQ(service_.seen[1].previous_attempts, "1");
  EXPECT_EQ(service_.seen[2].previous_attempts, "2");
  for (const StoreService::Seen& seen : service_.seen) EXPECT_EQ(seen.user, "anna");
  ASSERT_EQ(context.reply_metadata().size(), 1u) << "of the attempt that counts";
  EXPECT_EQ(*context.reply_metadata().Find("attempt"), "last");
}

class CountingInterceptor final : public ClientInterceptor {
 public:
  absl::Status OnStart(OutgoingCall&) override {
    ++starts;
    return absl::OkStatus();
  }
  void OnEnd(OutgoingCall&, const absl::Status& status) override { ends.push_back(status); }

  int starts = 0;
  std::vector<absl::Status> ends;
};

TEST_F(RetryTest, InterceptorsSeeOneCall) {
  CountingInterceptor interceptor;
  ChannelOptions options = Retrying();
  options.interceptors = {&interceptor};
  Start(options);
  for (int i = 0; i < 2; ++i) service_.Next(StoreService::Unavailable());
  RetriedOutcome outcome;
  Look(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(interceptor.starts, 1);
  EXPECT_EQ(interceptor.ends, std::vector<absl::Status>{absl::OkStatus()});
}

// --- every form of a call ------------------------------------------------------------------------

TEST_F(RetryTest, BlockingCallsAreSentAgain) {
  Start(Retrying());
  for (int i = 0; i < 3; ++i) service_.Next(StoreService::Unavailable());
  Data reply;
  EXPECT_EQ(stub_->Look(MakeData(9, 2000), &reply), absl::OkStatus());
  EXPECT_EQ(reply.number(), 9u);
  EXPECT_EQ(reply.payload().size(), 2000u);
  for (int i = 0; i < 4; ++i) service_.Next(StoreService::Unavailable());
  EXPECT_TRUE(absl::IsUnavailable(stub_->Look(MakeData(9, 1), &reply, {.timeout_us = 500'000})));
  service_.Next(StoreService::Unavailable());
  service_.Next(service_.Hold());
  const absl::Status late = stub_->Look(MakeData(9, 1), &reply, {.timeout_us = 40'000});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
}

TEST_F(RetryTest, AwaitedCallsAreSentAgain) {
  Start(Retrying());
  for (int i = 0; i < 3; ++i) service_.Next(StoreService::Unavailable());
  const auto look = [](const Store::Stub& stub) -> Task<uint64_t> {
    const Data request = MakeData(9, 1);
    Data reply;
    const absl::Status status = co_await stub.CoLook(request, &reply);
    co_return status.ok() ? reply.number() : 0;
  };
  EXPECT_EQ(Wait(client(), look(*stub_)), 9u);
}

// Answers as a struct, and is away for the first so many.
class ShyLedger final : public Ledger::LayoutService {
 public:
  absl::Status Mirror(ServerContext&, const SampleLayout& request, SampleLayout* reply) override {
    if (++calls <= away) return absl::UnavailableError("come again");
    *reply = request;
    return absl::OkStatus();
  }
  int calls = 0;
  int away = 0;
};

TEST_F(RetryTest, CallsWithStructsAreSentAgain) {
  ShyLedger ledger;
  server_ = *Server::Create(network_.Node("server"));
  ASSERT_TRUE(server_->AddService(&ledger).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel(Retrying());
  Ledger::Stub stub(*channel_);
  SampleLayout request = {}, reply = {};
  std::memset(static_cast<void*>(&request), 1, sizeof(request));
  ledger.away = 2;
  EXPECT_EQ(stub.Mirror(request, &reply), absl::OkStatus());
  EXPECT_TRUE(SameBytes(request, reply));
  EXPECT_EQ(ledger.calls, 3);

  ledger.away = 4;  // the fourth; its request is gone by then
  reply = {};
  absl::Status status = absl::UnknownError("not ended");
  {
    const SampleLayout gone = request;
    stub.Mirror(gone, &reply, {}, [&](absl::Status end) { status = std::move(end); });
  }
  ASSERT_TRUE(RunUntil([&] { return !absl::IsUnknown(status); }));
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_TRUE(SameBytes(request, reply));
}

TEST_F(RetryTest, ACallThatLendsMemoryIsSentAgainOnlyIfItHasNotRun) {
  FullExecutor executor;
  server_ = *Server::Create(network_.Node("server"));
  ASSERT_TRUE(server_->AddService(&service_, &executor).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel(Retrying());
  auto buffer = *channel_->AllocateBuffer(4096);
  BulkCall bulk(*channel_);
  bulk.Receive(buffer->slice());
  executor.refuse = 2;
  RetriedOutcome outcome;
  Look(outcome, {.bulk = &bulk});
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(channel_->stats().retries, 2u);
  EXPECT_EQ(bulk.state(), BulkCall::State::kReclaimed);

  service_.Next(StoreService::Unavailable());
  RetriedOutcome ran;
  Look(ran, {.bulk = &bulk});
  EXPECT_TRUE(absl::IsUnavailable(EndOf(ran)));
  EXPECT_EQ(service_.seen.size(), 2u);
  EXPECT_EQ(bulk.state(), BulkCall::State::kReclaimed);

  // Cancelled while it pauses, and while the server has the memory.
  for (const bool pauses : {true, false}) {
    executor.refuse = pauses ? 1 : 0;
    if (!pauses) service_.Next(service_.Hold());
    ClientContext context;
    RetriedOutcome cancelled;
    Look(cancelled, {.bulk = &bulk, .context = &context});
    ASSERT_TRUE(RunUntil([&] { return pauses ? executor.refuse == 0 : !service_.held.empty(); }));
    network_.RunFor(kNsPerMs);
    EXPECT_EQ(bulk.state(), BulkCall::State::kPinned);
    ASSERT_TRUE(context.Cancel().ok());
    EXPECT_TRUE(absl::IsCancelled(EndOf(cancelled)));
    if (!pauses) service_.End(0);
    EXPECT_TRUE(RunUntil([&] { return bulk.state() == BulkCall::State::kReclaimed; }));
  }
  ExpectNothingIsLeft();
}

TEST_F(RetryTest, ACallThatLendsMemoryIsSentAgainAfterALossIfItHasNotLeft) {
  StartAlone(Retrying());
  auto buffer = *channel_->AllocateBuffer(4096);
  BulkCall bulk(*channel_);
  bulk.Receive(buffer->slice());
  RetriedOutcome outcome;
  Add(outcome, {.bulk = &bulk});
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().connect_failures == 1; }));
  StartServer();
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(bulk.state(), BulkCall::State::kReclaimed);
}

// --- options -------------------------------------------------------------------------------------

TEST_F(RetryTest, OptionsOutOfBoundsAreRefused) {
  StartServer();
  struct Wrong {
    const char* name;
    void (*set)(RetryOptions&);
  };
  const Wrong all[] = {
      {"retry.max_attempts", [](RetryOptions& o) { o.max_attempts = 0; }},
      {"retry.max_attempts", [](RetryOptions& o) { o.max_attempts = kMaxAttempts + 1; }},
      {"retry.initial_backoff_us", [](RetryOptions& o) { o.initial_backoff_us = 0; }},
      {"retry.initial_backoff_us", [](RetryOptions& o) { o.max_backoff_us = 10; }},
      {"retry.max_backoff_us", [](RetryOptions& o) { o.max_backoff_us = 3'600'000'001; }},
      {"retry.budget_tokens", [](RetryOptions& o) { o.budget_tokens = 2; }},
      {"retry.budget_tokens", [](RetryOptions& o) { o.budget_tokens = 1001; }},
      {"retry.refill_millitokens", [](RetryOptions& o) { o.refill_millitokens = 0; }},
      {"retry.hedge_after_us", [](RetryOptions& o) { o.hedge_after_us = 3'600'000'001; }},
      {"retry.hedge_after_us",
       [](RetryOptions& o) {
         o.max_attempts = 1;
         o.hedge_after_us = 1;
       }},
  };
  for (const Wrong& wrong : all) {
    ChannelOptions options = Retrying();
    wrong.set(options.retry);
    const absl::Status status = Channel::Open(client(), "sim:server", options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong.name << ": " << status;
    EXPECT_TRUE(Says(status, wrong.name)) << status;
  }
}

}  // namespace
}  // namespace weft::test
