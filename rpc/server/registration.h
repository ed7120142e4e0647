// What a server has to undo before it refuses anybody: its entries in registries, by which clients
// find it. The server's side of Server::Register(); the registries' is rpc/register.cc.
//
// Threads: any but the engines', where nothing else is said.
// Lifetime: the Server's, and ends before its engines.
// Errors: none: a registry that cannot be told finds out by itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/check.h"
#include "transport/engine.h"

namespace weft {

class Registration {
 public:
  virtual ~Registration() = default;

  // Begins to take the entry back. Once.
  virtual void StartWithdrawal() = 0;
  // Returns when who looks is not told of the server any more, or a second after
  // StartWithdrawal(), which may be another thread's. Drives the engine meanwhile if this thread
  // may. Several threads may wait.
  virtual void AwaitWithdrawal() = 0;
};

// Of one server.
class Registrations {
 public:
  // False: they were withdrawn, and this one is not taken. Any thread, engines' too.
  bool Add(std::unique_ptr<Registration>& one) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (withdrawn_) return false;
    all_.push_back(std::move(one));
    return true;
  }

  // Any thread.
  bool withdrawn() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return withdrawn_;
  }
  // For good. All begin before one is waited for, so that all together have a second. Who comes
  // second waits as well, and holds no lock: it may be the one who has to drive.
  void Withdraw(const std::vector<EngineCore*>& engines) {
    // User: Shutdown() blocks, so not inside a callback
    WEFT_CHECK(std::none_of(engines.begin(), engines.end(),
                            [](const EngineCore* engine) { return engine->InTurn(); }));
    bool is_first = false;
    std::vector<std::shared_ptr<Registration>> all;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_first = !std::exchange(withdrawn_, true);
      all = all_;
    }
    if (is_first) {
      for (const std::shared_ptr<Registration>& one : all) one->StartWithdrawal();
    }
    for (const std::shared_ptr<Registration>& one : all) one->AwaitWithdrawal();
    // They end with the last who has waited.
    const std::lock_guard<std::mutex> lock(mutex_);
    all_.clear();
  }

  // How many of them their registries have, as far as is known. Any thread.
  std::atomic<uint32_t>& held() { return held_; }

 private:
  std::atomic<uint32_t> held_ = 0;  // outlives who counts
  std::mutex mutex_;
  bool withdrawn_ = false;                          // guarded by mutex_
  std::vector<std::shared_ptr<Registration>> all_;  // guarded by mutex_
};

}  // namespace weft
