#include "core/slab.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {

// Reaches the generation of a slot, to see it wrap without 2^31 rounds.
class SlabTestPeer {
 public:
  template <class T>
  static void SetGeneration(Slab<T>& slab, uint32_t slot, uint32_t generation) {
    slab.cells_[slot].generation = generation;
  }
  template <class T>
  static constexpr std::size_t CellBytes() {
    return sizeof(typename Slab<T>::Cell);
  }
  template <class T>
  static constexpr std::size_t CellAlignment() {
    return alignof(typename Slab<T>::Cell);
  }
};

namespace {

TEST(Slab, HandsOutEverySlotOnceThenRefuses) {
  Slab<int> slab(100);
  std::set<int*> objects;
  SlabHandle handle;
  for (int i = 0; i < 100; ++i) objects.insert(slab.Allocate(&handle));
  EXPECT_EQ(objects.size(), 100u);
  EXPECT_TRUE(slab.full());
  const SlabHandle before = handle;
  EXPECT_EQ(slab.Allocate(&handle), nullptr);
  EXPECT_EQ(handle, before);
  slab.CheckInvariants();
}

TEST(Slab, HandleFindsItsObjectUntilFreed) {
  Slab<int> slab(4);
  SlabHandle handle;
  int* object = slab.Allocate(&handle);
  EXPECT_EQ(slab.Get(handle), object);
  EXPECT_EQ(slab.HandleOf(object), handle);
  slab.Free(handle);
  EXPECT_EQ(slab.Get(handle), nullptr);
  slab.CheckInvariants();
}

TEST(Slab, StaleHandleDoesNotFindTheNextObjectInItsSlot) {
  Slab<int> slab(1);
  SlabHandle first;
  SlabHandle second;
  int* object = slab.Allocate(&first);
  slab.Free(first);
  ASSERT_EQ(slab.Allocate(&second), object);
  EXPECT_EQ(slab.Get(first), nullptr);
  EXPECT_EQ(slab.Get(second), object);
}

TEST(Slab, LastFreedIsFirstReused) {
  Slab<int> slab(8);
  std::vector<SlabHandle> handles(8);
  for (SlabHandle& handle : handles) ASSERT_NE(slab.Allocate(&handle), nullptr);
  slab.Free(handles[2]);
  slab.Free(handles[5]);
  SlabHandle handle;
  ASSERT_NE(slab.Allocate(&handle), nullptr);
  EXPECT_EQ(handle.slot, handles[5].slot);
  ASSERT_NE(slab.Allocate(&handle), nullptr);
  EXPECT_EQ(handle.slot, handles[2].slot);
}

// A peer may send any 64 bits as a handle: only those of live objects may find something.
TEST(Slab, ForgedHandleFindsNothing) {
  Slab<int> slab(4);
  SlabHandle live;
  ASSERT_NE(slab.Allocate(&live), nullptr);
  EXPECT_EQ(slab.Get(SlabHandle()), nullptr);
  EXPECT_EQ(slab.Get({4, 1}), nullptr);
  EXPECT_EQ(slab.Get({0xFFFFFFFF, 0xFFFFFFFF}), nullptr);
  for (uint32_t slot = 0; slot < 4; ++slot) {
    for (uint32_t generation = 0; generation < 10; ++generation) {
      const SlabHandle forged = {slot, generation};
      if (forged == live) continue;
      EXPECT_EQ(slab.Get(forged), nullptr) << slot << " " << generation;
    }
  }
}

TEST(Slab, GenerationWrapsPastZero) {
  Slab<int> slab(1);
  SlabHandle last;
  ASSERT_NE(slab.Allocate(&last), nullptr);
  slab.Free(last);
  SlabTestPeer::SetGeneration(slab, 0, 0xFFFFFFFE);
  ASSERT_NE(slab.Allocate(&last), nullptr);
  EXPECT_EQ(last.generation, 0xFFFFFFFF);
  slab.Free(last);
  EXPECT_EQ(slab.Get({0, 0}), nullptr);
  SlabHandle wrapped;
  ASSERT_NE(slab.Allocate(&wrapped), nullptr);
  EXPECT_EQ(wrapped.generation, 1u);
  EXPECT_EQ(slab.Get(last), nullptr);
  EXPECT_NE(slab.Get(wrapped), nullptr);
  slab.CheckInvariants();
}

TEST(SlabHandle, PacksIntoOneIntegerThatIsZeroOnlyWhenInvalid) {
  const SlabHandle handle = {0x12345678, 0x9ABCDEF1};
  EXPECT_EQ(handle.packed(), 0x9ABCDEF112345678);
  EXPECT_EQ(SlabHandle::FromPacked(handle.packed()), handle);
  EXPECT_EQ(SlabHandle().packed(), 0u);
}

// Counts how many there are.
struct Counted {
  explicit Counted(int* count) : living(count) { ++*living; }
  Counted(const Counted&) = delete;
  ~Counted() { --*living; }
  int* const living;
  std::string text;
};

TEST(Slab, ObjectsAreConstructedOnceAndReused) {
  int living = 0;
  Slab<Counted> slab(3, [&](uint32_t) { return Counted(&living); });
  SlabHandle handle;
  slab.Allocate(&handle)->text = "from the previous use";
  slab.Free(handle);
  EXPECT_EQ(slab.Allocate(&handle)->text, "from the previous use");
  EXPECT_EQ(living, 1);
}

// A connection may have 256 calls under way, and most have one: all 256 slots were constructed at
// its beginning, 52 KiB of a server's memory for each connection.
TEST(Slab, ConstructsNoMoreThanWereEverLiveAtATime) {
  int living = 0;
  {
    Slab<Counted> slab(256, [&](uint32_t) { return Counted(&living); });
    EXPECT_EQ(living, 0);
    SlabHandle handles[3];
    for (int round = 0; round < 100; ++round) {
      for (SlabHandle& handle : handles) ASSERT_NE(slab.Allocate(&handle), nullptr);
      for (const SlabHandle& handle : handles) slab.Free(handle);
    }
    EXPECT_EQ(living, 3);
    EXPECT_EQ(slab.constructed(), 3u);
    EXPECT_EQ(slab.capacity(), 256u);
    slab.CheckInvariants();
  }
  EXPECT_EQ(living, 0);
}

// What a peer names may never have been constructed: memory that holds anything.
TEST(Slab, HandlesBeyondWhatIsConstructedFindNothing) {
  Slab<int> slab(1000);
  SlabHandle live;
  *slab.Allocate(&live) = 7;
  for (uint32_t slot = 1; slot < 1000; ++slot) {
    for (uint32_t generation = 0; generation < 3; ++generation) {
      ASSERT_EQ(slab.Get({slot, generation}), nullptr) << slot << " " << generation;
    }
  }
  int visited = 0;
  slab.ForEach([&](int&) { ++visited; });
  EXPECT_EQ(visited, 1);
}

TEST(Slab, MakeLearnsTheSlot) {
  Slab<uint32_t> slab(3, [](uint32_t slot) { return slot * 10; });
  SlabHandle handle;
  while (const uint32_t* value = slab.Allocate(&handle)) EXPECT_EQ(*value, handle.slot * 10);
}

TEST(Slab, ForEachVisitsTheLiveOnesAndMayFreeThem) {
  Slab<int> slab(10);
  std::vector<SlabHandle> handles(10);
  for (int i = 0; i < 10; ++i) *slab.Allocate(&handles[i]) = i;
  for (int i = 0; i < 10; i += 2) slab.Free(handles[i]);
  std::vector<int> visited;
  slab.ForEach([&](int& value) { visited.push_back(value); });
  EXPECT_EQ(visited, (std::vector<int>{1, 3, 5, 7, 9}));
  slab.ForEach([&](SlabHandle handle, int&) { slab.Free(handle); });
  EXPECT_TRUE(slab.empty());
  slab.CheckInvariants();
}

TEST(Slab, SmallCellsDoNotStraddleCacheLines) {
  struct Bytes24 {
    char bytes[24];
  };
  struct Bytes56 {
    char bytes[56];
  };
  struct Bytes100 {
    char bytes[100];
  };
  static_assert(SlabTestPeer::CellBytes<Bytes24>() == 32);
  static_assert(SlabTestPeer::CellBytes<Bytes56>() == 64);
  static_assert(SlabTestPeer::CellAlignment<Bytes56>() == 64);
  static_assert(SlabTestPeer::CellBytes<Bytes100>() == 128);
}

TEST(Slab, OverAlignedObjectsAreAligned) {
  struct alignas(256) Page {
    char bytes[256];
  };
  Slab<Page> slab(3);
  SlabHandle handle;
  while (Page* page = slab.Allocate(&handle)) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(page) % 256, 0u);
  }
}

