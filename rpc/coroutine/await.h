// What coroutines await beside each other (task.h), how they begin, and where they go on.
//
//   Start(task, done)      begins a coroutine; done(T) is called at its end
//   Wait(engine, task)     begins one, and drives the engine until it is over
//   WhenAll(tasks)         awaits several at once
//   Await<T>(start)        awaits what tells its end by a callback
//   Sleep(engine, us)      awaits a time
//   ResumeOn(executor)     moves the coroutine to an executor's threads
//   ResumeOn(engine)       and back to the engine's
//
// Threads: as task.h says.
// Lifetime: engines and executors outlive the coroutines that use them.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "rpc/coroutine/task.h"

namespace weft {

class Engine;

namespace internal {

// A coroutine that awaits an operation, and where it goes on: on its executor (if the operation has
// ended there, at once), or, if that has no room, where the operation has ended.
//
// The operation's end, operator(), and Suspend(), which is called when it has been started, meet:
// the second lets the coroutine go on. So an operation may end while it is started, and on another
// thread, and a loop of such operations uses no stack.
//
// Who drives the engine that ends the operation does without a locked instruction: that waits for
// all stores before it, also those to a ring's lines that the peer looks at (80 ns of a call).
class Resumption {
 public:
  // REQUIRES: before the operation is started.
  template <class Promise>
  void Set(std::coroutine_handle<Promise> coroutine) {
    coroutine_ = coroutine;
    executor_ = ExecutorOf(coroutine);
  }
  // What await_suspend() returns. False: it has ended. True: the coroutine may be gone.
  // `on_engine`: this thread drives the engine that the operation ends on. So it has ended here,
  // or ends later.
  bool Suspend(bool on_engine = false) {
    if (!on_engine) return !met_.exchange(true, std::memory_order_acq_rel);
    if (met_.load(std::memory_order_relaxed)) return false;
    met_.store(true, std::memory_order_release);
    return true;
  }
  // Whatever the coroutine has may be gone when this returns.
  void operator()() {
    const bool suspended =
        met_.load(std::memory_order_acquire) || met_.exchange(true, std::memory_order_acq_rel);
    if (!suspended) return;
    const std::coroutine_handle<> coroutine = coroutine_;
    if (!executor_ || executor_->IsHere() || !executor_->Run(coroutine)) coroutine.resume();
  }

 private:
  std::coroutine_handle<> coroutine_;
  Executor* executor_ = nullptr;
  std::atomic<bool> met_{false};
};

// Runs `coroutine` on the engine's thread, later. Waits for room in the engine's inbox, which this
// thread makes itself if it may drive. REQUIRES: not on the engine's thread.
void PostResumption(Engine& engine, std::coroutine_handle<> coroutine);

template <class T, class StartOperation>
class CallbackAwaiter {
 public:
  explicit CallbackAwaiter(StartOperation start) : start_(std::move(start)) {}

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    resumption_.Set(coroutine);
    start_([this](T value) {
      value_.emplace(std::move(value));
      resumption_();
    });
    return resumption_.Suspend();
  }
  T await_resume() { return *std::move(value_); }

 private:
  StartOperation start_;
  Resumption resumption_;
  std::optional<T> value_;
};

// All begin at once; it goes on when the last has ended.
template <class T>
class AllAwaiter {
 public:
  explicit AllAwaiter(std::vector<Task<T>>& tasks) : tasks_(tasks), left_(tasks.size()) {}

  bool await_ready() const noexcept { return tasks_.empty(); }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    resumption_.Set(coroutine);
    Executor* const executor = ExecutorOf(coroutine);
    for (Task<T>& task : tasks_) task.Begin(&OneEnded, this, executor);
    return resumption_.Suspend();
  }
  void await_resume() const noexcept {}

 private:
  static void OneEnded(void* context, TaskPromise& /*over*/) {
    auto* const self = static_cast<AllAwaiter*>(context);
    if (self->left_.fetch_sub(1, std::memory_order_acq_rel) == 1) self->resumption_();
  }

  std::vector<Task<T>>& tasks_;
  Resumption resumption_;
  std::atomic<size_t> left_;  // those that have not ended
};

// (No Alarm: on another thread than the engine's that waits for a turn of the engine.)
class SleepAwaiter {
 public:
  SleepAwaiter(Engine& engine, uint64_t delay_us);
  ~SleepAwaiter();

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    resumption_.Set(coroutine);
    Schedule();
    return resumption_.Suspend();
  }
  void await_resume() const noexcept {}

 private:
  class State;  // a timer
  static constexpr size_t kStateBytes = 64;

  void Schedule();
  Engine& engine_;
  const uint64_t delay_us_;
  Resumption resumption_;
  State* const timer_;
  alignas(std::max_align_t) std::byte state_[kStateBytes];  // inside: a sleep allocates nothing
};

