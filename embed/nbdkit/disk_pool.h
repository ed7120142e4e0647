// Threads that wait for a disk, so that an engine does not.
//
//   DiskPool pool(8);
//   DiskPool::Lane lane;                        // of one client
//   pool.Run(lane, [] { pread(...); });
//
// Tasks of one lane start in their order, and lanes take turns: a client with a long queue does not
// hold up another one's first request.
//
// Threads: any. Lifetime: a lane outlives its tasks, and the pool outlives all lanes' tasks: its
//   destructor waits for those that were given to it.
// Errors: none. There is no limit of its own: whoever gives it tasks bounds them (BlockService:
//   2 * kMaxRequests for each session).
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "core/function.h"

namespace weft::embed {

class DiskPool {
 public:
  // What waits, of one client.
  class Lane {
    friend class DiskPool;
    std::deque<Function<void()>> tasks_;  // guarded by DiskPool::mutex_
  };

  explicit DiskPool(int threads);
  ~DiskPool();
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  void Run(Lane& lane, Function<void()> task);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Lane*> lanes_;  // that have tasks, each once, in the order of their turns
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace weft::embed
