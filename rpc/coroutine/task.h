// Task<T>: a coroutine that ends with a T.
//
//   weft::Task<absl::Status> Copy(Kv::Stub& kv) {
//     GetReply found;
//     absl::Status status = co_await kv.CoGet(Named("from"), &found);
//     if (!status.ok()) co_return status;
//     ...
//   }
//
//   state      from                          to
//   not begun  the coroutine was called      awaited, Start(), Wait(), WhenAll() -> runs
//   runs       begun, on that thread         an await that has to wait -> waits
//                                            co_return -> over
//   waits      what it awaits is under way   that has ended -> runs
//   over       co_return                     whoever awaits it goes on
//
// What is awaited: another Task; the Co... forms of stubs, streams and RemoteMemory, and Await()
// (await.h). They may be awaited in coroutines of other types as well.
//
// Threads: a coroutine goes on where what it awaits has ended: on the engine's thread, unless it
//   has asked for an executor (ResumeOn(), await.h); what has ended before it began to wait does
//   not move it. One thread at a time.
// Lifetime: parameters that are references, and `this`, outlive the coroutine; a lambda with
//   captures that is a coroutine outlives it, too. What an await is given stays until it has ended.
//   REQUIRES: a Task is not destroyed between its beginning and its end; one that was not begun may
//   be. So a coroutine always ends by co_return, whose destructors run: it is cancelled by ending
//   what it awaits (ClientContext::Cancel(), a deadline), which says CANCELLED.
// Errors: T is a status, or has one, where there can be errors. An exception that leaves one ends
//   the program. Works with -fno-exceptions.
// Cost: one frame for each Task, in the memory of the call where a handler's ServerContext is a
//   parameter (frame_memory.h), else on the heap; nothing for an await.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "rpc/coroutine/frame_memory.h"
#include "rpc/operation/executor.h"

namespace weft {

template <class T = void>
class Task;

namespace internal {

// What does not depend on T.
class TaskPromise {
 public:
  // Runs when the coroutine is over; may destroy its frame, which is `over`'s.
  using End = void (*)(void* context, TaskPromise& over);

  // --- the language's ---------------------------------------------------------------------------

  // Inlined, also where nothing else is: g++ 12 takes a template of operator new and operator
  // delete for a mismatch, and warns wherever there is a coroutine.
  template <class... Parameters>
  WEFT_INLINE static void* operator new(size_t bytes, Parameters&... parameters) {
    return NewFrame(bytes, FindFrameMemory(parameters...));
  }
  WEFT_INLINE static void operator delete(void* frame, size_t /*bytes*/) { DeleteFrame(frame); }

  std::suspend_always initial_suspend() const noexcept { return {}; }
  // User: a coroutine of theirs throws nothing
  [[noreturn]] void unhandled_exception() const noexcept { std::abort(); }

  struct FinalAwait {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> over) const noexcept {
      TaskPromise& promise = over.promise();
      if (promise.end_ != nullptr) {
        promise.end_(promise.context_, promise);
      } else if (promise.Meet() && !promise.ResumeElsewhere()) {
        return promise.awaiter_;
      }
      return std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  FinalAwait final_suspend() const noexcept { return {}; }

  // --- of its state -----------------------------------------------------------------------------

  // It begins, and `awaiter` goes on at its end, or `end` is called.
  void BeginFor(std::coroutine_handle<> awaiter, Executor* executor) {
    begun_ = true;
    awaiter_ = awaiter;
    executor_ = awaiters_executor_ = executor;
  }
  void BeginFor(End end, void* context, Executor* executor) {
    begun_ = true;
    end_ = end;
    context_ = context;
    executor_ = executor;
  }
  bool begun() const { return begun_; }

  // Its end, and its awaiter that begins to wait, come here, each once: true for the second. So a
  // loop that awaits what need not wait uses no stack: the awaiter goes on by itself. (Compilers
  // that do not optimise resume one coroutine by another as a call.)
  bool Meet() { return met_.exchange(true, std::memory_order_acq_rel); }

  // Where it goes on after an await; null: where that ended. Tasks that it awaits begin with it.
  Executor* executor() const { return executor_; }
  void set_executor(Executor* executor) { executor_ = executor; }

