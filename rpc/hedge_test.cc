// Second attempts of calls that are slow, on a simulated network.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "rpc/client/client_context.h"
#include "rpc/testing/retry_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr uint64_t kAfterUs = 5'000;

class HedgeTest : public RetryTest {
 protected:
  void StartHedging() { Start(Hedging(kAfterUs)); }
  // Both attempts of a call are at the server, which holds them.
  void HoldBoth(RetriedOutcome& outcome, const CallOptions& options = {}) {
    service_.Next(service_.Hold());
    service_.Next(service_.Hold());
    Look(outcome, options);
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2; }));
    EXPECT_EQ(channel_->stats().hedges, 1u);
  }
};

// --- when ----------------------------------------------------------------------------------------

TEST_F(HedgeTest, ASlowAttemptGetsCompanyAndTheFirstAnswerCounts) {
  StartHedging();
  service_.Next(service_.Hold());
  RetriedOutcome outcome;
  const uint64_t start_ns = clock().NowNs();
  Look(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_GE(outcome.at_ns - start_ns, kAfterUs * kNsPerUs);
  EXPECT_LE(outcome.at_ns - start_ns, (kAfterUs + 1'000) * kNsPerUs);
  ASSERT_EQ(service_.seen.size(), 2u);
  EXPECT_EQ(service_.seen[0].previous_attempts, "");
  EXPECT_EQ(service_.seen[1].previous_attempts, "1");
  ChannelStats stats = channel_->stats();
  EXPECT_EQ(stats.calls_started, 1u);
  EXPECT_EQ(stats.hedges, 1u);
  EXPECT_EQ(stats.retries, 0u);
  ASSERT_TRUE(RunUntil([&] { return service_.cancelled == 1; })) << "the loser is told";
  EXPECT_EQ(channel_->stats().abandoned, 1u);

  // What the loser then says is nothing to anybody.
  outcome.reply.set_number(1000);
  service_.End(0);
  ExpectNothingIsLeft();
  EXPECT_EQ(channel_->stats().late_replies, 1u);
  EXPECT_EQ(outcome.completions, 1);
  EXPECT_EQ(outcome.reply.number(), 1000u);
}

TEST_F(HedgeTest, AFastCallHasOneAttempt) {
  StartHedging();
  RetriedOutcome outcome;
  Look(outcome);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(service_.seen.size(), 1u);
}

TEST_F(HedgeTest, AMethodThatMayNotRunTwiceHasOneAttempt) {
  StartHedging();
  service_.Next(service_.Hold());
  RetriedOutcome outcome;
  Add(outcome);
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(service_.seen.size(), 1u);
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
}

TEST_F(HedgeTest, EveryAttemptMayBeSlow) {
  StartHedging();
  for (int i = 0; i < 4; ++i) service_.Next(service_.Hold());
  RetriedOutcome outcome;
  Look(outcome);
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(service_.seen.size(), 2u) << "two at a time";
  service_.End(0, absl::UnavailableError("one"));
  service_.End(1, absl::UnavailableError("two"));
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(service_.seen.size(), 4u) << "a retry, and its hedge";
  service_.End(3);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(channel_->stats().hedges, 2u);
  EXPECT_EQ(channel_->stats().retries, 1u);
  service_.End(2);
  ExpectNothingIsLeft();
}

// A hedge that had to queue would take the place of a call that has had none.
TEST_F(HedgeTest, WithoutAFreeSlotThereIsNoHedge) {
  ChannelOptions options = Hedging(kAfterUs);
  options.max_outstanding_calls = 1;
  Start(options);
  service_.Next(service_.Hold());
  RetriedOutcome outcome;
  Look(outcome);
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(channel_->stats().hedges, 0u);
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
}

TEST_F(HedgeTest, ACallThatWasNotSentYetHasNoHedge) {
  StartAlone(Hedging(kAfterUs));
  RetriedOutcome outcome;
  Look(outcome, {.wait_for_server = true});
  network_.RunFor(kNsPerSec);
  StartServer();
  service_.Next(service_.Hold());
  ASSERT_TRUE(RunUntil([&] { return service_.seen.size() == 1; }));
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u) << "now it has been slow";
}

TEST_F(HedgeTest, TheBudgetIsOfHedgesToo) {
  ChannelOptions options = Hedging(kAfterUs);
  options.retry.budget_tokens = 3;
  options.retry.refill_millitokens = 1;
  Start(options);
  for (int i = 0; i < 4; ++i) {
    service_.Next(service_.Hold());
    if (i == 0) service_.Next(StoreService::Echo());
    RetriedOutcome outcome;
    Look(outcome);
    network_.RunFor(100 * kNsPerMs);
    EXPECT_EQ(outcome.done(), i < 2) << i;
    if (!outcome.done()) service_.End(static_cast<size_t>(i));
    EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  }
  EXPECT_EQ(channel_->stats().hedges, 2u) << "the third and fourth token are not for hedges";
  EXPECT_EQ(channel_->stats().retries_refused, 2u);
}

// --- how they end --------------------------------------------------------------------------------

TEST_F(HedgeTest, OfTwoAnswersAtTheSameTimeOneCounts) {
  StartHedging();
  for (const size_t first : {0u, 1u}) {
    RetriedOutcome outcome;
    service_.Next(service_.Hold());
    service_.Next(service_.Hold());
    Look(outcome);
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2; }));
    service_.End(first);
    service_.End(1 - first);  // in the same turn
    EXPECT_EQ(EndOf(outcome), absl::OkStatus());
    network_.RunFor(kNsPerSec);
    EXPECT_EQ(outcome.completions, 1);
    service_.held.clear();
  }
  EXPECT_EQ(channel_->stats().late_replies, 2u);
  EXPECT_EQ(channel_->stats().calls_ok, 2u);
  ExpectNothingIsLeft();
}

