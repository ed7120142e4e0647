// What becomes of this process's Weft in a child of fork(2) that goes on without exec(2).
//
// The child has one thread, the one that called fork(), and a copy of all memory as it was at that
// moment: in the middle of what the other threads did. Its descriptors are the parent's sockets.
// So what is the parent's is left alone there, and what it can reach from there is taken away:
//
//   ForkCount()           tells a child from its parent: objects that remember what it was when
//                         they were made know by it whether they are this process's
//   ForkWatch             something to be done in the child, before fork() returns there
//   ProcessMutex          a mutex of the whole process, which the child is to find free
//   OwnDescriptor()       a descriptor that is this process's alone. A child has another one in its
//                         place, which is connected to nothing and is never readable: what the
//                         parent says to its peers, and that it is gone, is the parent's alone
//   LeaveBehind()         in the place of the destruction of what is the parent's
//
// And what is made when it is first needed is made without a wait (ProcessWide).
//
// All of it hangs on pthread_atfork(3): a child of a bare clone(2) or _Fork(2), or of vfork(2) and
// posix_spawn(3), which call exec(2) at once, does not run it.
//
// Threads: any.
// Lifetime: of the process. A fork waits for those who hold the mutexes: some microseconds, and up
// to a millisecond where one has the kernel make a huge page.
// Bounds: kMostHeld mutexes; descriptors from kMostDescriptors on stay as they are in the child.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <type_traits>
#include <utility>

#include "core/intrusive_list.h"

namespace weft {

namespace internal {

inline constinit std::atomic<uint32_t> fork_count{0};

void KeepReachable(void* object);

}  // namespace internal

// Forks between the process in which Weft was first used and this one.
inline uint32_t ForkCount() { return internal::fork_count.load(std::memory_order_relaxed); }

class ForkWatch : public ListNode<> {
 public:
  // `in_child(context)` runs in each child, on its one thread: it writes what it owns, and neither
  // waits nor allocates. Until this is destroyed.
  ForkWatch(void (*in_child)(void* context), void* context);
  ~ForkWatch();

  void Run() const { in_child_(context_); }

 private:
  void (*const in_child_)(void* context);
  void* const context_;
};

// Lives as long as the process from its first use on; constant-initialized where it is static. A
// fork waits for who holds it. REQUIRES: nobody waits for anything else while he does, for another
// one of these least of all.
class ProcessMutex {
 public:
  constexpr ProcessMutex() = default;

  void lock() {
    if (!is_known_.load(std::memory_order_acquire)) [[unlikely]]
      MakeKnown();
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  void MakeKnown();

  std::mutex mutex_;
  std::atomic<bool> is_known_{false};  // forks hold it
};
constexpr int kMostHeld = 16;  // those that there are, and some more

// From now on, or no more: before it is closed.
void OwnDescriptor(int descriptor);
void DisownDescriptor(int descriptor);
// Linux gives a process no more, unless its administrator raises fs.nr_open.
constexpr int kMostDescriptors = 1 << 20;

// In a child, of what is the parent's: it is not destroyed, and a leak checker finds it.
template <class T>
void LeaveBehind(T&& value) {
  static_assert(!std::is_lvalue_reference_v<T>, "moved, for nothing else has it any more");
  internal::KeepReachable(new T(std::move(value)));
}

}  // namespace weft
