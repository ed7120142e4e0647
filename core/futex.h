// Sleeping on a 32-bit word until another thread changes it: Linux's futex(2), of one process.
//
//   who waits:   while (!IsWhatIsAwaited(seen = word.load())) FutexWait(word, seen);
//   who changes: word.store(...), and then FutexWakeAll(&word)
//
// The kernel compares the word with what the sleeper saw, and lets it sleep, in one step with
// respect to wake-ups: a change before that step ends the wait at once, the wake-up behind a later
// change ends it then. So none is lost, if every change of what is awaited changes the word and is
// followed by a wake-up. The order of memory is the atomic's own: who waits loads with acquire and
// who changes stores with release, as if nobody slept.
//
// Threads:  any of this process; the word is not shared with others.
// Errors:   none.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "core/check.h"
#include "core/clock.h"

namespace weft {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));  // what the kernel looks at

// Sleeps while `word` is `seen`, for `timeout_ns` at most (CLOCK_MONOTONIC; kNever: no end). It
// says nothing about why it returns: another value, a wake-up, the timeout, a signal, or a wake-up
// that was meant for an earlier user of this address. The caller looks at the word and its clock.
inline void FutexWait(const std::atomic<uint32_t>& word, uint32_t seen,
                      uint64_t timeout_ns = kNever) {
  timespec timeout;
  timeout.tv_sec = static_cast<time_t>(timeout_ns / kNsPerSec);
  timeout.tv_nsec = static_cast<long>(timeout_ns % kNsPerSec);
  const long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen,
                              timeout_ns == kNever ? nullptr : &timeout, nullptr, 0);
  // System: there is nothing else that futex(2) may say of a word that is there.
  WEFT_CHECK(result == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
}

// Wakes all that sleep on the word at this address. The word may be gone: its address names it to
// the kernel, which does not touch it. Whoever sleeps there by then, on another word in the same
// place, returns once for no reason, as every user of futexes must expect.
inline void FutexWakeAll(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft
