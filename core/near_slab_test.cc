#include "core/near_slab.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace weft {
namespace {

struct Thing {
  uint64_t value = 0;
};

bool IsInside(const Thing* thing, const NearSlab<Thing>& slab) {
  const auto* const place = reinterpret_cast<const std::byte*>(thing);
  const auto* const begin = reinterpret_cast<const std::byte*>(&slab);
  return place >= begin && place < begin + sizeof(slab);
}

TEST(NearSlab, AsLongAsOneIsEnoughItIsInside) {
  NearSlab<Thing> slab;
  slab.Start(3);
  for (int i = 0; i < 3; ++i) {
    SlabHandle handle;
    Thing* const thing = slab.Allocate(&handle);
    ASSERT_NE(thing, nullptr);
    EXPECT_TRUE(IsInside(thing, slab));
    EXPECT_EQ(handle.slot, 0u);
    slab.Free(handle);
  }
}

TEST(NearSlab, TheFirstKeepsItsNameAndValueWhenASecondIsNeeded) {
  NearSlab<Thing> slab;
  slab.Start(3);
  SlabHandle first, second;
  slab.Allocate(&first)->value = 7;
  ASSERT_NE(slab.Allocate(&second), nullptr);
  ASSERT_NE(slab.Get(first), nullptr);
  EXPECT_FALSE(IsInside(slab.Get(first), slab));
  EXPECT_EQ(slab.Get(first)->value, 7u);
  EXPECT_NE(slab.Release(first), nullptr);
  EXPECT_EQ(slab.Get(first), nullptr);
  slab.CheckInvariants();
}

TEST(NearSlab, HandsOutAsManyAsItHasRoomForEachUnderANameOfItsOwn) {
  for (const uint32_t capacity : {1u, 2u, 5u}) {
    NearSlab<Thing> slab;
    slab.Start(capacity);
    std::vector<SlabHandle> handles(capacity);
    for (uint32_t i = 0; i < capacity; ++i) {
      Thing* const thing = slab.Allocate(&handles[i]);
      ASSERT_NE(thing, nullptr);
      thing->value = i;
      EXPECT_LT(handles[i].slot, capacity);
    }
    SlabHandle none;
    EXPECT_EQ(slab.Allocate(&none), nullptr);
    EXPECT_EQ(slab.size(), capacity);
    for (uint32_t i = 0; i < capacity; ++i) EXPECT_EQ(slab.Get(handles[i])->value, i);
    uint32_t seen = 0;
    slab.ForEach([&](SlabHandle handle, Thing& thing) {
      EXPECT_EQ(handle, handles[thing.value]);
      ++seen;
    });
    EXPECT_EQ(seen, capacity);
    slab.CheckInvariants();
  }
}

TEST(NearSlab, StaleAndForgedHandlesFindNothing) {
  NearSlab<Thing> slab;
  slab.Start(2);
  SlabHandle first, second;
  ASSERT_NE(slab.Allocate(&first), nullptr);
  ASSERT_NE(slab.Allocate(&second), nullptr);
  for (const SlabHandle live : {first, second}) {
    EXPECT_EQ(slab.Get({live.slot, live.generation + 2}), nullptr);
    EXPECT_NE(slab.Release(live), nullptr);
    EXPECT_EQ(slab.Get(live), nullptr);
    EXPECT_EQ(slab.Release(live), nullptr);
    // Even: what a free one has.
    EXPECT_EQ(slab.Get({live.slot, live.generation + 1}), nullptr);
  }
  EXPECT_EQ(slab.Get({7, 1}), nullptr);
  EXPECT_EQ(slab.size(), 0u);
  NearSlab<Thing> small;
  small.Start(1);
  EXPECT_EQ(small.Get({1, 1}), nullptr);
  EXPECT_EQ(small.Release({1, 1}), nullptr);
}

TEST(NearSlab, BeginsAnewAfterClear) {
  NearSlab<Thing> slab;
  slab.Start(2);
  SlabHandle old;
  ASSERT_NE(slab.Allocate(&old), nullptr);
  slab.Clear();
  EXPECT_FALSE(slab.started());
  slab.Start(1);
  EXPECT_EQ(slab.Get(old), nullptr);
  EXPECT_EQ(slab.size(), 0u);
}

TEST(NearSlabDeathTest, FreeingWhatIsNotLiveAborts) {
  NearSlab<Thing> slab;
  slab.Start(2);
  SlabHandle handle;
  ASSERT_NE(slab.Allocate(&handle), nullptr);
  slab.Free(handle);
  EXPECT_DEATH(slab.Free(handle), "");
}

}  // namespace
}  // namespace weft
