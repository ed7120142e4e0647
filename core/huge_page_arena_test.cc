#include "core/huge_page_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace weft {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPlain = true;  // nothing is shared then
#else
constexpr bool kPlain = false;
#endif

uintptr_t AddressOf(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

TEST(HugePageArena, ObjectsLieSideBySideInWholeLines) {
  if (kPlain) GTEST_SKIP();
  void* const first = HugePageArena::Take(100);
  void* const second = HugePageArena::Take(1);
  EXPECT_EQ(AddressOf(first) % 64, 0u);
  EXPECT_EQ(AddressOf(second) - AddressOf(first), 128u);
  HugePageArena::Give(first, 100);
  HugePageArena::Give(second, 1);
}

TEST(HugePageArena, WhatWasGivenBackIsTakenAgain) {
  if (kPlain) GTEST_SKIP();
  void* const kept = HugePageArena::Take(64);
  void* const first = HugePageArena::Take(1000);
  HugePageArena::Give(first, 1000);
  void* const again = HugePageArena::Take(961);  // as many lines
  EXPECT_EQ(again, first);
  HugePageArena::Give(again, 961);
  HugePageArena::Give(kept, 64);
}

TEST(HugePageArena, ChunksComeAsTheyAreNeededAndGoWhenTheyAreEmpty) {
  if (kPlain) GTEST_SKIP();
  const size_t before = HugePageArena::chunks();
  constexpr size_t kBytes = 32 << 10;
  constexpr size_t kCount = 3 * HugePageArena::kChunkBytes / kBytes;
  std::vector<void*> all;
  for (size_t i = 0; i < kCount; ++i) {
    all.push_back(HugePageArena::Take(kBytes));
    std::memset(all.back(), static_cast<int>(i), kBytes);
  }
  EXPECT_GE(HugePageArena::chunks(), before + 3);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(*static_cast<uint8_t*>(all[i]), static_cast<uint8_t>(i));
    HugePageArena::Give(all[i], kBytes);
  }
  EXPECT_EQ(HugePageArena::chunks(), before);
}

TEST(HugePageArena, TakesObjectsThatAreLargerThanItHasRoomFor) {
  constexpr size_t kBytes = 4 * HugePageArena::kChunkBytes;
  void* const large = HugePageArena::Take(kBytes);
  std::memset(large, 1, kBytes);
  HugePageArena::Give(large, kBytes);
}

struct Base {
  virtual ~Base() = default;
};
struct alignas(64) Derived final : Base, InHugePageArena {
  char bytes[300] = {};
};

TEST(HugePageArena, ObjectsThatAreDeletedAsTheirBaseGoBackWhole) {
  if (kPlain) GTEST_SKIP();
  const size_t before = HugePageArena::chunks();
  std::unique_ptr<Base> object = std::make_unique<Derived>();
  const auto address = AddressOf(dynamic_cast<Derived*>(object.get()));
  EXPECT_EQ(address % 64, 0u);
  EXPECT_EQ(HugePageArena::chunks(), before + (before == 0));
  object.reset();
  EXPECT_EQ(HugePageArena::chunks(), before);
}

TEST(HugePageArena, IsForAllThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<uint8_t*> mine;
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = 64 + 100 * static_cast<size_t>(i % 7);
        mine.push_back(static_cast<uint8_t*>(HugePageArena::Take(bytes)));
        std::memset(mine.back(), t, bytes);
      }
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = 64 + 100 * static_cast<size_t>(i % 7);
        EXPECT_EQ(mine[static_cast<size_t>(i)][bytes - 1], t);
        HugePageArena::Give(mine[static_cast<size_t>(i)], bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weft
