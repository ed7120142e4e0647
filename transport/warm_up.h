// What an engine touches with a message over a connection: so that it can be called for at once
// where the connection was not used lately.
//
// One of a thousand connections has nothing in the near caches, and every pointer on the way to its
// ring (channel, connection, framing, link) is a miss of its own, most with a walk through the
// page tables, one after the other. Here stands where all of it is: two cache lines, one miss, and
// then all others pass together.
//
// Whoever takes a link off those that are polled in every turn writes this (Begin(), Add()), by
// asking each layer above in turn (ListsLines). Run() is for who is
// about to send, and tells the peer that something is coming (ready_flags.h): it looks there, and
// calls for its own lines, while the message is made. Fetch() is for the receiver. Either is taken
// once; then the connection is in the caches.
//
// Threads: one engine's; `call` any.
// Lifetime: belongs to the link domain, and stays as long as that: who keeps a pointer after the
//   link has gone finds one that wants nothing, or another link's, which costs some prefetches.
// Errors: none: a hint. What is beyond kMost is left out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/cache_line.h"
#include "core/inline.h"
#include "core/prefetch.h"

namespace weft {

class alignas(2 * kCacheLineBytes) WarmUp {
 public:
  // For connections that need none. Never wanted; one for all threads.
  static WarmUp& None() {
    static WarmUp none;
    return none;
  }

  // Nobody has taken it since it was written.
  bool wanted() const { return wanted_; }

  // REQUIRES: wanted().
  WEFT_COLD void Run() {
    if (call_ != nullptr) call_->store(1, std::memory_order_relaxed);
    Fetch();
  }
  void Fetch() {
    wanted_ = false;
    for (uint32_t i = 0; i < count_; ++i) FetchRange(ranges_[i]);
  }
  // The connection is used.
  void Drop() { wanted_ = false; }
  // There is no connection any more.
  void Clear() {
    wanted_ = false;
    call_ = nullptr;
    count_ = 0;
  }

  // `call`: is set to 1 to make the peer look; null: there is nothing to set. It stays until
  // Clear() or the next Begin().
  void Begin(std::atomic<uint8_t>* call) {
    wanted_ = true;
    call_ = call;
    count_ = 0;
  }
  // The lines of [at, at + bytes), 32 at most, which will be read, or written where the peer has
  // them.
  void Add(const void* at, std::size_t bytes) { AddRange(at, bytes, 0); }
  void AddForWrite(const void* at, std::size_t bytes) { AddRange(at, bytes, kForWrite); }

  // Ranges that fit.
  static constexpr uint32_t kMost = 14;
  // For tests: what was added, a line at a time.
  template <class Visit>
  void ForEachLine(Visit&& visit) const {
    for (uint32_t i = 0; i < count_; ++i) VisitLines(ranges_[i], visit);
  }

 private:
  // A range is the address of its first line, with these in the bits that are 0 there.
  static constexpr uintptr_t kLineBits = 31;  // lines - 1
  static constexpr uintptr_t kForWrite = 32;
  static_assert(kLineBits + kForWrite < kCacheLineBytes);

  void AddRange(const void* at, std::size_t bytes, uintptr_t flags) {
    if (count_ == kMost || bytes == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(at);
    const uintptr_t first = begin & ~uintptr_t{kCacheLineBytes - 1};
    const uintptr_t more = (begin + bytes - 1 - first) / kCacheLineBytes;
    ranges_[count_++] = first | (more < kLineBits ? more : kLineBits) | flags;
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
  uint32_t count_ = 0;
  std::atomic<uint8_t>* call_ = nullptr;
  uintptr_t ranges_[kMost] = {};
};

// What is touched with each message: a connection, its handler.
class ListsLines {
 public:
  // Adds what the next message will touch of this, and of what is above.
  virtual void ListLines(WarmUp* lines) = 0;

 protected:
  ~ListsLines() = default;
};

// A link that can go cold, or a connection over one. Others have none of this: ask by a cast, once.
class CanGoCold {
 public:
  // What to take, if it is wanted, before something is sent. The same as long as this lives.
  virtual WarmUp& warm_up() = 0;
  // Is asked for its lines whenever this goes cold. It outlives this; null: nobody.
  virtual void AskForLines(ListsLines* above) = 0;
  // Its domain does not see by which link a batch comes: who takes it from there calls for the
  // lines.
  virtual bool comes_unseen() const { return false; }

  // Of a connection or link.
  template <class T>
  static CanGoCold* Of(T* connection) {
    return dynamic_cast<CanGoCold*>(connection);
  }

 protected:
  ~CanGoCold() = default;
};

// A connection over a link: hands on what the link has.
class HandsOnWarmUp : public CanGoCold, public ListsLines {
 public:
  WarmUp& warm_up() override { return *warm_up_; }
  void AskForLines(ListsLines* above) override { above_ = above; }

 protected:
  ~HandsOnWarmUp() = default;

  // Has `link` from now on, which may be one that never goes cold. Returns what to take when a
  // batch comes; null: the link sees to that.
  template <class Link>
  WarmUp* TakeWarmUpOf(Link* link) {
    CanGoCold* const cold = CanGoCold::Of(link);
    if (cold == nullptr) return nullptr;
    warm_up_ = &cold->warm_up();
    cold->AskForLines(this);
    return cold->comes_unseen() ? warm_up_ : nullptr;
  }
  // Has no link any more.
  void LeaveWarmUp() { warm_up_ = &WarmUp::None(); }
  void ListAbove(WarmUp* lines) {
    if (above_ != nullptr) above_->ListLines(lines);
  }

 private:
  WarmUp* warm_up_ = &WarmUp::None();
  ListsLines* above_ = nullptr;
};

}  // namespace weft
