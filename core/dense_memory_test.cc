#include "core/dense_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace weft {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPlain = true;  // nothing is dense then
#else
constexpr bool kPlain = false;
#endif

uintptr_t AddressOf(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

TEST(DenseMemory, ObjectsLieSideBySideInWholeLines) {
  if (kPlain) GTEST_SKIP();
  void* const first = DenseMemory::Take(100);
  void* const second = DenseMemory::Take(1);
  EXPECT_EQ(AddressOf(first) % 64, 0u);
  EXPECT_EQ(AddressOf(second) - AddressOf(first), 128u);
  DenseMemory::Give(first, 100);
  DenseMemory::Give(second, 1);
}

TEST(DenseMemory, WhatWasGivenBackIsTakenAgain) {
  if (kPlain) GTEST_SKIP();
  void* const kept = DenseMemory::Take(64);
  void* const first = DenseMemory::Take(1000);
  DenseMemory::Give(first, 1000);
  void* const again = DenseMemory::Take(961);  // as many lines
  EXPECT_EQ(again, first);
  DenseMemory::Give(again, 961);
  DenseMemory::Give(kept, 64);
}

TEST(DenseMemory, ChunksComeAsTheyAreNeededAndGoWhenTheyAreEmpty) {
  if (kPlain) GTEST_SKIP();
  const size_t before = DenseMemory::chunks();
  constexpr size_t kBytes = 32 << 10;
  constexpr size_t kCount = 3 * DenseMemory::kChunkBytes / kBytes;
  std::vector<void*> all;
  for (size_t i = 0; i < kCount; ++i) {
    all.push_back(DenseMemory::Take(kBytes));
    std::memset(all.back(), static_cast<int>(i), kBytes);
  }
  EXPECT_GE(DenseMemory::chunks(), before + 3);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(*static_cast<uint8_t*>(all[i]), static_cast<uint8_t>(i));
    DenseMemory::Give(all[i], kBytes);
  }
  EXPECT_EQ(DenseMemory::chunks(), before);
}

TEST(DenseMemory, TakesObjectsThatAreLargerThanItHasRoomFor) {
  constexpr size_t kBytes = 4 * DenseMemory::kChunkBytes;
  void* const large = DenseMemory::Take(kBytes);
  std::memset(large, 1, kBytes);
  DenseMemory::Give(large, kBytes);
}

struct Base {
  virtual ~Base() = default;
};
struct alignas(64) Derived final : Base, InDenseMemory {
  char bytes[300] = {};
};

TEST(DenseMemory, ObjectsThatAreDeletedAsTheirBaseGoBackWhole) {
  if (kPlain) GTEST_SKIP();
  const size_t before = DenseMemory::chunks();
  std::unique_ptr<Base> object = std::make_unique<Derived>();
  const auto address = AddressOf(dynamic_cast<Derived*>(object.get()));
  EXPECT_EQ(address % 64, 0u);
  EXPECT_EQ(DenseMemory::chunks(), before + (before == 0));
  object.reset();
  EXPECT_EQ(DenseMemory::chunks(), before);
}

TEST(DenseMemory, IsForAllThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<uint8_t*> mine;
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = 64 + 100 * static_cast<size_t>(i % 7);
        mine.push_back(static_cast<uint8_t*>(DenseMemory::Take(bytes)));
        std::memset(mine.back(), t, bytes);
      }
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = 64 + 100 * static_cast<size_t>(i % 7);
        EXPECT_EQ(mine[static_cast<size_t>(i)][bytes - 1], t);
        DenseMemory::Give(mine[static_cast<size_t>(i)], bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weft
