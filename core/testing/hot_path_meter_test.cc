#include "core/testing/hot_path_meter.h"

#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "gtest/gtest.h"

namespace weft::test {
namespace {

// Keeps the compiler from leaving an allocation out.
void Use(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

TEST(HotPathMeter, CountsAllocationsHoweverTheyAreMade) {
  const HotPathMeter meter;
  const auto by_new = std::make_unique<int>(1);
  Use(by_new.get());
  void* by_malloc = std::malloc(10);
  Use(by_malloc);
  by_malloc = std::realloc(by_malloc, 10'000);
  Use(by_malloc);
  std::free(by_malloc);
  EXPECT_EQ(meter.counts().allocations, 3u);
}

TEST(HotPathMeter, CountsLocksHoweverTheyAreTaken) {
  std::mutex mutex;
  std::shared_mutex shared;
  const HotPathMeter meter;
  { const std::lock_guard<std::mutex> lock(mutex); }
  { const std::shared_lock<std::shared_mutex> lock(shared); }
  { const std::unique_lock<std::shared_mutex> lock(shared); }
  EXPECT_EQ(meter.counts().locks, 3u);
}

TEST(HotPathMeter, CountsNothingOfOtherThreads) {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, 2);
  std::thread other([&] {
    pthread_barrier_wait(&barrier);
    Use(std::make_unique<int>(1).get());
    pthread_barrier_wait(&barrier);
  });
  {
    const HotPathMeter meter;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    EXPECT_EQ(meter.counts(), HotPathCounts());
  }
  other.join();
  pthread_barrier_destroy(&barrier);
}

}  // namespace
}  // namespace weft::test
