#include "examples/verify/witness/ledger.h"

#include <gtest/gtest.h>

#include "weft/status.h"

namespace kv::witness {
namespace {

const absl::Status kNotSentStatus =
    weft::WithDelivery(absl::UnavailableError("gone"), weft::Delivery::kNotSent);
const absl::Status kMayHaveRunStatus =
    weft::WithDelivery(absl::UnavailableError("gone"), weft::Delivery::kMayHaveRun);

TEST(EndingTest, AStatusSaysWhetherTheCallRan) {
  EXPECT_EQ(EndingOf(absl::OkStatus(), true), Ending::kOk);
  EXPECT_EQ(EndingOf(kNotSentStatus, false), Ending::kNotSent);
  EXPECT_EQ(EndingOf(kMayHaveRunStatus, false), Ending::kMayHaveRun);
  EXPECT_EQ(EndingOf(absl::DeadlineExceededError("late"), false), Ending::kMayHaveRun);
  EXPECT_EQ(
      EndingOf(weft::WithDelivery(absl::DeadlineExceededError("late"), weft::Delivery::kNotSent),
               false),
      Ending::kNotSent);
}

TEST(EndingTest, NoFaultExcusesOtherStatusesOrWrongReplies) {
  EXPECT_EQ(EndingOf(absl::OkStatus(), false), Ending::kWrong);
  EXPECT_EQ(EndingOf(absl::InternalError("not sent"), false), Ending::kWrong);
  EXPECT_EQ(EndingOf(absl::UnavailableError("says nothing"), false), Ending::kWrong);
}

TEST(LedgerTest, ACallThatEndsTwiceIsFound) {
  Ledger ledger;
  const uint64_t call = ledger.Start(1'000);
  EXPECT_EQ(ledger.under_way(), 1u);
  ledger.End(call, absl::OkStatus(), true, 500);
  EXPECT_EQ(ledger.under_way(), 0u);
  EXPECT_EQ(ledger.ended_twice(), 0u);
  ledger.End(call, kMayHaveRunStatus, false, 600);
  EXPECT_EQ(ledger.ended_twice(), 1u);
  EXPECT_EQ(ledger.EndingOf(call), Ending::kOk);
}

TEST(LedgerTest, TheLatestEndIsMeasuredFromItsOwnDeadline) {
  Ledger ledger;
  const uint64_t early = ledger.Start(1'000);
  const uint64_t late = ledger.Start(2'000);
  ledger.End(early, absl::OkStatus(), true, 900);
  EXPECT_EQ(ledger.latest_ns(), 0u);
  ledger.End(late, kNotSentStatus, false, 2'300);
  EXPECT_EQ(ledger.latest_ns(), 300u);
}

TEST(LedgerTest, ATallyCountsSinceTheLastOne) {
  Ledger ledger;
  ledger.End(ledger.Start(10), absl::OkStatus(), true, 1);
  ledger.End(ledger.Start(10), absl::DeadlineExceededError("late"), false, 11);
  ledger.End(ledger.Start(10), absl::InternalError("broken"), false, 1);
  const Tally first = ledger.TakeTally();
  EXPECT_EQ(first.ok, 1u);
  EXPECT_EQ(first.may_have_run, 1u);
  EXPECT_EQ(first.deadlines, 1u);
  EXPECT_EQ(first.wrong, 1u);
  EXPECT_EQ(first.first_error, "DEADLINE_EXCEEDED: late");
  EXPECT_EQ(ledger.first_wrong(), "INTERNAL: broken");
  ledger.End(ledger.Start(10), kNotSentStatus, false, 1);
  const Tally second = ledger.TakeTally();
  EXPECT_EQ(second.ok, 0u);
  EXPECT_EQ(second.not_sent, 1u);
}

}  // namespace
}  // namespace kv::witness
