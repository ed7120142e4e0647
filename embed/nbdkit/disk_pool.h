// Threads that wait for a disk, so that an engine does not.
//
//   DiskPool pool(8);
//   pool.Run(client, [] { pread(...); });
//
// Tasks of one client start in their order, and clients take turns: one with a long queue, or with
// many sessions, does not hold up another one's first request.
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
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::unordered_map<uint64_t, std::deque<Function<void()>>> waiting_;  // by client; none is empty
  decltype(waiting_)::node_type spare_;  // the last queue that became empty, for the next client
  std::deque<uint64_t> turns_;           // the clients of waiting_, each once
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace weft::embed
