#include "core/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "core/clock.h"

namespace weft {
namespace {

TEST(Futex, AWordThatHasChangedIsNotSleptOn) {
  const std::atomic<uint32_t> word{1};
  FutexWait(word, /*seen=*/0);
  FutexWait(word, /*seen=*/2, /*timeout_ns=*/kNever - 1);
}

TEST(Futex, AWaitEndsWithItsTimeout) {
  const std::atomic<uint32_t> word{0};
  const Clock& clock = Clock::Real();
  const uint64_t end_ns = clock.NowNs() + 2 * kNsPerMs;
  for (uint64_t now_ns = clock.NowNs(); now_ns < end_ns; now_ns = clock.NowNs()) {
    FutexWait(word, 0, end_ns - now_ns);
  }
}

TEST(Futex, AllThatSleepOnAWordAreWoken) {
  constexpr uint32_t kRounds = 1000;
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> arrived{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        arrived.fetch_add(1);
        FutexWakeAll(&arrived);
        while (word.load(std::memory_order_acquire) == round) FutexWait(word, round);
      }
    });
  }
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t seen = arrived.load(); seen < 3 * (round + 1); seen = arrived.load()) {
      FutexWait(arrived, seen);
    }
    word.store(round + 1, std::memory_order_release);
    FutexWakeAll(&word);
  }
  for (std::thread& thread : threads) thread.join();
}

// Who wakes has said by then that the word's owner may go on, and the owner may have gone, with the
// stack that the word lay on.
TEST(Futex, AWakeUpMayComeAfterTheWordIsGone) {
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const auto* const word = new (page) std::atomic<uint32_t>(0);
  ASSERT_EQ(munmap(page, 4096), 0);
  FutexWakeAll(word);
}

}  // namespace
}  // namespace weft