TEST(SlabDeathTest, FreeingTwiceAborts) {
  Slab<int> slab(2);
  SlabHandle handle;
  ASSERT_NE(slab.Allocate(&handle), nullptr);
  slab.Free(handle);
  EXPECT_DEATH(slab.Free(handle), "check failed");
}

TEST(SlabDeathTest, CapacityMustNotBeZero) { EXPECT_DEATH(Slab<int>(0), "check failed"); }

// Against a map that knows what is live.
TEST(Slab, AgreesWithItsModel) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  Slab<uint64_t> slab(50);
  std::map<uint64_t, uint64_t> live;  // packed handle -> content
  std::vector<uint64_t> ever;
  for (int step = 0; step < 20'000; ++step) {
    if (random.Chance(0.5)) {
      SlabHandle handle;
      uint64_t* object = slab.Allocate(&handle);
      ASSERT_EQ(object == nullptr, live.size() == 50);
      if (object == nullptr) continue;
      *object = random.Next64();
      ASSERT_TRUE(live.emplace(handle.packed(), *object).second);
      ever.push_back(handle.packed());
    } else if (!ever.empty()) {
      const uint64_t packed = ever[random.Uniform(ever.size())];
      const auto known = live.find(packed);
      uint64_t* object = slab.Get(SlabHandle::FromPacked(packed));
      ASSERT_EQ(object != nullptr, known != live.end());
      if (object == nullptr) continue;
      ASSERT_EQ(*object, known->second);
      slab.Free(SlabHandle::FromPacked(packed));
      live.erase(known);
    }
    ASSERT_EQ(slab.size(), live.size());
    if (step % 1000 == 0) slab.CheckInvariants();
  }
}

}  // namespace
}  // namespace weft
