// Calls that handlers have finished on other threads, on their way back to the engine.
//
// A stack of the calls themselves: no allocation and no limit of its own, since calls are limited.
// The engine takes all of them at once.
//
// Threads: Push() from any; TakeAll() on the engine's.
#pragma once

#include <atomic>

#include "rpc/server/server_call.h"

namespace weft {

class FinishedCalls {
 public:
  // True: it was empty, and the engine must be told.
  bool Push(ServerCall* call) {
    ServerCall* head = head_.load(std::memory_order_relaxed);
    do {
      call->next_finished_ = head;
    } while (!head_.compare_exchange_weak(head, call, std::memory_order_release,
                                          std::memory_order_relaxed));
    return head == nullptr;
  }

  // Calls visit(ServerCall*) for each call, oldest first; it may reuse the call.
  template <class Visit>
  void TakeAll(Visit&& visit) {
    ServerCall* newest = head_.exchange(nullptr, std::memory_order_acquire);
    ServerCall* oldest = nullptr;
    while (newest != nullptr) {
      ServerCall* next = newest->next_finished_;
      newest->next_finished_ = oldest;
      oldest = newest;
      newest = next;
    }
    while (oldest != nullptr) {
      ServerCall* next = oldest->next_finished_;
      visit(oldest);
      oldest = next;
    }
  }

 private:
  std::atomic<ServerCall*> head_{nullptr};
};

}  // namespace weft
