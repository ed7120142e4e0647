// What all operations that end with a callback need, whatever they are: calls, operations on remote
// memory, reads of records.
//
//   StartOrPost()  starts an operation here if this thread may drive the engine, else hands it over
//   SpareList      keeps finished operations for the next ones
//   EarlyEnds      delays the callback of an operation that ends inside the function that starts it
//
// (An operation whose caller waits for it: blocked_caller.h, and StartAndWait() in on_engine.h.)
//
// Threads: StartOrPost() and PostOwned() any; the rest the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/inline.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "transport/engine.h"

namespace weft {

// If this thread may drive the engine: runs `start`, then `flush`, unless the thread held the
// engine before: then more may be started before the next turn sends all of it together. Else, or
// if `behind` what was posted before, runs `post` alone.
template <class Start, class Post, class Flush>
WEFT_INLINE void StartOrPost(EngineCore& engine, bool behind, Start&& start, Post&& post,
                             Flush&& flush) {
  const bool on_engine = engine.OnEngine();
  if (behind || !engine.Enter()) return post();
  start();
  if (!on_engine) flush();
  engine.Leave();
}

// Hands `operation` over to the engine, where `start(*operation)` has it: from then on it is its
// callback's. Returns it if the inbox is full: nothing has happened, and nothing will.
template <class T, class Start>
[[nodiscard]] std::unique_ptr<T> PostOwned(EngineCore& engine, std::unique_ptr<T> operation,
                                           Start start) {
  const auto run = [start = std::move(start), raw = operation.get()] { start(*raw); };
  if (engine.Post(run)) static_cast<void>(operation.release());
  return operation;
}

// Finished operations for reuse, at most kMost. A T has a member `next_spare`: a pointer to T, or
// to a base of it. Lifetime: owns what it keeps.
template <class T, uint32_t kMost>
class SpareList {
 public:
  SpareList() = default;
  ~SpareList() {
    while (T* operation = Take()) delete operation;
  }
  SpareList(const SpareList&) = delete;
  SpareList& operator=(const SpareList&) = delete;

  // nullptr: there is none, make one.
  WEFT_INLINE T* Take() {
    T* const operation = first_;
    if (operation == nullptr) [[unlikely]]
      return nullptr;
    first_ = static_cast<T*>(operation->next_spare);
    ++room_;
    return operation;
  }

  // Takes it over, and destroys it if there are enough. REQUIRES: made by new.
  WEFT_INLINE void Give(T* operation) {
    if (--room_ < 0) [[unlikely]]
      return Destroy(operation);
    operation->next_spare = first_;
    first_ = operation;
  }

  uint32_t count() const { return kMost - static_cast<uint32_t>(room_); }

 private:
  static_assert(kMost <= uint32_t{1} << 30);

  WEFT_COLD void Destroy(T* operation) {
    room_ = 0;
    delete operation;
  }

  T* first_ = nullptr;
  int32_t room_ = kMost;  // >= 0: for more. Counted down: one instruction counts and compares
};

// Operations that have ended before the function that starts them has returned: their callbacks
// must not run inside it, and come from a timer, in order. A T is a ListNode<> that is on no other
// list when it has ended, and T::RunEarlyEnd() runs its callback; it may destroy the T, and start
// others.
template <class T>
class EarlyEnds final : private Timer {
 public:
  explicit EarlyEnds(EngineCore& engine) : engine_(engine) {}

  // Runs `start`, which starts `operation` and may end it. Callbacks of others may run inside, and
  // start operations of their own.
  template <class Start>
  void WhileStarting(const T& operation, Start&& start) {
    const T* const outer = std::exchange(starting_, &operation);
    start();
    starting_ = outer;
  }

  // Whether `operation`, which ends, is inside WhileStarting().
  bool IsStarting(const T& operation) const { return starting_ == &operation; }
  // Whether any is: callbacks of others, which may end meanwhile, are not to run there either.
  bool IsStartingAny() const { return starting_ != nullptr; }

  // RunEarlyEnd() is due, when the engine looks at its timers next.
  void Add(T& operation) {
    ended_.PushBack(&operation);
    ++count_;
    if (!armed()) engine_.timers().Schedule(this, 0);
  }

  // All that is due, at once: everything is shutting down.
  void RunAll() {
    while (!ended_.empty()) OnTimer();
    engine_.timers().Cancel(this);
  }

  uint32_t count() const { return count_; }

 private:
  void OnTimer() override {
    // What callbacks add comes with the next timer.
    IntrusiveList<T> due;
    due.SpliceBack(ended_);
    while (T* operation = due.PopFront()) {
      --count_;
      operation->RunEarlyEnd();
    }
  }

  EngineCore& engine_;
  const T* starting_ = nullptr;
  IntrusiveList<T> ended_;
  uint32_t count_ = 0;
};

}  // namespace weft
