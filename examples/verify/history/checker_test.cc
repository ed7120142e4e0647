// What the checker accepts, and each classic way in which a store can be wrong.
#include "examples/verify/history/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "core/test_seed.h"
#include "examples/verify/history/recorder.h"

namespace verify {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kKey = 7;

// A history as a table of lines: who, what, from when until when.
Operation Get(Value value, uint64_t from, uint64_t until) {
  return {Kind::kGet, kKey, value, Before::kNotSaid, from, until, 0};
}
Operation Put(Value value, uint64_t from, uint64_t until, Before before = Before::kNotSaid) {
  return {Kind::kPut, kKey, value, before, from, until, 1};
}
Operation Delete(uint64_t from, uint64_t until, Before before = Before::kNotSaid) {
  return {Kind::kDelete, kKey, kAbsent, before, from, until, 2};
}

bool Linearizable(const History& history) { return CheckHistory(history).ok(); }

TEST(CheckerTest, NothingIsLinearizable) { EXPECT_TRUE(Linearizable({})); }

TEST(CheckerTest, OneAfterTheOtherAsAMapAnswers) {
  EXPECT_TRUE(
      Linearizable({Get(kAbsent, 0, 1), Put(1, 2, 3, Before::kAbsent), Get(1, 4, 5),
                    Put(2, 6, 7, Before::kThere), Get(2, 8, 9), Delete(10, 11, Before::kThere),
                    Get(kAbsent, 12, 13), Delete(14, 15, Before::kAbsent)}));
}

TEST(CheckerTest, AnOverlappingPutMayBeSeenOrNot) {
  EXPECT_TRUE(Linearizable({Put(1, 0, 10), Get(kAbsent, 2, 3), Get(1, 4, 5)}));
  EXPECT_TRUE(Linearizable({Put(1, 0, 10), Get(1, 2, 3), Get(1, 4, 5)}));
}

TEST(CheckerTest, OverlappingPutsMayHappenInEitherOrder) {
  EXPECT_TRUE(Linearizable({Put(1, 0, 10), Put(2, 0, 10), Get(1, 11, 12)}));
  EXPECT_TRUE(Linearizable({Put(1, 0, 10), Put(2, 0, 10), Get(2, 11, 12)}));
}

TEST(CheckerTest, TouchingTimesOverlap) {
  EXPECT_TRUE(Linearizable({Put(1, 0, 5), Get(kAbsent, 5, 6)}));
  EXPECT_FALSE(Linearizable({Put(1, 0, 5), Get(kAbsent, 6, 7)}));
}

TEST(CheckerTest, AStaleReadIsFound) {
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Put(2, 2, 3), Get(1, 4, 5)}));
}

TEST(CheckerTest, ALostUpdateIsFound) {
  // Both say that they made the record, and nobody deleted it.
  EXPECT_FALSE(Linearizable({Put(1, 0, 10, Before::kAbsent), Put(2, 0, 10, Before::kAbsent)}));
  // The later one is gone although it was seen.
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Put(2, 2, 3), Get(2, 4, 5), Get(1, 6, 7)}));
}

TEST(CheckerTest, AValueThatNobodyWroteIsFound) {
  const Verdict verdict = CheckHistory({Put(1, 0, 10), Get(3, 5, 6)});
  EXPECT_EQ(verdict.kind, Verdict::Kind::kViolation);
  EXPECT_THAT(verdict.text, HasSubstr("nobody wrote that"));
}

TEST(CheckerTest, AReadOfAValueBeforeItsPutIsFound) {
  EXPECT_FALSE(Linearizable({Get(1, 0, 1), Put(1, 2, 3)}));
}

TEST(CheckerTest, AResurrectedRecordIsFound) {
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Delete(2, 3), Get(1, 4, 5)}));
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Delete(2, 10), Get(kAbsent, 3, 4), Get(1, 5, 6)}));
}

TEST(CheckerTest, ARecordThatVanishesIsFound) {
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Get(kAbsent, 2, 3)}));
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Put(2, 2, 10), Get(kAbsent, 3, 4)}));
}

TEST(CheckerTest, ReadsThatGoBackInTimeAreFound) {
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Put(2, 2, 10), Get(2, 3, 4), Get(1, 5, 6)}));
  EXPECT_TRUE(Linearizable({Put(1, 0, 1), Put(2, 2, 10), Get(2, 3, 6), Get(1, 5, 6)}));
}

TEST(CheckerTest, ADeleteThatLiesIsFound) {
  EXPECT_FALSE(Linearizable({Put(1, 0, 1), Delete(2, 3, Before::kAbsent)}));
  EXPECT_FALSE(
      Linearizable({Put(1, 0, 1), Delete(2, 9, Before::kThere), Delete(2, 9, Before::kThere)}));
}

