// The steps of a ring that every record takes: part of those who write and read (core/inline.h).
// ring.h has the rules.
//
// Lines. The reader looks again and again at the line that a header will be in: as soon as the
// writer stores there, the reader takes the line back, and the writer has to fetch it once more for
// what it stores after that. So TryWrite() copies a record that was made elsewhere at one go, the
// line of its header last. A record that is alone mostly goes on in the second line of the ring:
// the reader prefetches that with each look, so that it comes together with the first. Both save a
// fifth of a call of 64 B (docs/performance_log.md, 2026-11-24).
//
// Threads, Errors: ring.h's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/inline.h"
#include "core/prefetch.h"
#include "transport/shm/ring.h"

namespace weft {
namespace ring_internal {

// Of a header.
inline constexpr int kKindShift = 16;
inline constexpr int kNumberShift = 24;
inline constexpr int kAckedShift = 40;

constexpr uint32_t LengthOf(uint64_t header) { return static_cast<uint16_t>(header); }
constexpr auto KindOf(uint64_t header) {
  return static_cast<RecordKind>(static_cast<uint8_t>(header >> kKindShift));
}
constexpr auto NumberOf(uint64_t header) { return static_cast<uint16_t>(header >> kNumberShift); }
constexpr auto AckedOf(uint64_t header) { return static_cast<uint32_t>(header >> kAckedShift); }

inline std::atomic_ref<uint64_t> WordAt(std::byte* place) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(place));
}

// The position behind a record that ends at `end`: the ring's end is its beginning.
constexpr uint32_t Behind(uint32_t end) { return end == kRingBytes ? 0 : end; }

// Up to this length a loop costs less than a call of memcpy().
inline constexpr size_t kShortBytes = 256;

// REQUIRES: a multiple of 8.
WEFT_INLINE void CopyWords(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > kShortBytes) [[unlikely]] {
    std::memcpy(to, from, bytes);
    return;
  }
  for (; bytes >= 32; bytes -= 32, to += 32, from += 32) std::memcpy(to, from, 32);
  if ((bytes & 16) != 0) {
    std::memcpy(to, from, 16);
    to += 16;
    from += 16;
  }
  if ((bytes & 8) != 0) std::memcpy(to, from, 8);
}

// Between a header at the beginning and what is written behind it, perhaps over the place that the
// reader still looks at: see "Publishing" in ring.h. What is seen there then is left, so the load
// races with plain stores, and nothing comes of it. ThreadSanitizer, for which fences are nothing,
// is not shown that load.
#if defined(__SANITIZE_THREAD__)
inline void FenceBeforePayload() {}
__attribute__((noinline, no_sanitize("thread"))) inline uint64_t Peek(const std::byte* place) {
  return *reinterpret_cast<const volatile uint64_t*>(place);
}
#else
inline void FenceBeforePayload() { std::atomic_thread_fence(std::memory_order_release); }
#endif

// A record's payload. No byte more than `bytes`: what stands behind them is not the peer's to see.
// (Batches are whole words.) The line of the header comes last: see "Lines" above.
WEFT_INLINE void CopyExactly(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kFirst = kCacheLineBytes - kRecordHeaderBytes;
  const size_t rest = bytes % 8;
  if (rest != 0) [[unlikely]] {
    std::memcpy(to + (bytes - rest), from + (bytes - rest), rest);
  }
  const size_t words = bytes - rest;
  if (words < kFirst) return CopyWords(to, from, words);
  CopyWords(to + kFirst, from + kFirst, words - kFirst);
  std::memcpy(to, from, kFirst);
}

// Whole lines, of which a record is made: at least one.
WEFT_INLINE void CopyLines(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > kShortBytes) [[unlikely]] {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::byte* const end = to + bytes;
  do {
    std::memcpy(to, from, kCacheLineBytes);
    to += kCacheLineBytes;
    from += kCacheLineBytes;
  } while (to != end);
}

}  // namespace ring_internal

// --- the writer ----------------------------------------------------------------------------------

inline uint64_t RingWriter::HeaderOf(RecordKind kind, uint32_t length, uint32_t acked) const {
  return length | uint64_t{static_cast<uint8_t>(kind)} << ring_internal::kKindShift |
         uint64_t{number_} << ring_internal::kNumberShift |
         uint64_t{acked} << ring_internal::kAckedShift;
}

// Where all was consumed, what is skipped is free.
inline void RingWriter::StepToBeginning() {
  const uint32_t skipped = kRingBytes - position_;
  if (KnowsAllConsumed()) consumed_ += skipped;
  produced_ += skipped;
  position_ = 0;
}

