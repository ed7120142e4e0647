// Threads that wait for a disk, so that an engine does not.
//
//   DiskPool pool(8);
//   pool.Run(client, [] { pread(...); });
//
// Tasks of one client start in their order, and clients take turns: one with a long queue, or with
// many sessions, does not hold up another one's first request. Nor does one with long tasks: it has
// all threads but one at most, where there are two.
//
// Threads: any. Lifetime: the destructor waits for the tasks that were given to it.
// Errors: none. There is no limit of its own: whoever gives it tasks bounds them (BlockService:
//   2 * kMaxRequests for each session).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/function.h"

namespace weft::embed {

class DiskPool {
 public:
  // Whose a task is that is the server's own; also takes its turn.
  static constexpr uint64_t kServer = 0;

  explicit DiskPool(int threads);
  ~DiskPool();
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  // `client`: PathInfo::client, or kServer.
  void Run(uint64_t client, Function<void()> task);

 private:
  struct Tasks {
    std::deque<Function<void()>> waiting;
    size_t running = 0;
  };

  void Work();
  // Puts it in turns_ if its next task may start.
  void TakeTurn(uint64_t client, const Tasks& tasks);

  std::mutex mutex_;
  std::condition_variable changed_;
  const size_t most_running_;  // of one client
  // Guarded by mutex_.
  std::unordered_map<uint64_t, Tasks> clients_;  // with tasks that wait or run
  decltype(clients_)::node_type spare_;          // the last one that had none left, for the next
  std::deque<uint64_t> turns_;                   // of those whose next task may start, each once
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace weft::embed