TEST(CheckerTest, WhatNeverReturnedMayHaveHappenedOrNot) {
  EXPECT_TRUE(Linearizable({Put(1, 0, 1), Put(2, 2, kNeverReturned), Get(1, 100, 101)}));
  EXPECT_TRUE(
      Linearizable({Put(1, 0, 1), Put(2, 2, kNeverReturned), Get(1, 100, 101), Get(2, 200, 201)}));
  EXPECT_FALSE(
      Linearizable({Put(1, 0, 1), Put(2, 2, kNeverReturned), Get(2, 100, 101), Get(1, 200, 201)}));
  EXPECT_FALSE(Linearizable({Get(2, 0, 1), Put(2, 2, kNeverReturned)}));
  EXPECT_TRUE(Linearizable({Put(1, 0, 1), Delete(2, kNeverReturned), Get(kAbsent, 5, 6),
                            Put(3, 7, 8, Before::kAbsent)}));
}

TEST(CheckerTest, KeysAreApart) {
  Operation other = Get(kAbsent, 4, 5);
  other.key = 8;
  EXPECT_TRUE(Linearizable({Put(1, 0, 1), other}));
  other.value = 1;
  const Verdict verdict = CheckHistory({Put(1, 0, 1), other});
  EXPECT_THAT(verdict.text, HasSubstr("key 8"));
}

TEST(CheckerTest, ACounterExampleCanBeRead) {
  const Verdict verdict =
      CheckHistory({Put(17, 1'000, 2'000), Put(18, 3'000, 4'000), Get(17, 5'500, 6'000)});
  ASSERT_EQ(verdict.kind, Verdict::Kind::kViolation);
  EXPECT_THAT(verdict.text, HasSubstr("key 7: not linearizable"));
  EXPECT_THAT(verdict.text, HasSubstr("lane 1   Put 17"));
  EXPECT_THAT(verdict.text, HasSubstr("Get -> 17"));
  EXPECT_THAT(verdict.text, HasSubstr("4.500 .. 5.000 us"));
}

// Plays `operations` on a real map: each takes effect at one moment of its time.
class Simulated {
 public:
  Simulated(weft::Random* random, size_t operations, uint32_t lanes) : random_(*random) {
    std::vector<uint64_t> free_ns(lanes);
    for (size_t i = 0; i < operations; ++i) {
      const auto lane = static_cast<uint32_t>(random_.Uniform(lanes));
      Operation operation = NextOperation(lane);
      operation.invoked_ns = free_ns[lane] + 1 + random_.Uniform(20);
      operation.returned_ns = operation.invoked_ns + 1 + random_.Uniform(100);
      free_ns[lane] = operation.returned_ns;
      history_.push_back(operation);
    }
    Answer();
  }

  History& history() { return history_; }

  // A part of the writes loses its answer.
  void LoseAnswers(double part) {
    for (Operation& operation : history_) {
      if (!operation.writes() || !random_.Chance(part)) continue;
      operation.returned_ns = kNeverReturned;
      operation.before = Before::kNotSaid;
    }
  }

 private:
  Operation NextOperation(uint32_t lane) {
    const uint64_t kind = random_.Uniform(10);
    Operation operation;
    operation.key = kKey;
    operation.lane = lane;
    operation.kind = kind < 5 ? Kind::kGet : kind < 9 ? Kind::kPut : Kind::kDelete;
    if (operation.kind == Kind::kPut) operation.value = ++last_value_;
    return operation;
  }

  void Answer() {
    std::vector<std::pair<double, size_t>> moments;
    for (size_t i = 0; i < history_.size(); ++i) {
      const Operation& it = history_[i];
      const auto length = static_cast<double>(it.returned_ns - it.invoked_ns);
      moments.push_back({static_cast<double>(it.invoked_ns) + random_.UniformDouble() * length, i});
    }
    std::sort(moments.begin(), moments.end());
    Value state = kAbsent;
    for (const auto& [moment, i] : moments) {
      Operation& it = history_[i];
      if (it.writes()) it.before = state == kAbsent ? Before::kAbsent : Before::kThere;
      if (it.kind == Kind::kGet) it.value = state;
      if (it.kind == Kind::kPut) state = it.value;
      if (it.kind == Kind::kDelete) state = kAbsent;
    }
  }

  weft::Random& random_;
  Value last_value_ = 0;
  History history_;
};

