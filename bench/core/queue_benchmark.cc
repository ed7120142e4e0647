// What it costs to hand an element over: within one thread (the instructions alone) and between two
// (the cache lines as well). A std::mutex around a std::deque is what one would write instead.
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/mpsc_queue.h"
#include "core/spsc_queue.h"

namespace weft {
namespace {

template <class T>
class LockedQueue {
 public:
  explicit LockedQueue(std::size_t capacity) : capacity_(capacity) {}

  bool TryPush(T&& value) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.size() == capacity_) return false;
    queue_.push_back(std::move(value));
    return true;
  }
  bool TryPop(T* value) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.empty()) return false;
    *value = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::deque<T> queue_;
};

template <class Queue>
void PushPop(benchmark::State& state) {
  Queue queue(1024);
  uint64_t value = 0;
  const Counted counted(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(queue.TryPush(uint64_t{value}));
    benchmark::DoNotOptimize(queue.TryPop(&value));
  }
}
BENCHMARK_TEMPLATE(PushPop, SpscQueue<uint64_t>);
BENCHMARK_TEMPLATE(PushPop, MpscQueue<uint64_t>);
BENCHMARK_TEMPLATE(PushPop, LockedQueue<uint64_t>);

// One other thread produces as fast as it can; time for each element received. On a machine without
// a second idle core, the scheduler is what this shows.
template <class Queue>
void BetweenThreads(benchmark::State& state) {
  Queue queue(1024);
  std::atomic<bool> stop{false};
  std::thread producer([&] {
    for (uint64_t i = 0; !stop.load(std::memory_order_relaxed);) {
      if (queue.TryPush(uint64_t{i})) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  uint64_t value = 0;
  const Counted counted(state);
  for (auto _ : state) {
    while (!queue.TryPop(&value)) std::this_thread::yield();
    benchmark::DoNotOptimize(value);
  }
  stop.store(true, std::memory_order_relaxed);
  producer.join();
}
BENCHMARK_TEMPLATE(BetweenThreads, SpscQueue<uint64_t>)->UseRealTime();
BENCHMARK_TEMPLATE(BetweenThreads, MpscQueue<uint64_t>)->UseRealTime();
BENCHMARK_TEMPLATE(BetweenThreads, LockedQueue<uint64_t>)->UseRealTime();

}  // namespace
}  // namespace weft
