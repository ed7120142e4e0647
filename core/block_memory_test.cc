// Without hooks: the other half is memory_hooks_test.cc, for hooks are the process's.
#include "core/block_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "core/huge_page_arena.h"
#include "core/mpsc_queue.h"
#include "core/slab.h"

namespace weft {
namespace {

uint64_t BytesOf(MemoryKind kind) { return MemoryUsage().of(kind).bytes; }

TEST(BlockMemory, ABlockIsCountedWhileItIsTaken) {
  const MemoryReport before = MemoryUsage();
  {
    Block block = Block::Take(100'000, 4096, MemoryKind::kSlots);
    ASSERT_FALSE(block.empty());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 4096, 0u);
    EXPECT_EQ(block.size(), 100'000u);
    std::memset(block.data(), 1, block.size());
    EXPECT_EQ(BytesOf(MemoryKind::kSlots), before.of(MemoryKind::kSlots).bytes + 100'000);
    EXPECT_EQ(MemoryUsage().total.bytes, before.total.bytes + 100'000);
    const Block moved = std::move(block);
    EXPECT_TRUE(block.empty());  // NOLINT(bugprone-use-after-move): it is empty then
    EXPECT_EQ(BytesOf(MemoryKind::kSlots), before.of(MemoryKind::kSlots).bytes + 100'000);
  }
  const MemoryReport after = MemoryUsage();
  EXPECT_EQ(after.total.bytes, before.total.bytes);
  EXPECT_EQ(after.of(MemoryKind::kSlots).bytes, before.of(MemoryKind::kSlots).bytes);
  EXPECT_GE(after.total.peak_bytes, before.total.bytes + 100'000) << "the most that there was";
}

TEST(BlockMemory, PagesAreZeros) {
  constexpr size_t kBytes = 64 << 10;
  auto* const pages = static_cast<const std::byte*>(TakePages(kBytes, MemoryKind::kSlots));
  ASSERT_NE(pages, nullptr);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(pages[i], std::byte{0});
  GivePages(const_cast<std::byte*>(pages), kBytes, MemoryKind::kSlots);
}

TEST(BlockMemory, TablesAndObjectsAreCounted) {
  const uint64_t tables = BytesOf(MemoryKind::kTables);
  const uint64_t objects = BytesOf(MemoryKind::kObjects);
  {
    Slab<uint64_t> slab(1000);
    MpscQueue<uint64_t> queue(1024);
    EXPECT_GE(BytesOf(MemoryKind::kTables), tables + 1000 * 8 + 1024 * 16);
    void* const object = HugePageArena::Take(500);
    EXPECT_GT(BytesOf(MemoryKind::kObjects), objects);
    HugePageArena::Give(object, 500);
  }
  EXPECT_EQ(BytesOf(MemoryKind::kTables), tables);
  EXPECT_EQ(BytesOf(MemoryKind::kObjects), objects);
}

TEST(BlockMemory, ThreadsCountTogether) {
  const uint64_t before = MemoryUsage().total.bytes;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) {
        const Block block = Block::Take(1000, 64, MemoryKind::kSlots);
        EXPECT_FALSE(block.empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(MemoryUsage().total.bytes, before);
}

TEST(BlockMemory, HooksThatComeTooLateAreRefused) {
  { const Block block = Block::Take(100, 64, MemoryKind::kSlots); }
  MemoryHooks hooks;
  EXPECT_TRUE(absl::IsInvalidArgument(SetMemoryHooks(hooks)));
  hooks.take = [](size_t, size_t, MemoryKind, void*) -> void* { return nullptr; };
  hooks.give = [](void*, size_t, size_t, MemoryKind, void*) {};
  EXPECT_TRUE(absl::IsFailedPrecondition(SetMemoryHooks(hooks)));
  EXPECT_FALSE(HasMemoryHooks());
  EXPECT_FALSE(Block::Take(100, 64, MemoryKind::kSlots).empty()) << "the system's, as before";
}

}  // namespace
}  // namespace weft
