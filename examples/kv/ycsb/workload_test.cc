// The generators against the arithmetic they promise. All seeds are fixed: nothing here is left to
// chance, and the tolerances are those of the sample sizes (4 standard deviations).
#include "examples/kv/ycsb/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace kv::ycsb {
namespace {

using ::testing::ElementsAre;

// How far a count of `samples` events of probability p may be from p * samples.
double Tolerance(double p, double samples) { return 4 * std::sqrt(samples * p * (1 - p)); }

double SlowZeta(uint64_t n) {
  double sum = 0;
  for (uint64_t k = n; k >= 1; --k) sum += std::pow(static_cast<double>(k), -kZipfianTheta);
  return sum;
}

TEST(ZetaTest, IsTheSumThatItStandsFor) {
  for (const uint64_t n : {1, 2, 999, 1000, 1001, 5000, 1'000'000}) {
    EXPECT_NEAR(Zeta(n, kZipfianTheta), SlowZeta(n), 1e-9) << n;
  }
}

// The constant that the reference implementation carries, because it can't compute it quickly.
TEST(ZetaTest, OfTenBillionItemsIsYcsbsConstant) {
  EXPECT_NEAR(Zeta(10'000'000'000, kZipfianTheta), 26.46902820178302, 1e-6);
}

std::vector<uint64_t> CountsByRank(const Zipfian& zipfian, uint64_t draws) {
  weft::Random random(1);
  std::vector<uint64_t> counts(zipfian.items());
  for (uint64_t i = 0; i < draws; ++i) ++counts.at(zipfian.Next(random));
  return counts;
}

TEST(ZipfianTest, TheTwoMostPopularItemsAreExact) {
  constexpr uint64_t kDraws = 1'000'000;
  const std::vector<uint64_t> counts = CountsByRank(Zipfian(1000), kDraws);
  const double first = 1 / SlowZeta(1000);
  const double second = std::pow(2, -kZipfianTheta) / SlowZeta(1000);
  EXPECT_NEAR(counts[0], first * kDraws, Tolerance(first, kDraws));
  EXPECT_NEAR(counts[1], second * kDraws, Tolerance(second, kDraws));
}

// Beyond the second item the method follows a smooth curve: its cumulative share stays within 3
// percentage points of the exact one everywhere.
TEST(ZipfianTest, TheCumulativeShareFollowsTheExactOne) {
  constexpr uint64_t kDraws = 1'000'000;
  const std::vector<uint64_t> counts = CountsByRank(Zipfian(1000), kDraws);
  double drawn = 0;
  double exact = 0;
  for (uint64_t rank = 0; rank < 1000; ++rank) {
    drawn += static_cast<double>(counts[rank]) / kDraws;
    exact += std::pow(static_cast<double>(rank + 1), -kZipfianTheta) / SlowZeta(1000);
    ASSERT_NEAR(drawn, exact, 0.03) << "rank " << rank;
  }
}

TEST(ZipfianTest, EvenTheLeastPopularItemIsDrawn) {
  for (const uint64_t items : {1, 2, 3, 10}) {
    const std::vector<uint64_t> counts = CountsByRank(Zipfian(items), 10'000);
    EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 0u) << items << " items";
  }
}

TEST(ZipfianTest, GrowingIsTheSameAsHavingBeenLarge) {
  Zipfian grown(10);
  for (uint64_t items = 11; items <= 2000; ++items) grown.GrowTo(items);
  grown.GrowTo(5000);
  const Zipfian large(5000);
  EXPECT_NEAR(grown.top_probability(), large.top_probability(), 1e-12);
  weft::Random one(7);
  weft::Random two(7);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(grown.Next(one), large.Next(two));
}

TEST(WorkloadTest, TheMixIsWhatThePaperSays) {
  struct Expectation {
    char name;
    std::array<double, kOperationKinds> share;  // read, update, insert, scan, rmw
  };
  constexpr int kDraws = 100'000;
  for (const Expectation& expected : {
           Expectation{'A', {0.50, 0.50, 0, 0, 0}},
           Expectation{'B', {0.95, 0.05, 0, 0, 0}},
           Expectation{'C', {1, 0, 0, 0, 0}},
           Expectation{'D', {0.95, 0, 0.05, 0, 0}},
           Expectation{'E', {0, 0, 0.05, 0.95, 0}},
           Expectation{'F', {0.50, 0, 0, 0, 0.50}},
       }) {
    OperationStream stream(*FindWorkload(expected.name), 1000, 10, 1);
    std::array<int, kOperationKinds> counts = {};
    for (int i = 0; i < kDraws; ++i) {
      const Operation operation = stream.Next();
      ++counts[static_cast<int>(operation.kind)];
      if (operation.kind == OperationKind::kInsert) stream.InsertDone(operation.record);
    }
    for (int kind = 0; kind < kOperationKinds; ++kind) {
      const double share = expected.share[kind];
      EXPECT_NEAR(counts[kind], share * kDraws, Tolerance(share, kDraws))
          << "workload " << expected.name << ", "
          << OperationName(static_cast<OperationKind>(kind));
    }
  }
}

TEST(WorkloadTest, NamesAreAToFInEitherCase) {
  EXPECT_EQ(FindWorkload('a')->name, 'A');
  EXPECT_EQ(FindWorkload('F')->name, 'F');
  for (const char name : {'g', 'G', '@', '0', '\0'}) {
    EXPECT_TRUE(absl::IsInvalidArgument(FindWorkload(name).status())) << name;
  }
}

TEST(WorkloadTest, TheSameSeedGivesTheSameOperations) {
  OperationStream one(*FindWorkload('A'), 1000, 10, 42);
  OperationStream two(*FindWorkload('A'), 1000, 10, 42);
  OperationStream other(*FindWorkload('A'), 1000, 10, 43);
  int differences = 0;
  for (int i = 0; i < 1000; ++i) {
    const Operation a = one.Next();
    const Operation b = two.Next();
    ASSERT_TRUE(a.kind == b.kind && a.record == b.record && a.field == b.field);
    differences += a.record != other.Next().record;
  }
  EXPECT_GT(differences, 900);
}

// 3.78 % is 1 / 26.469: the share of the first among 10^10 zipfian items.
TEST(WorkloadTest, TheHottestRecordIsScrambledAndGetsItsShare) {
  constexpr int kDraws = 200'000;
  OperationStream stream(*FindWorkload('C'), 100'000, 10, 1);
  std::map<uint64_t, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[stream.Next().record];
  const auto hottest =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_EQ(hottest->first, FnvHash(0) % 100'000);
  EXPECT_NEAR(hottest->second, 0.03778 * kDraws, Tolerance(0.03778, kDraws));
  EXPECT_LT(counts.rbegin()->first, 100'000u);
}

TEST(WorkloadTest, EveryFieldIsWrittenEquallyOften) {
  constexpr int kDraws = 100'000;
  OperationStream stream(*FindWorkload('A'), 1000, 10, 1);
  std::array<int, 10> counts = {};
  for (int i = 0; i < kDraws; ++i) ++counts.at(stream.Next().field);
  for (const int count : counts) EXPECT_NEAR(count, 0.1 * kDraws, Tolerance(0.1, kDraws));
}

TEST(WorkloadTest, ScansReadOneToAHundredRecordsUniformly) {
  OperationStream stream(*FindWorkload('E'), 1000, 10, 1);
  std::map<uint32_t, int> counts;
  int scans = 0;
  for (int i = 0; i < 100'000; ++i) {
    const Operation operation = stream.Next();
    if (operation.kind != OperationKind::kScan) continue;
    ++counts[operation.scan_records];
    ++scans;
  }
  ASSERT_EQ(counts.size(), 100u);
  EXPECT_EQ(counts.begin()->first, 1u);
  EXPECT_EQ(counts.rbegin()->first, 100u);
  for (const auto& [length, count] : counts) {
    EXPECT_NEAR(count, scans * 0.01, Tolerance(0.01, scans)) << length;
  }
}

TEST(WorkloadTest, LatestPrefersTheNewestRecordThatIsStored) {
  OperationStream stream(*FindWorkload('D'), 1000, 10, 1);
  constexpr int kDraws = 100'000;
  int reads = 0;
  int of_newest = 0;
  uint64_t stored = 1000;
  for (int i = 0; i < kDraws; ++i) {
    const Operation operation = stream.Next();
    if (operation.kind == OperationKind::kInsert) {
      ASSERT_EQ(operation.record, stored);
      stream.InsertDone(operation.record);
      ++stored;
    } else {
      ASSERT_LT(operation.record, stored);
      ++reads;
      of_newest += operation.record == stored - 1;
    }
  }
  // From 1,000 to 6,000 records the newest one's share falls from 13.3 % to 10.8 %.
  EXPECT_GT(of_newest, 0.108 * reads);
  EXPECT_LT(of_newest, 0.133 * reads);
}

TEST(WorkloadTest, ARecordIsChosenOnlyOnceItsInsertIsDone) {
  for (const char name : {'D', 'E'}) {
    OperationStream stream(*FindWorkload(name), 10, 1, 1);
    for (int i = 0; i < 10'000; ++i) {  // no insert is ever done
      const Operation operation = stream.Next();
      if (operation.kind == OperationKind::kInsert) continue;
      ASSERT_LT(operation.record, 10u);
    }
  }
}

TEST(InsertOrderTest, AGapHoldsBackWhatIsStoredBehindIt) {
  InsertOrder order(10);
  EXPECT_THAT((std::array{order.Next(), order.Next(), order.Next()}), ElementsAre(10, 11, 12));
  order.Done(12);
  order.Done(11);
  EXPECT_EQ(order.stored(), 10u);
  order.Done(10);
  EXPECT_EQ(order.stored(), 13u);
}

TEST(RecordKeyTest, KeysAreDistinctAndNotInTheOrderOfInsertion) {
  std::set<std::string> keys;
  for (uint64_t number = 0; number < 100'000; ++number) keys.insert(RecordKey(number));
  EXPECT_EQ(keys.size(), 100'000u);
  EXPECT_NE(*keys.begin(), RecordKey(0));
  EXPECT_EQ(RecordKey(0), "user12161962213042174405");
}

}  // namespace
}  // namespace kv::ycsb
