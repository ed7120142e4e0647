// Every block comes from a host's hooks, and goes back there.
#include "core/memory_hooks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/block_memory.h"
#include "core/huge_page_arena.h"
#include "core/mpsc_queue.h"
#include "core/slab.h"
#include "core/testing/host_memory.h"

namespace weft {
namespace {

// Before any test takes memory.
const bool hooked = SetMemoryHooks(test::HostMemory::Get().hooks()).ok();

class MemoryHooksTest : public testing::Test {
 protected:
  MemoryHooksTest() { EXPECT_TRUE(hooked); }
  ~MemoryHooksTest() override {
    host_.Refuse(0);
    EXPECT_EQ(host_.bytes(), before_) << "all is given back";
    EXPECT_EQ(host_.bytes(), MemoryUsage().total.bytes) << "and counted the same";
  }

  test::HostMemory& host_ = test::HostMemory::Get();
  const uint64_t before_ = host_.bytes();
};

TEST_F(MemoryHooksTest, BlocksOfEachKindAreTheHosts) {
  const Block slots = Block::Take(8192, 64, MemoryKind::kSlots);
  EXPECT_TRUE(host_.Has(slots.data()));
  void* const pages = TakePages(64 << 10, MemoryKind::kSlots);
  EXPECT_TRUE(host_.Has(pages));
  GivePages(pages, 64 << 10, MemoryKind::kSlots);
  Slab<uint64_t> slab(1000);
  SlabHandle handle;
  ASSERT_NE(slab.Allocate(&handle), nullptr);
  EXPECT_GE(host_.bytes_of(MemoryKind::kTables), 8000u);
  const MpscQueue<uint64_t> queue(16);
  EXPECT_GE(host_.bytes_of(MemoryKind::kTables), 8000u + 16 * 16);
}

TEST_F(MemoryHooksTest, ObjectsLieInTheHostsChunks) {
  std::vector<void*> objects;
  for (int i = 0; i < 3000; ++i) objects.push_back(HugePageArena::Take(1024));
  EXPECT_GE(host_.bytes_of(MemoryKind::kObjects), 3000u * 1024);
  for (void* const object : objects) HugePageArena::Give(object, 1024);
}

TEST_F(MemoryHooksTest, AnObjectAboveTheArenasBoundIsABlockOfItsOwn) {
  constexpr size_t kBytes = HugePageArena::kMaxObjectBytes + 1;
  void* const object = HugePageArena::Take(kBytes);
  EXPECT_TRUE(host_.Has(object));
  HugePageArena::Give(object, kBytes);
}

TEST_F(MemoryHooksTest, AHostWithoutMemoryIsAskedAgain) {
  host_.Refuse(1u << static_cast<unsigned>(MemoryKind::kSlots));
  EXPECT_TRUE(Block::Take(8192, 64, MemoryKind::kSlots).empty());
  EXPECT_EQ(TakePages(8192, MemoryKind::kSlots), nullptr);
  EXPECT_FALSE(Block::Take(8192, 64, MemoryKind::kBuffers).empty()) << "of this there is some";
  host_.Refuse(0);
  EXPECT_FALSE(Block::Take(8192, 64, MemoryKind::kSlots).empty());
}

// A fork takes the arena's mutex, and then runs what the host registered before Weft did: who holds
// that mutex and waits in a hook for a lock which the host holds over its forks waits for ever.
TEST_F(MemoryHooksTest, HooksAreCalledWithoutTheMutexOfTheArena) {
  int calls = 0;
  host_.OnHook([&calls] {
    ++calls;
    static_cast<void>(HugePageArena::chunks());  // takes it
  });
  std::vector<void*> objects;
  for (int i = 0; i < 3000; ++i) objects.push_back(HugePageArena::Take(1024));
  const int taken = calls;
  EXPECT_GT(taken, 0);
  for (void* const object : objects) HugePageArena::Give(object, 1024);
  EXPECT_GT(calls, taken);
  host_.OnHook(nullptr);
}

TEST_F(MemoryHooksTest, HooksAreSetOnce) {
  EXPECT_TRUE(absl::IsFailedPrecondition(SetMemoryHooks(host_.hooks())));
}

}  // namespace
}  // namespace weft