TEST(CheckerTest, TenThousandOperationsOnOneKeyAreCheckedWithinABound) {
  const uint64_t seed = weft::TestSeed();
  SCOPED_TRACE(weft::SeedTrace(seed));
  weft::Random random(seed);
  Simulated simulated(&random, 10'000, /*lanes=*/16);
  const Verdict verdict = CheckHistory(simulated.history());
  EXPECT_TRUE(verdict.ok()) << verdict.text;
  EXPECT_EQ(verdict.operations, 10'000u);
  EXPECT_LT(verdict.configurations, 200'000u);
}

TEST(CheckerTest, LostAnswersDoNotMakeAGoodHistoryBad) {
  const uint64_t seed = weft::TestSeed();
  SCOPED_TRACE(weft::SeedTrace(seed));
  weft::Random random(seed);
  for (int round = 0; round < 20; ++round) {
    Simulated simulated(&random, 500, /*lanes=*/8);
    simulated.LoseAnswers(0.01);
    const Verdict verdict = CheckHistory(simulated.history());
    EXPECT_TRUE(verdict.ok()) << verdict.text;
  }
}

// One wrong answer in a long history.
TEST(CheckerTest, OneStaleReadAmongThousandsIsFound) {
  const uint64_t seed = weft::TestSeed();
  SCOPED_TRACE(weft::SeedTrace(seed));
  weft::Random random(seed);
  for (int round = 0; round < 20; ++round) {
    Simulated simulated(&random, 3000, /*lanes=*/8);
    History& history = simulated.history();
    // The value of a Put that another one, far behind it and far ahead of the reader, overwrote.
    const auto put = std::find_if(history.begin() + 500, history.end(),
                                  [](const Operation& o) { return o.kind == Kind::kPut; });
    const auto get = std::find_if(history.begin() + 2500, history.end(),
                                  [](const Operation& o) { return o.kind == Kind::kGet; });
    get->value = put->value;
    EXPECT_EQ(CheckHistory(history).kind, Verdict::Kind::kViolation);
  }
}

// By all orders there are: the definition itself.
bool LinearizableByDefinition(const History& history) {
  std::vector<size_t> order(history.size());
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    Value state = kAbsent;
    bool good = true;
    for (size_t i = 0; i < order.size() && good; ++i) {
      const Operation& it = history[order[i]];
      for (size_t j = i + 1; j < order.size(); ++j) {
        good = good && history[order[j]].returned_ns >= it.invoked_ns;
      }
      if (it.before == Before::kThere) good = good && state != kAbsent;
      if (it.before == Before::kAbsent) good = good && state == kAbsent;
      if (it.kind == Kind::kGet) good = good && it.value == state;
      if (it.kind == Kind::kPut) state = it.value;
      if (it.kind == Kind::kDelete) state = kAbsent;
    }
    if (good) return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

TEST(CheckerTest, AgreesWithTheDefinitionOnSmallHistories) {
  const uint64_t seed = weft::TestSeed();
  SCOPED_TRACE(weft::SeedTrace(seed));
  weft::Random random(seed);
  int bad = 0;
  for (int round = 0; round < 2000; ++round) {
    Simulated simulated(&random, 1 + random.Uniform(6), /*lanes=*/3);
    History& history = simulated.history();
    // Answers at random: some are possible by chance.
    for (Operation& operation : history) {
      if (operation.kind == Kind::kGet && random.Chance(0.3)) operation.value = random.Uniform(4);
      if (operation.writes() && random.Chance(0.5)) operation.before = Before::kNotSaid;
      if (operation.kind == Kind::kPut && random.Chance(0.2)) operation.value = 1;  // twice
    }
    const bool expected = LinearizableByDefinition(history);
    EXPECT_EQ(Linearizable(history), expected) << "round " << round;
    bad += expected ? 0 : 1;
  }
  EXPECT_GT(bad, 100);
  EXPECT_LT(bad, 1900);
}

TEST(CheckerTest, GivesUpRatherThanTakeAllMemory) {
  const uint64_t seed = weft::TestSeed();
  SCOPED_TRACE(weft::SeedTrace(seed));
  weft::Random random(seed);
  Simulated simulated(&random, 1000, /*lanes=*/8);
  const Verdict verdict = CheckHistory(simulated.history(), {.max_configurations = 10});
  EXPECT_EQ(verdict.kind, Verdict::Kind::kGaveUp);
  EXPECT_THAT(verdict.text, HasSubstr("gave up"));
}

TEST(RecorderTest, MergesItsLanesByInvocation) {
  weft::FakeClock clock(1'000);
  Recorder recorder(clock, 2);
  recorder.lane(1).Invoke(Kind::kPut, kKey, 5);
  clock.Advance(10);
  recorder.lane(0).Invoke(Kind::kGet, kKey);
  clock.Advance(10);
  recorder.lane(1).ReturnWrite(Before::kAbsent);
  recorder.lane(0).ReturnGet(5);
  recorder.lane(0).Invoke(Kind::kDelete, kKey);
  recorder.lane(0).ReturnUnknown();
  recorder.lane(1).Invoke(Kind::kPut, kKey, 6);
  recorder.lane(1).ReturnNothing();
  const History expected = {
      {Kind::kPut, kKey, 5, Before::kAbsent, 1'000, 1'020, 1},
      {Kind::kGet, kKey, 5, Before::kNotSaid, 1'010, 1'020, 0},
      {Kind::kDelete, kKey, kAbsent, Before::kNotSaid, 1'020, kNeverReturned, 0}};
  EXPECT_EQ(recorder.Merge(), expected);
}

}  // namespace
}  // namespace verify
