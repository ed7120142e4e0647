// An object of the process, which is made when it is first asked for and never destroyed: whatever
// uses it may outlive all else.
//
//   Chunks& All() {
//     static constinit ProcessWide<Chunks> chunks;
//     return chunks.Get();
//   }
//
// A function's static variable would be the same, but for fork(2): while one thread makes it others
// wait for that one, and a child of a fork at that moment waits for ever, for that thread is not
// there. (Libraries have functions to run before a fork, and none that ends such a wait.) Here
// nobody waits: of threads that come at the same time each makes one, and the first one's counts.
//
// Threads: any. Lifetime: the process's; constant-initialized. A child of a fork has what its
//   parent had, and makes what nobody had finished.
// Invariants: all of a process get the same object.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>

namespace weft {

template <class T>
class ProcessWide {
 public:
  constexpr ProcessWide() = default;
  ProcessWide(const ProcessWide&) = delete;
  ProcessWide& operator=(const ProcessWide&) = delete;

  // `make` returns a T, or a std::unique_ptr<T>. One that is not the first is destroyed at once.
  // REQUIRES: `make` has no effect but what it returns.
  template <class Make>
  T& Get(Make&& make) {
    if (T* const object = object_.load(std::memory_order_acquire)) [[likely]]
      return *object;
    std::unique_ptr<T> made = MakeBy(std::forward<Make>(make));
    T* first = nullptr;
    if (object_.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) {
      return *made.release();
    }
    return *first;
  }
  T& Get() {
    return Get([] { return T(); });
  }

  // Of what must not be made twice: `make` may have effects, and others wait for the thread that is
  // at it. A child that was forked while another thread was at it has what `lost` makes instead,
  // for how far that thread had come nobody knows there. `lost` is as Get()'s `make`. Not beside
  // Get().
  template <class Make, class Lost>
  T& GetOnce(Make&& make, Lost&& lost) {
    if (T* const object = object_.load(std::memory_order_acquire)) return *object;
    pid_t maker = 0;
    if (maker_.compare_exchange_strong(maker, getpid(), std::memory_order_relaxed)) {
      T& object = Get(std::forward<Make>(make));
      object_.notify_all();
      return object;
    }
    if (maker != getpid()) return Get(std::forward<Lost>(lost));
    object_.wait(nullptr, std::memory_order_acquire);
    return *object_.load(std::memory_order_acquire);
  }

 private:
  template <class Make>
  static std::unique_ptr<T> MakeBy(Make&& make) {
    if constexpr (std::is_convertible_v<std::invoke_result_t<Make>, std::unique_ptr<T>>) {
      return std::forward<Make>(make)();
    } else {
      return std::unique_ptr<T>(new T(std::forward<Make>(make)()));
    }
  }

  std::atomic<T*> object_{nullptr};
  std::atomic<pid_t> maker_{0};  // of GetOnce(): the process that has begun
};

}  // namespace weft
