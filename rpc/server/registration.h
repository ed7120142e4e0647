// What a server has to undo before it refuses anybody: its entries in registries, by which clients
// find it. The server's side of Server::Register(); the registries' is rpc/register.cc.
//
// Threads: any but the engines', where nothing else is said. Lifetime: the Server's, and ends
// before
//   its engines. Errors: none: a registry that cannot be told finds out by itself.
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

  // Returns when who looks is not told of the server any more, or after a second. Drives the engine
  // meanwhile if this thread may. Once.
  virtual void Withdraw() = 0;
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
  // For good. Who comes second waits for the first.
  void Withdraw(const std::vector<EngineCore*>& engines) {
    const std::lock_guard<std::mutex> first(withdrawing_);
    std::vector<std::unique_ptr<Registration>> all;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      withdrawn_ = true;
      all.swap(all_);
    }
    if (all.empty()) return;
    // User: Shutdown() blocks, so not inside a callback
    WEFT_CHECK(std::none_of(engines.begin(), engines.end(),
                            [](const EngineCore* engine) { return engine->InTurn(); }));
    for (const std::unique_ptr<Registration>& one : all) one->Withdraw();
  }

  // How many of them their registries have, as far as is known. Any thread.
  std::atomic<uint32_t>& held() { return held_; }

 private:
  std::atomic<uint32_t> held_ = 0;  // outlives who counts
  std::mutex withdrawing_;          // held through Withdraw()
  std::mutex mutex_;
  bool withdrawn_ = false;                          // guarded by mutex_
  std::vector<std::unique_ptr<Registration>> all_;  // guarded by mutex_
};

}  // namespace weft
