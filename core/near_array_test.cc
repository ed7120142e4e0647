#include "core/near_array.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "core/slab.h"

namespace weft {
namespace {

template <class Inside, class Outside>
bool IsInside(const Inside& inside, const Outside& outside) {
  const auto* const place = reinterpret_cast<const std::byte*>(&inside);
  const auto* const begin = reinterpret_cast<const std::byte*>(&outside);
  return place >= begin && place < begin + sizeof(outside);
}

TEST(NearArray, OneElementIsInside) {
  NearArray<uint64_t> array;
  array.Reserve(3);
  EXPECT_EQ(array.size(), 0u);
  EXPECT_TRUE(IsInside(array.Grow(7u), array));
  EXPECT_EQ(array[0], 7u);
}

TEST(NearArray, WithASecondAllHaveTheirPlaceOutside) {
  NearArray<uint64_t> array;
  array.Reserve(3);
  array.Grow(7u);
  array.Grow(8u);
  EXPECT_FALSE(IsInside(array[0], array));
  EXPECT_EQ(array[0], 7u);
  const uint64_t* const first = &array[0];
  array.Grow(9u);
  EXPECT_EQ(&array[0], first);
  EXPECT_EQ(array[2], 9u);
  EXPECT_EQ(array.size(), array.capacity());
}

TEST(NearArrayDeathTest, GrowingBeyondTheCapacityAborts) {
  NearArray<uint64_t> array;
  array.Reserve(1);
  array.Grow(1u);
  EXPECT_DEATH(array.Grow(2u), "");
}

// The slab of a client's calls.
TEST(NearArray, ASlabOnItKeepsNamesAndValuesWhenASecondIsNeeded) {
  Slab<uint64_t, NearArray> slab(2);
  SlabHandle first, second, none;
  uint64_t* const value = slab.Allocate(&first);
  ASSERT_NE(value, nullptr);
  EXPECT_TRUE(IsInside(*value, slab));
  *value = 7;
  ASSERT_NE(slab.Allocate(&second), nullptr);
  EXPECT_EQ(slab.Allocate(&none), nullptr);
  ASSERT_NE(slab.Get(first), nullptr);
  EXPECT_FALSE(IsInside(*slab.Get(first), slab));
  EXPECT_EQ(*slab.Get(first), 7u);
  EXPECT_NE(slab.Release(first), nullptr);
  EXPECT_EQ(slab.Release(first), nullptr);
  slab.CheckInvariants();
}

}  // namespace
}  // namespace weft
