// The cache lines that a message over one connection touches, so that they can be prefetched
// together where the connection was not used lately.
//
// One of a thousand connections has nothing in the near caches, and every pointer on the way to its
// ring (channel, connection, framing, link) is a cache miss of its own, most with a page table
// walk, one after the other. This list is two cache lines long: one miss, and then all others are
// under way at once.
//
// Each layer registers the lines that it touches with every message, once, when the connection is
// made (Register()). A link that is no longer polled in every turn has gone cold: it writes down
// its own lines, which move (Begin(), Add()), and the list is wanted from then on. Who is about to
// send takes it by Run(), which also tells the peer that something is coming: so
// both sides prefetch while the message is made. Who receives takes it by Fetch(). Taken once, it
// is not wanted any more: the lines are in the caches.
//
// Threads: one engine's; the peer's flag any.
// Lifetime: belongs to the link's domain, and lives as long as that: who keeps a pointer after the
//   link has gone finds a list that is not wanted, or another link's, which costs some prefetches.
// Errors: none: a hint. What is beyond kMost is left out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/cache_line.h"
#include "core/inline.h"
#include "core/prefetch.h"

namespace weft {

class alignas(2 * kCacheLineBytes) PrefetchList {
 public:
  constexpr PrefetchList() = default;

  // Of connections that never go cold. Never wanted, and full, so that what is registered there is
  // left out: one for all threads, and nobody writes to it.
  static PrefetchList& None();

  // Nobody has taken it since the link went cold.
  bool wanted() const { return wanted_; }

  // REQUIRES: wanted().
  WEFT_COLD void Run() {
    if (peer_flag_ != nullptr) peer_flag_->store(1, std::memory_order_relaxed);
    Fetch();
  }
  void Fetch() {
    wanted_ = false;
    for (uint32_t i = 0; i < moving_; ++i) FetchRange(ranges_[i]);
    for (uint32_t i = kMost - registered_; i < kMost; ++i) FetchRange(ranges_[i]);
  }

  // --- for the layers above the link ------------------------------------------------------------

  // The lines of [at, at + bytes), 32 at most: each message reads or writes them. Until the link is
  // gone; nothing happens if the memory goes earlier.
  void Register(const void* at, std::size_t bytes) {
    if (IsFull() || bytes == 0) return;
    ranges_[kMost - ++registered_] = RangeOf(at, bytes, 0);
  }
  // Takes back what was registered with the same arguments, of a user that goes before the link.
  // Nothing happens if there was no room for it.
  void Unregister(const void* at, std::size_t bytes) {
    const uint32_t last = kMost - registered_;
    for (uint32_t i = last; i < kMost; ++i) {
      if (ranges_[i] != RangeOf(at, bytes, 0)) continue;
      ranges_[i] = ranges_[last];
      --registered_;
      return;
    }
  }

  // --- for the link -----------------------------------------------------------------------------

  // It has gone cold: the list is wanted. `peer_flag` is set to 1 to make the peer look; null:
  // there is none. The flag stays until Clear() or the next Begin().
  void Begin(std::atomic<uint8_t>* peer_flag) {
    wanted_ = true;
    peer_flag_ = peer_flag;
    moving_ = 0;
  }
  // Lines of the link and its provider, as Register(); until the next Begin(). AddForWrite(): which
  // will be written where the peer has them in its caches.
  void Add(const void* at, std::size_t bytes) { AddRange(at, bytes, 0); }
  void AddForWrite(const void* at, std::size_t bytes) { AddRange(at, bytes, kForWrite); }
  // The link is used.
  void Drop() { wanted_ = false; }
  // There is no link any more.
  void Clear() {
    wanted_ = false;
    peer_flag_ = nullptr;
    moving_ = 0;
    registered_ = 0;
  }

  // Ranges that fit.
  static constexpr uint16_t kMost = 14;
  // For tests: what is listed, a line at a time.
  template <class Visit>
  void ForEachLine(Visit&& visit) const {
    for (uint32_t i = 0; i < moving_; ++i) VisitLines(ranges_[i], visit);
    for (uint32_t i = kMost - registered_; i < kMost; ++i) VisitLines(ranges_[i], visit);
  }

 private:
  constexpr explicit PrefetchList(uint16_t registered) : registered_(registered) {}

  // A range is the address of its first line, with these in the bits that are 0 there.
  static constexpr uintptr_t kLineBits = 31;  // lines - 1
  static constexpr uintptr_t kForWrite = 32;
  static_assert(kLineBits + kForWrite < kCacheLineBytes);

  bool IsFull() const { return moving_ + registered_ == kMost; }
  static uintptr_t RangeOf(const void* at, std::size_t bytes, uintptr_t flags) {
    const auto begin = reinterpret_cast<uintptr_t>(at);
    const uintptr_t first = begin & ~uintptr_t{kCacheLineBytes - 1};
    const uintptr_t more = (begin + bytes - 1 - first) / kCacheLineBytes;
    return first | (more < kLineBits ? more : kLineBits) | flags;
  }
  void AddRange(const void* at, std::size_t bytes, uintptr_t flags) {
    if (IsFull() || bytes == 0) return;
    ranges_[moving_++] = RangeOf(at, bytes, flags);
  }

  template <class Visit>
  static void VisitLines(uintptr_t range, Visit&& visit) {
    const uintptr_t first = range & ~uintptr_t{kCacheLineBytes - 1};
    const bool for_write = (range & kForWrite) != 0;
    for (uintptr_t line = 0; line <= (range & kLineBits); ++line) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): one word for each range, so that two lines do
      visit(reinterpret_cast<const void*>(first + line * kCacheLineBytes), for_write);
    }
  }
  static void FetchRange(uintptr_t range) {
    VisitLines(range, [](const void* line, bool for_write) {
      if (for_write) {
        PrefetchForWrite(line);
      } else {
        PrefetchLines(line, 1);
      }
    });
  }

  bool wanted_ = false;
  uint16_t moving_ = 0;      // ranges of the link: ranges_[0..moving_)
  uint16_t registered_ = 0;  // of the layers above: the last ones of ranges_
  std::atomic<uint8_t>* peer_flag_ = nullptr;
  uintptr_t ranges_[kMost] = {};
};
static_assert(sizeof(PrefetchList) == 2 * kCacheLineBytes);

inline PrefetchList& PrefetchList::None() {
  static constinit PrefetchList none(kMost);
  return none;
}

}  // namespace weft
