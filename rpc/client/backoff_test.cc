#include "rpc/client/backoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace weft {
namespace {

constexpr uint64_t kMinUs = 1000;
constexpr uint64_t kMaxUs = 100'000;
constexpr int kTries = 10'000;

struct Range {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  uint64_t most = 0;
};

// Of many pauses after so many failures.
Range PausesAfter(int failures, uint64_t min_us, uint64_t max_us) {
  Backoff backoff(min_us, max_us, /*seed=*/7);
  for (int i = 0; i < failures; ++i) backoff.OnFailure();
  Range range;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t pause_us = backoff.NextPauseUs();
    range.least = std::min(range.least, pause_us);
    range.most = std::max(range.most, pause_us);
  }
  return range;
}

TEST(Backoff, EachFailureDoublesThePauseHalfOfWhichIsRandom) {
  // Few enough values that all of them come.
  for (int failures = 1; failures <= 5; ++failures) {
    const uint64_t longest_us = uint64_t{10} << (failures - 1);
    const Range range = PausesAfter(failures, 10, kMaxUs);
    EXPECT_EQ(range.least, longest_us / 2);
    EXPECT_EQ(range.most, longest_us);
  }
}

TEST(Backoff, NoPauseIsLongerThanTheLimit) {
  for (const int failures : {8, 31, 32, 33, 1000}) {
    const Range range = PausesAfter(failures, kMinUs, kMaxUs);
    EXPECT_GE(range.least, kMaxUs / 2);
    EXPECT_LE(range.most, kMaxUs);
  }
}

TEST(Backoff, TheLongestPausesThatMayBeAskedForDoNotOverflow) {
  constexpr uint64_t kHourUs = 3600 * uint64_t{1'000'000};
  const Range range = PausesAfter(1000, kHourUs, kHourUs);
  EXPECT_GE(range.least, kHourUs / 2);
  EXPECT_LE(range.most, kHourUs);
}

TEST(Backoff, AnOddPauseAndOneOfAMicrosecondKeepTheirBounds) {
  const Range odd = PausesAfter(1, 7, kMaxUs);
  EXPECT_EQ(odd.least, 4u);
  EXPECT_EQ(odd.most, 7u);
  const Range shortest = PausesAfter(1, 1, 1);
  EXPECT_EQ(shortest.least, 1u);
  EXPECT_EQ(shortest.most, 1u);
}

TEST(Backoff, AnAnswerMakesTheNextFailureTheFirst) {
  Backoff backoff(kMinUs, kMaxUs, /*seed=*/7);
  for (int i = 0; i < 20; ++i) backoff.OnFailure();
  EXPECT_EQ(backoff.failures(), 20u);
  backoff.OnAnswer();
  EXPECT_EQ(backoff.failures(), 0u);
  backoff.OnFailure();
  EXPECT_LE(backoff.NextPauseUs(), kMinUs);
}

}  // namespace
}  // namespace weft
