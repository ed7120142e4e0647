#include "core/random.h"

#include <array>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

std::vector<uint64_t> Take(Random random, int count) {
  std::vector<uint64_t> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(random.Next64());
  return numbers;
}

TEST(Random, IsXoshiro256StarStar) {
  // The reference implementation's first numbers from this state.
  EXPECT_EQ(Take(Random({1, 2, 3, 4}), 4),
            (std::vector<uint64_t>{11520, 0, 1509978240, 1215971899390074240}));
}

TEST(Random, SeedsThroughSplitmix64) {
  // splitmix64's first numbers from state 0, as published.
  const Random expected(
      {0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC});
  EXPECT_EQ(Take(Random(0), 5), Take(expected, 5));
}

TEST(Random, SameSeedSameNumbers) {
  EXPECT_EQ(Take(Random(42), 100), Take(Random(42), 100));
  EXPECT_NE(Take(Random(42), 100), Take(Random(43), 100));
}

TEST(Random, UniformStaysBelowItsBoundAndReachesAll) {
  Random random(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.Uniform(10));
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(*seen.rbegin(), 9u);
  EXPECT_EQ(random.Uniform(1), 0u);
}

// With a bound of 3/4 of the range, "number modulo bound" would hit the lower third twice as often.
TEST(Random, UniformHasNoBias) {
  Random random(2);
  const uint64_t bound = (uint64_t{3} << 62);
  int low = 0;
  for (int i = 0; i < 30'000; ++i) low += random.Uniform(bound) < bound / 3;
  EXPECT_NEAR(low, 10'000, 400);
}

TEST(Random, RangeIncludesBothEnds) {
  Random random(3);
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(random.UniformInRange(5, 8));
  EXPECT_EQ(seen, (std::set<uint64_t>{5, 6, 7, 8}));
  random.UniformInRange(0, ~uint64_t{0});
}

TEST(Random, DoublesFillTheUnitInterval) {
  Random random(4);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = random.UniformDouble();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

TEST(Random, ChanceIsNeverForZeroAndAlwaysForOne) {
  Random random(5);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(random.Chance(0));
    ASSERT_TRUE(random.Chance(1));
  }
}

TEST(Random, ForksAreIndependent) {
  Random random(6);
  EXPECT_NE(Take(random.Fork(), 10), Take(random.Fork(), 10));
}

TEST(SecureRandom, FillsEveryByte) {
  // 64 rounds: a byte that stays 0 in all of them was not written.
  std::array<std::byte, 300> seen = {};
  for (int round = 0; round < 64; ++round) {
    std::array<std::byte, 300> bytes = {};
    SecureRandomBytes(bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) seen[i] |= bytes[i];
  }
  for (const std::byte b : seen) EXPECT_NE(b, std::byte{0});
  SecureRandomBytes({});
}

TEST(SecureRandom, DoesNotRepeatItself) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(SecureRandom64());
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace weft
