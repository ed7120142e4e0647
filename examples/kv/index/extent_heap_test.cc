#include "examples/kv/index/extent_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"

namespace kv::index {
namespace {

TEST(ExtentHeapTest, RoomIsFoundUntilThereIsNone) {
  ExtentHeap heap(2 * ExtentHeap::kSlabBytes);
  std::vector<uint32_t> extents;
  while (const auto where = heap.Allocate(1000)) extents.push_back(*where);
  EXPECT_EQ(extents.size(), 2 * (ExtentHeap::kSlabBytes / 1024));
  EXPECT_EQ(heap.used_bytes(), extents.size() * 1024);
  for (const uint32_t where : extents) heap.Free(where);
  EXPECT_EQ(heap.used_bytes(), 0u);
  heap.CheckInvariants();
}

TEST(ExtentHeapTest, AnEmptySlabServesAnotherSize) {
  ExtentHeap heap(ExtentHeap::kSlabBytes);
  const auto small = heap.Allocate(10);
  ASSERT_TRUE(small.has_value());
  EXPECT_FALSE(heap.Allocate(5000).has_value());
  heap.Free(*small);
  EXPECT_TRUE(heap.Allocate(5000).has_value());
}

TEST(ExtentHeapTest, WhatIsTooLargeHasNoPlace) {
  ExtentHeap heap(4 * ExtentHeap::kSlabBytes);
  EXPECT_TRUE(heap.Allocate(kMaxExtentBytes).has_value());
  EXPECT_FALSE(heap.Allocate(kMaxExtentBytes + 1).has_value());
}

TEST(ExtentHeapTest, LessThanASlabHoldsNothing) {
  EXPECT_FALSE(ExtentHeap(ExtentHeap::kSlabBytes - 1).Allocate(1).has_value());
}

TEST(ExtentHeapTest, ExtentsNeverOverlapAndLieWithinTheRegion) {
  const uint64_t seed = weft::TestSeed();
  SCOPED_TRACE(weft::SeedTrace(seed));
  weft::Random random(seed);
  constexpr uint64_t kBytes = 8 * ExtentHeap::kSlabBytes;
  ExtentHeap heap(kBytes);
  std::map<uint64_t, uint64_t> taken;  // begin -> end
  for (int i = 0; i < 20'000; ++i) {
    if (!taken.empty() && random.Chance(0.45)) {
      auto victim = taken.lower_bound(random.Uniform(kBytes));
      if (victim == taken.end()) victim = taken.begin();
      heap.Free(static_cast<uint32_t>(victim->first / kExtentUnitBytes));
      taken.erase(victim);
      continue;
    }
    const uint64_t bytes = 1 + random.Uniform(uint64_t{1} << random.Uniform(17));
    const auto where = heap.Allocate(bytes);
    if (!where.has_value()) continue;
    const uint64_t begin = uint64_t{*where} * kExtentUnitBytes;
    ASSERT_LE(begin + bytes, kBytes);
    const auto after = taken.lower_bound(begin);
    if (after != taken.end()) {
      ASSERT_LE(begin + bytes, after->first);
    }
    if (after != taken.begin()) {
      ASSERT_LE(std::prev(after)->second, begin);
    }
    taken[begin] = begin + bytes;
    if (i % 1000 == 0) heap.CheckInvariants();
  }
  heap.CheckInvariants();
}

}  // namespace
}  // namespace kv::index