TEST_F(HedgeTest, WhileOneIsUnderWayTheFailureOfTheOtherIsNoEnd) {
  StartHedging();
  for (const size_t fails : {0u, 1u}) {
    RetriedOutcome outcome;
    service_.Next(service_.Hold());
    service_.Next(service_.Hold());
    Look(outcome);
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2; }));
    service_.End(fails, absl::UnavailableError("no"));
    network_.RunFor(kNsPerMs);
    EXPECT_FALSE(outcome.done());
    service_.End(1 - fails);
    EXPECT_EQ(EndOf(outcome), absl::OkStatus());
    service_.held.clear();
  }
  EXPECT_EQ(channel_->stats().retries, 0u);
  ExpectNothingIsLeft();
}

TEST_F(HedgeTest, AnAnswerEndsTheCallEvenIfItIsAnError) {
  StartHedging();
  RetriedOutcome outcome;
  HoldBoth(outcome);
  service_.End(1, absl::NotFoundError("nothing there"));
  EXPECT_EQ(EndOf(outcome), absl::NotFoundError("nothing there"));
  EXPECT_TRUE(RunUntil([&] { return service_.cancelled == 1; }));
  service_.End(0);
  ExpectNothingIsLeft();
  EXPECT_EQ(outcome.completions, 1);
}

// The server says of one attempt that it has not run; the other, which is dropped, runs.
TEST_F(HedgeTest, WhatOneAttemptHasNotDoneTheOtherMayHave) {
  StartHedging();
  service_.Next(service_.Hold());
  service_.Next([](StoreService::Attempt attempt) {
    attempt.Finish(internal::NotImplemented(attempt.context()));
  });
  RetriedOutcome outcome;
  Look(outcome);
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun) << status;
  service_.End(0);
  ExpectNothingIsLeft();
}

TEST_F(HedgeTest, ALossEndsBothAndTheCallIsSentAgainOnce) {
  StartHedging();
  RetriedOutcome outcome;
  HoldBoth(outcome, {.wait_for_server = true});
  KillServer();
  StartServer();
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 3u);
  EXPECT_EQ(channel_->stats().retries, 1u);
  ExpectNothingIsLeft();
}

TEST_F(HedgeTest, ADeadlineEndsBoth) {
  StartHedging();
  RetriedOutcome outcome;
  HoldBoth(outcome, {.timeout_us = 20'000});
  const absl::Status status = EndOf(outcome);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  EXPECT_TRUE(RunUntil([&] { return service_.cancelled == 2; }));
  service_.End(0);
  service_.End(1);
  ExpectNothingIsLeft();
  EXPECT_EQ(outcome.completions, 1);
}

TEST_F(HedgeTest, ACancelEndsBoth) {
  StartHedging();
  ClientContext context;
  RetriedOutcome outcome;
  HoldBoth(outcome, {.context = &context});
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  EXPECT_TRUE(RunUntil([&] { return service_.cancelled == 2; }));
  service_.End(0);
  service_.End(1);
  ExpectNothingIsLeft();
}

TEST_F(HedgeTest, AChannelThatEndsEndsTheCallOnce) {
  StartHedging();
  RetriedOutcome outcome;
  HoldBoth(outcome);
  channel_.reset();
  EXPECT_EQ(outcome.completions, 1);
  EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
  EXPECT_EQ(DeliveryOf(outcome.status), Delivery::kMayHaveRun);
}

}  // namespace
}  // namespace weft::test