// Where all was consumed, a claim that does not begin again has room before the end.
WEFT_INLINE RingWriter::Claim RingWriter::TryClaim(uint32_t least, uint32_t most) {
  using namespace ring_internal;
  WEFT_DCHECK(least <= most && most <= kMaxRecordPayload);  // Ours: constants of this side
  if (!HasRoom(most)) [[unlikely]]
    return {};
  claim_ = position_;
  uint32_t room = most;
  if (KnowsAllConsumed() && RecordBytes(least) <= position_) {
    claim_ = 0;
    room = std::min(most, position_ - kRecordHeaderBytes);
  } else if (RecordBytes(most) > kRingBytes - position_) {
    claim_ = 0;
  }
  FenceBeforePayload();
  return {ring_ + claim_ + kRecordHeaderBytes, room};
}

WEFT_INLINE void RingWriter::Publish(RecordKind kind, uint32_t length, uint32_t acked) {
  using namespace ring_internal;
  // Ours: lengths of what this side sends
  WEFT_DCHECK(has_claim() && length <= kMaxRecordPayload && acked < kAckedModulus);
  const uint32_t zero_at = position_;
  if (claim_ != position_) StepToBeginning();
  claim_ = kNoClaim;
  const uint32_t bytes = RecordBytes(length);
  const uint32_t next = Behind(position_ + bytes);
  if (next != zero_at && next != 0) WordAt(ring_ + next).store(0, std::memory_order_relaxed);
  WordAt(ring_ + position_).store(HeaderOf(kind, length, acked), std::memory_order_release);
  ++number_;
  position_ = next;
  produced_ += bytes;
}

WEFT_INLINE RingWriter::Result RingWriter::TryWrite(RecordKind kind, ByteSpan payload,
                                                    uint32_t acked) {
  const auto length = static_cast<uint32_t>(payload.size());
  const Claim claim = TryClaim(length, length);
  if (claim.payload == nullptr) [[unlikely]]
    return broken_ ? Result::kBroken : Result::kFull;
  ring_internal::CopyExactly(claim.payload, payload.data(), length);
  Publish(kind, length, acked);
  return Result::kWritten;
}

// --- the reader ----------------------------------------------------------------------------------

inline uint64_t RingReader::LoadHeader(uint32_t position) const {
  // Only ever loaded; atomic_ref wants to be able to store.
  return ring_internal::WordAt(const_cast<std::byte*>(ring_ + position))
      .load(std::memory_order_acquire);
}

// Of a header at the beginning of the ring, where an old one may stand.
inline bool RingReader::IsNext(uint64_t header) const {
  return header != 0 && ring_internal::NumberOf(header) == number_;
}

// In this order: see "Publishing".
WEFT_INLINE uint64_t RingReader::Find() {
#if defined(__SANITIZE_THREAD__)
  const bool any_behind = ring_internal::Peek(ring_ + position_) != 0;
  const uint64_t first = LoadHeader(0);
  if (!IsNext(first)) return position_ != 0 && any_behind ? LoadHeader(position_) : 0;
#else
  PrefetchLines(ring_ + kCacheLineBytes, 1);
  const uint64_t behind = LoadHeader(position_);
  const uint64_t first = LoadHeader(0);
  if (!IsNext(first)) return position_ != 0 ? behind : 0;
#endif
  if (position_ != 0) consumed_ += kRingBytes - position_;
  position_ = 0;
  return first;
}

WEFT_INLINE bool RingReader::Take(uint64_t header, std::byte* buffer, Record* record) {
  using namespace ring_internal;
  if (NumberOf(header) != number_) [[unlikely]]
    return false;
  const uint32_t length = LengthOf(header);
  const RecordKind kind = KindOf(header);
  record->kind = kind;
  record->acked = AckedOf(header);
  if (kind != RecordKind::kBatch) [[unlikely]] {
    record->payload = {};
    if (kind == RecordKind::kClosed && length == 0) return true;
    if (kind != RecordKind::kAsk && kind != RecordKind::kAnswer) return false;
  }
  if (length == 0 || length > max_payload_) [[unlikely]]
    return false;
  const uint32_t bytes = RecordBytes(length);
  if (bytes > kRingBytes - position_) [[unlikely]]
    return false;
  CopyLines(buffer, ring_ + position_, bytes);
  record->payload = ByteSpan(buffer + kRecordHeaderBytes, length);
  ++number_;
  position_ = Behind(position_ + bytes);
  consumed_ += bytes;
  unacked_ += bytes;
  return true;
}

}  // namespace weft
