// The calls of a channel that were not sent yet: they wait for a connection, for a slot or credit,
// or until nobody holds calls back any more. The most urgent leaves first, and among those the one
// that has waited longest.
//
// Threads: Hold() any; the rest the engine's. Lifetime: owns nothing; a call that ends is taken out
//   before.
// Errors: a full queue takes none.
// Invariants: size() <= the limit that is given to PushBack(). A waiting call is kQueued. Not
//   empty() while room is wanted: who makes room looks here anyway.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/check.h"
#include "core/intrusive_list.h"
#include "core/priority_lists.h"
#include "rpc/client/client_call.h"
#include "rpc/wire/service.h"

namespace weft {

class WaitingCalls {
 public:
  // No call waits, and nobody wants to be told of room.
  bool empty() const { return (size_and_wish_ & ~kElsewhere) == 0; }
  uint32_t size() const { return size_and_wish_ & ~(kRoomWanted | kElsewhere); }
  // Nothing waits, is held, goes elsewhere or wants room: a call of any priority may be sent.
  bool may_pass() const { return size_and_wish_ == 0 && !held(); }
  // No call that is at least as urgent waits, and none are held.
  bool may_pass(Priority priority) const { return !held() && calls_->may_pass(priority); }

  // Somebody wants to know when a call would be sent at once.
  bool room_wanted() const { return (size_and_wish_ & kRoomWanted) != 0; }
  void SetRoomWanted(bool wanted) { Set(kRoomWanted, wanted); }
  // No call is sent at once: another connection has what is new.
  void SetElsewhere(bool elsewhere) { Set(kElsewhere, elsewhere); }

  // Calls started after Hold() wait until as many Release() have come: so that they do not overtake
  // a write that was accepted before.
  void Hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  // True: that was the last one.
  bool Release() { return holds_.fetch_sub(1, std::memory_order_relaxed) == 1; }
  bool held() const { return holds_.load(std::memory_order_relaxed) != 0; }

  // False: `limit` calls wait already. REQUIRES: `call` is on no list.
  [[nodiscard]] bool PushBack(ClientCall& call, uint32_t limit) {
    if (size() >= limit) return false;
    call.state = ClientCall::State::kQueued;
    calls_->PushBack(&call, call.priority);
    ++size_and_wish_;
    return true;
  }
  // The next one, if it is at least as urgent as `least`; null: there is none, or all are held.
  ClientCall* PopFront(Priority least = Priority::kBackground) {
    if (held()) return nullptr;
    ClientCall* const call = calls_->PopFront(least);
    if (call != nullptr) --size_and_wish_;
    return call;
  }
  // It could not be sent after all. REQUIRES: it came from PopFront(), and nothing was pushed
  // since.
  void Return(ClientCall& call) {
    calls_->PushFront(&call, call.priority);
    ++size_and_wish_;
  }
  // REQUIRES: it waits here.
  void Remove(ClientCall& call) {
    IntrusiveList<ClientCall>::Remove(&call);
    --size_and_wish_;
  }

  // Takes out, the most urgent first, all calls, or those only that do not wait for a server
  // (CallOptions::wait_for_server).
  void TakeAll(bool also_patient, IntrusiveList<ClientCall>* taken) {
    calls_->ForEach([&](ClientCall& call) {
      if (call.wait_for_server && !also_patient) return;
      Remove(call);
      taken->PushBack(&call);
    });
  }

  void CheckInvariants(uint32_t limit) {
    // Ours: invariants, which tests ask for
    WEFT_CHECK(calls_->CountSlowly() == size() && size() <= limit);
    calls_->ForEach(
        // Ours: invariants, which tests ask for
        [](const ClientCall& call) { WEFT_CHECK(call.state == ClientCall::State::kQueued); });
  }

 private:
  // More than any limit.
  static constexpr uint32_t kRoomWanted = uint32_t{1} << 31;
  static constexpr uint32_t kElsewhere = uint32_t{1} << 30;

  void Set(uint32_t bit, bool set) { size_and_wish_ = (size_and_wish_ & ~bit) | (set ? bit : 0); }

  uint32_t size_and_wish_ = 0;  // waiting calls; with kRoomWanted and kElsewhere or not
  std::atomic<uint32_t> holds_ = 0;
  // Apart: what every call looks at are the two numbers, beside others (client_calls.h).
  using Lists = PriorityLists<ClientCall, Priority, kPriorities>;
  const std::unique_ptr<Lists> calls_ = std::make_unique<Lists>();
};

}  // namespace weft
