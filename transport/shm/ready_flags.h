// How an engine with very many links finds those that have something for it, without a look at
// each.
//
// A domain has one byte, a ready flag, for each of its links, in memory that its peers map. A
// writer that has published a record sets its link's byte, if it is 0. The domain polls the rings
// of links that were active lately in every turn, and leaves their bytes at 1: so their writers
// find them set and store nothing. Of the others, the cold ones, it looks at the bytes only, a line
// at a time.
//
//   writer                              domain, when a link goes cold
//   publish the record                  byte := 0
//   full fence                          full fence
//   byte is 0? byte := 1                a record in the ring after all? then it stays hot
//
// One of the two sees the other (core/full_fence.h): no record is left behind a byte of 0. (A
// writer that finds 0 before its fence sets the byte there and then, which costs the domain a look
// for nothing at most: so the byte's line and the record's come from the peer's cache together.) A
// link that sends becomes hot: the answer is found by polling.
//
// A writer may also set the byte long before its record, when it begins to make it (transport/
// prefetch_list.h): the domain makes the link hot, prefetches what the record will touch, and
// polls. That is a hint, and the steps above are the same: where the link has gone cold again
// before the record is there, or the hint was lost, the writer finds 0 behind its fence and sets
// the byte.
//
// A hostile peer can set any byte: the domain looks at some rings for nothing. It can clear the
// bytes of other peers' links: those are delayed, not lost, for the domain looks at a cold ring
// now and then anyway, and at all of them before it sleeps.
//
// Threads: the domain's engine; the bytes any.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/cache_line.h"
#include "core/check.h"

namespace weft {

// Links of one domain: as many connections as an engine can have. Two pages.
inline constexpr uint32_t kMaxShmLinks = 8192;

using ReadyFlag = std::atomic<uint8_t>;
static_assert(sizeof(ReadyFlag) == 1 && ReadyFlag::is_always_lock_free);

struct SharedReadyFlags {
  alignas(kCacheLineBytes) ReadyFlag of[kMaxShmLinks];
};

class ReadyFlags {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // `bytes` is all zeros and outlives this.
  explicit ReadyFlags(SharedReadyFlags* bytes) : bytes_(bytes), hot_(kMaxShmLinks, 0) {}

  // An index of its own for a link, cold; kNone when all are taken.
  uint32_t Take() {
    uint32_t index = end_;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else if (end_ == kMaxShmLinks) {
      return kNone;
    } else {
      ++end_;
      free_.reserve(end_);
    }
    bytes_->of[index].store(0, std::memory_order_relaxed);
    return index;
  }
  void Give(uint32_t index) {
    WEFT_DCHECK(index < end_);  // Ours: an index that Take() gave
    hot_[index] = 0;
    free_.push_back(index);
  }

  // The link is polled in every turn from now on. (Of a link whose peer has set the byte it is 1
  // already, and its line may stay where it is.)
  void MakeHot(uint32_t index) {
    hot_[index] = 1;
    ReadyFlag& byte = bytes_->of[index];
    if (byte.load(std::memory_order_relaxed) != 1) byte.store(1, std::memory_order_relaxed);
  }
  // It is not any more. Look into its ring once more after this.
  void MakeCold(uint32_t index) {
    hot_[index] = 0;
    bytes_->of[index].exchange(0, std::memory_order_seq_cst);
  }

  // Calls found(index) for each cold link whose byte is set. `found` may make any link hot.
  template <class Found>
  void ForEachReady(Found&& found) {
    for (uint32_t first = 0; first < end_; first += kCacheLineBytes) {
      if (!LineDiffers(first)) [[likely]]
        continue;
      for (uint32_t i = 0; i < kCacheLineBytes; i += kStride) {
        if (Difference(first + i) != 0) LookAt(first + i, found);
      }
    }
  }

  // Indices that were ever given out end here.
  uint32_t end() const { return end_; }

 private:
  static constexpr uint32_t kStride = 8;
  static_assert(kCacheLineBytes % kStride == 0 && kMaxShmLinks % kCacheLineBytes == 0);

  // Whether a flag is set in a line: one branch for 64 links. A loop over words took 1,100
  // instructions for a thousand links in every turn, as many as all else in a turn without work.
#if defined(__SANITIZE_THREAD__)
  bool LineDiffers(uint32_t first) const {
    uint64_t difference = 0;
    for (uint32_t i = 0; i < kCacheLineBytes; i += kStride) difference |= Difference(first + i);
    return difference != 0;
  }
#else
  // (ThreadSanitizer knows of no atomic loads of 16 bytes. None is needed: each byte is seen as it
  // was at some time.)
  typedef uint64_t Pair __attribute__((vector_size(16), may_alias));
  bool LineDiffers(uint32_t first) const {
    const Pair difference = (PairDifference(first) | PairDifference(first + 16)) |
                            (PairDifference(first + 32) | PairDifference(first + 48));
    return (difference[0] | difference[1]) != 0;
  }
  Pair PairDifference(uint32_t first) const {
    Pair hot;
    std::memcpy(&hot, hot_.data() + first, sizeof(hot));
    return *reinterpret_cast<const volatile Pair*>(&bytes_->of[first]) ^ hot;
  }
#endif

  // 0: eight bytes are as they should be while no flag is set.
  uint64_t Difference(uint32_t first) const {
    uint64_t hot;
    std::memcpy(&hot, hot_.data() + first, kStride);
    return Load(first) ^ hot;
  }

  uint64_t Load(uint32_t first) const {
    // Eight bytes at once: that they are of several writers does no harm to a load.
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(&bytes_->of[first]))
        .load(std::memory_order_relaxed);
  }

  // Hostile values are put right here, or every turn would come this way, and the byte of a link
  // that found() has not made hot: nobody listens there.
  template <class Found>
  void LookAt(uint32_t first, Found&& found) {
    for (uint32_t index = first; index < first + kStride; ++index) {
      const uint8_t set = bytes_->of[index].load(std::memory_order_acquire);
      if (set == hot_[index]) continue;
      if (hot_[index] == 0) found(index);
      if (set != hot_[index]) bytes_->of[index].store(hot_[index], std::memory_order_relaxed);
    }
  }

  SharedReadyFlags* const bytes_;
  std::vector<uint8_t> hot_;  // what the bytes are while no flag is set
  std::vector<uint32_t> free_;
  uint32_t end_ = 0;
};

}  // namespace weft