 private:
  // This has moved, and the awaiter has an executor of its own: that goes on there. False: it goes
  // on here.
  bool ResumeElsewhere() const {
    return awaiters_executor_ != nullptr && awaiters_executor_ != executor_ &&
           awaiters_executor_->Run(awaiter_);
  }

  bool begun_ = false;
  std::atomic<bool> met_{false};
  Executor* executor_ = nullptr;
  Executor* awaiters_executor_ = nullptr;
  // One of both.
  std::coroutine_handle<> awaiter_;
  End end_ = nullptr;
  void* context_ = nullptr;
};

template <class T>
class TaskPromiseOf final : public TaskPromise {
 public:
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T TakeValue() { return *std::move(value_); }

 private:
  std::optional<T> value_;
};

template <>
class TaskPromiseOf<void> final : public TaskPromise {
 public:
  Task<void> get_return_object();
  void return_void() const {}
  void TakeValue() const {}
};

// The executor of a coroutine, whatever its type.
template <class Promise>
Executor* ExecutorOf(std::coroutine_handle<Promise> coroutine) {
  if constexpr (std::is_base_of_v<TaskPromise, Promise>) {
    return coroutine.promise().executor();
  } else {
    return nullptr;
  }
}

// Begins a task for the coroutine that awaits it.
template <class T>
struct TaskAwaiter {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> awaiter) const noexcept {
    TaskPromise& promise = frame.promise();
    promise.BeginFor(awaiter, ExecutorOf(awaiter));
    frame.resume();
    return !promise.Meet();
  }
  T await_resume() const { return frame.promise().TakeValue(); }

  std::coroutine_handle<TaskPromiseOf<T>> frame;
};

}  // namespace internal

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::TaskPromiseOf<T>;

  Task() = default;  // no coroutine
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      Destroy();
      frame_ = std::exchange(other.frame_, nullptr);
    }
    return *this;
  }
  ~Task() { Destroy(); }

  explicit operator bool() const { return frame_ != nullptr; }

  // Awaiting it begins it. REQUIRES: there is a coroutine, and it was not begun.
  internal::TaskAwaiter<T> operator co_await() && {
    WEFT_DCHECK(frame_ != nullptr && !frame_.promise().begun());  // User: awaited or begun once
    return internal::TaskAwaiter<T>{frame_};
  }

  // --- for who is no coroutine (await.h has Start(), Wait()) ------------------------------------

  // `end` is called when it is over; before that this is not destroyed. REQUIRES: as above.
  void Begin(internal::TaskPromise::End end, void* context, Executor* executor) {
    WEFT_DCHECK(frame_ != nullptr && !frame_.promise().begun());  // User: awaited or begun once
    frame_.promise().BeginFor(end, context, executor);
    frame_.resume();
  }
  // The same, and `end` has it: Adopt(over).
  static void BeginAlone(Task task, internal::TaskPromise::End end, void* context,
                         Executor* executor) {
    const std::coroutine_handle<promise_type> frame = std::exchange(task.frame_, nullptr);
    WEFT_DCHECK(frame != nullptr && !frame.promise().begun());  // User: awaited or begun once
    frame.promise().BeginFor(end, context, executor);
    frame.resume();
  }
  static Task Adopt(internal::TaskPromise& over) {
    return Task(
        std::coroutine_handle<promise_type>::from_promise(static_cast<promise_type&>(over)));
  }
  // What it ended with, once. REQUIRES: over.
  T TakeValue() { return frame_.promise().TakeValue(); }

 private:
  friend promise_type;

  explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
  void Destroy() {
    if (frame_ == nullptr) return;
    // User: a task that runs is not destroyed
    WEFT_CHECK(!frame_.promise().begun() || frame_.done());
    frame_.destroy();
  }

  std::coroutine_handle<promise_type> frame_;  // null: none
};

namespace internal {

template <class T>
Task<T> TaskPromiseOf<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromiseOf<T>>::from_promise(*this));
}

inline Task<void> TaskPromiseOf<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromiseOf<void>>::from_promise(*this));
}

}  // namespace internal
}  // namespace weft
