// The one-way messages of one client whose handlers run.
//
// Nobody waits for them: no slot of the client's names one, and no cancel of the client's ends it.
// So they are kept in a list, which cancels them at their deadlines, and when the connection is
// gone. A deadline is watched by one timer for all: a message whose handler finishes in time, as
// most do, costs no timer of its own.
//
// Threads: the engine's.
// Lifetime: a member of its ServerConnection.
// Invariants: size() = calls that were added and not removed.
#pragma once

#include <cstdint>

#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "rpc/server/call_slot.h"
#include "rpc/server/server_call.h"
#include "transport/engine.h"

namespace weft {

class OneWayCalls final : private Timer {
 public:
  explicit OneWayCalls(EngineCore& engine) : engine_(engine) {}

  uint32_t size() const { return size_; }
  // What they have in the place of a slot of the client's.
  CallSlot* nowhere() { return &nowhere_; }

  void Add(ServerCall& call) {
    running_.PushBack(&call);
    ++size_;
  }
  // The call's deadline is known: it is cancelled then. REQUIRES: it was added.
  void Watch(const ServerCall& call) {
    if (call.deadline_ns() < watched_ns()) [[unlikely]]
      engine_.timers().Schedule(this, call.deadline_ns());
  }
  void Remove(ServerCall& call) {
    IntrusiveList<ServerCall>::Remove(&call);
    --size_;
  }
  // The connection is gone.
  void CancelAll() { CancelUntil(kNever); }

  void CheckInvariants() const;

 private:
  void OnTimer() override;
  uint64_t watched_ns() const { return armed() ? Timer::deadline_ns() : kNever; }
  void CancelUntil(uint64_t deadline_ns);

  EngineCore& engine_;
  IntrusiveList<ServerCall> running_;
  uint32_t size_ = 0;
  CallSlot nowhere_;
};

}  // namespace weft
