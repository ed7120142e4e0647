#include "core/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstddef>
#include <vector>

#include "core/check.h"
#include "core/process_wide.h"

namespace weft {
namespace {

constexpr int kWordBits = 64;

// Zeros that cost nothing until they are written.
constinit std::array<std::atomic<uint64_t>, kMostDescriptors / kWordBits> owned{};
constinit std::atomic<int> words_used{0};  // of `owned`, from the first

struct Guard {
  std::mutex mutex;
  IntrusiveList<ForkWatch> watches;         // guarded by mutex, as all below
  std::array<std::mutex*, kMostHeld> held;  // the first held_count
  int held_count = 0;
  std::vector<void*> left;
};

constinit ProcessWide<Guard> the_guard;
constinit std::atomic<bool> has_handlers{false};
// A thread's own fork() is between its two halves: the handlers run more than once where threads
// that came first at the same time have all set them.
constinit thread_local int forking = 0;

void BeforeFork();
void InParent();
void InChild();

// Whatever it serves may outlive all else.
Guard& TheGuard() {
  Guard& guard = the_guard.Get();
  if (!has_handlers.load(std::memory_order_acquire)) {
    // They stay as long as this library is loaded. Without memory for them children have no guard,
    // and nothing else is different.
    static_cast<void>(pthread_atfork(&BeforeFork, &InParent, &InChild));
    has_handlers.store(true, std::memory_order_release);
  }
  return guard;
}

// All that is below happens between the two halves of a fork, on the thread that forks.

void BeforeFork() {
  if (forking++ > 0) return;
  Guard& guard = the_guard.Get();
  guard.mutex.lock();
  for (int i = 0; i < guard.held_count; ++i) guard.held[static_cast<size_t>(i)]->lock();
}

void Unlock(Guard& guard) {
  for (int i = guard.held_count; i-- > 0;) guard.held[static_cast<size_t>(i)]->unlock();
  guard.mutex.unlock();
}

// False: not yet, or the fork had begun before there were handlers.
bool EndsFork() { return forking > 0 && --forking == 0; }

void InParent() {
  if (EndsFork()) Unlock(the_guard.Get());
}

// Closed alone, a number would be given to the next file that the child opens, and what was the
// parent's may still name it.
void Replace(int descriptor, int nothing) {
  if (nothing < 0 || dup3(nothing, descriptor, O_CLOEXEC) < 0) close(descriptor);
}

void GiveUpDescriptors() {
  // Never readable, as nobody else has it, and no socket. Where the process has all descriptors
  // that it may have, the first of these makes room for it.
  int nothing = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool in_place = false;  // it has the number of the one that made room
  const auto words = static_cast<size_t>(words_used.load(std::memory_order_relaxed));
  for (size_t word = 0; word < words; ++word) {
    uint64_t bits = owned[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      Replace(static_cast<int>(word) * kWordBits + std::countr_zero(bits), nothing);
      if (nothing >= 0) continue;
      nothing = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      in_place = true;
    }
  }
  if (nothing >= 0 && !in_place) close(nothing);
}

void InChild() {
  if (!EndsFork()) return;
  Guard& guard = the_guard.Get();
  internal::fork_count.fetch_add(1, std::memory_order_relaxed);
  for (const ForkWatch& watch : guard.watches) watch.Run();
  GiveUpDescriptors();
  Unlock(guard);
}

}  // namespace

ForkWatch::ForkWatch(void (*in_child)(void* context), void* context)
    : in_child_(in_child), context_(context) {
  Guard& guard = TheGuard();
  const std::lock_guard<std::mutex> lock(guard.mutex);
  guard.watches.PushBack(this);
}

ForkWatch::~ForkWatch() {
  const std::lock_guard<std::mutex> lock(TheGuard().mutex);
  Unlink();
}

void ProcessMutex::MakeKnown() {
  Guard& guard = TheGuard();
  const std::lock_guard<std::mutex> lock(guard.mutex);
  if (is_known_.load(std::memory_order_relaxed)) return;
  WEFT_CHECK(guard.held_count < kMostHeld);  // Ours: kMostHeld is more than there are
  guard.held[static_cast<size_t>(guard.held_count++)] = &mutex_;
  is_known_.store(true, std::memory_order_release);
}

void OwnDescriptor(int descriptor) {
  if (descriptor < 0 || descriptor >= kMostDescriptors) return;
  TheGuard();
  const int word = descriptor / kWordBits;
  int used = words_used.load(std::memory_order_relaxed);
  while (used <= word &&
         !words_used.compare_exchange_weak(used, word + 1, std::memory_order_relaxed)) {
  }
  owned[static_cast<size_t>(word)].fetch_or(uint64_t{1} << (descriptor % kWordBits),
                                            std::memory_order_relaxed);
}

void DisownDescriptor(int descriptor) {
  if (descriptor < 0 || descriptor >= kMostDescriptors) return;
  if (descriptor / kWordBits >= words_used.load(std::memory_order_relaxed)) return;
  owned[static_cast<size_t>(descriptor / kWordBits)].fetch_and(
      ~(uint64_t{1} << (descriptor % kWordBits)), std::memory_order_relaxed);
}

void internal::KeepReachable(void* object) {
  Guard& guard = TheGuard();
  const std::lock_guard<std::mutex> lock(guard.mutex);
  guard.left.push_back(object);
}

}  // namespace weft