class ExecutorAwaiter {
 public:
  explicit ExecutorAwaiter(Executor& executor) : executor_(executor) {}

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    static_assert(std::is_base_of_v<TaskPromise, Promise>, "for weft::Task only");
    Executor* const before = coroutine.promise().executor();
    coroutine.promise().set_executor(&executor_);
    moved_ = true;
    if (executor_.Run(coroutine)) return true;
    moved_ = false;
    coroutine.promise().set_executor(before);
    return false;
  }
  bool await_resume() const noexcept { return moved_; }

 private:
  Executor& executor_;
  bool moved_ = false;
};

class EngineAwaiter {
 public:
  explicit EngineAwaiter(Engine& engine) : engine_(engine) {}

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    static_assert(std::is_base_of_v<TaskPromise, Promise>, "for weft::Task only");
    coroutine.promise().set_executor(nullptr);
    if (OnEngine()) return false;
    PostResumption(engine_, coroutine);
    return true;
  }
  void await_resume() const noexcept {}

 private:
  bool OnEngine() const;

  Engine& engine_;
};

// The end of a coroutine that nobody awaits. The frame goes first: `done` finds nothing of it.
template <class T, class Done>
void CallDone(void* context, TaskPromise& over) {
  const std::unique_ptr<Done> done(static_cast<Done*>(context));
  Task<T> task = Task<T>::Adopt(over);
  if constexpr (std::is_void_v<T>) {
    task = Task<T>();
    (*done)();
  } else {
    T value = task.TakeValue();
    task = Task<T>();
    (*done)(std::move(value));
  }
}

// A thread that waits for something that ends on whatever thread.
class EndSignal {
 public:
  explicit EndSignal(Engine& engine);
  ~EndSignal();

  // Once, on any thread. This may be gone when it returns.
  void Ended();
  // REQUIRES: not in a callback of the engine.
  void Wait();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace internal

// Begins it on this thread; it goes on where what it awaits has ended, or on `executor`. done(T),
// or done() of a Task<void>, is called once, where it has ended, perhaps inside.
template <class T, class Done>
void Start(Task<T> task, Done done, Executor* executor = nullptr) {
  Task<T>::BeginAlone(std::move(task), &internal::CallDone<T, Done>, new Done(std::move(done)),
                      executor);
}

// Begins it on this thread and returns what it ends with; drives the engine meanwhile, if this
// thread may. REQUIRES: not in a callback of the engine.
template <class T>
T Wait(Engine& engine, Task<T> task) {
  internal::EndSignal signal(engine);
  if constexpr (std::is_void_v<T>) {
    Start(std::move(task), [&signal] { signal.Ended(); });
    signal.Wait();
  } else {
    std::optional<T> result;
    Start(std::move(task), [&](T value) {
      result.emplace(std::move(value));
      signal.Ended();
    });
    signal.Wait();
    return *std::move(result);
  }
}

// Begins all, on this thread, and ends when the last has ended, with what each ended with.
inline Task<> WhenAll(std::vector<Task<>> tasks) {
  internal::AllAwaiter<void> all(tasks);
  co_await all;
}
template <class T>
Task<std::vector<T>> WhenAll(std::vector<Task<T>> tasks) {
  internal::AllAwaiter<T> all(tasks);
  co_await all;
  std::vector<T> values;
  values.reserve(tasks.size());
  for (Task<T>& task : tasks) values.push_back(task.TakeValue());
  co_return values;
}

// start(callback) begins something that calls `callback`, a void(T), once.
//   absl::Status status = co_await weft::Await<absl::Status>([&](auto done) {
//     memory.WriteBatch(pieces, std::move(done));
//   });
template <class T, class StartOperation>
internal::CallbackAwaiter<T, StartOperation> Await(StartOperation start) {
  return internal::CallbackAwaiter<T, StartOperation>(std::move(start));
}

// `co_await Sleep(engine, delay_us)`: goes on when the time has passed on the engine's clock since
// the engine has it, as late as an Alarm's callback; the thread that awaits it does not wait. A
// cancel of the call that a handler serves does not end it early.
inline internal::SleepAwaiter Sleep(Engine& engine, uint64_t delay_us) {
  return internal::SleepAwaiter(engine, delay_us);
}

// `co_await ResumeOn(executor)`: this coroutine goes on there, now and after each await, and so do
// the tasks that it begins from now on. False: the executor has no room, and it stays where it was.
// Where there is no room after a later await, it goes on where that has ended.
inline internal::ExecutorAwaiter ResumeOn(Executor& executor) {
  return internal::ExecutorAwaiter(executor);
}

// `co_await ResumeOn(engine)`: on the engine's thread, now; after each await where that has ended.
inline internal::EngineAwaiter ResumeOn(Engine& engine) { return internal::EngineAwaiter(engine); }

}  // namespace weft
