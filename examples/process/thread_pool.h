// An Executor for handlers that wait (for a disk, for a stream): some threads and a bounded queue.
//
// Threads: Run() from any. Lifetime: the destructor waits for what runs and for what is queued.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "core/function.h"
#include "weft/server.h"

namespace examples {

class ThreadPool final : public weft::Executor {
 public:
  // Tasks that wait: more than all calls of some dozen clients. Beyond, calls are refused.
  static constexpr size_t kMaxQueued = 4096;

  explicit ThreadPool(int threads);
  ~ThreadPool();

  bool Run(weft::Function<void()> task) override;

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<weft::Function<void()>> queue_;
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace examples
