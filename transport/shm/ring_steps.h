// The steps of a ring that every record takes: part of those who write and read (core/inline.h).
// ring.h has the rules.
//
// Threads, Errors: ring.h's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/inline.h"
#include "transport/shm/ring.h"

namespace weft {
namespace ring_internal {

// Of a header.
inline constexpr int kKindShift = 16;
inline constexpr int kNumberShift = 24;
inline constexpr int kToldShift = 40;

constexpr uint32_t LengthOf(uint64_t header) { return static_cast<uint16_t>(header); }
constexpr auto KindOf(uint64_t header) {
  return static_cast<RecordKind>(static_cast<uint8_t>(header >> kKindShift));
}
constexpr auto NumberOf(uint64_t header) { return static_cast<uint16_t>(header >> kNumberShift); }
constexpr auto ToldOf(uint64_t header) { return static_cast<uint32_t>(header >> kToldShift); }

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
// reader still looks at: see "Publishing" in ring.h. In ThreadSanitizer's eyes such stores have to
// be atomic, and fences are nothing.
#if defined(__SANITIZE_THREAD__)
inline void FenceBeforePayload() {}
inline void CopyToRing(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, from + at, sizeof(word));
    WordAt(to + at).store(word, std::memory_order_relaxed);
  }
}
#else
inline void FenceBeforePayload() { std::atomic_thread_fence(std::memory_order_release); }
WEFT_INLINE void CopyToRing(std::byte* to, const std::byte* from, size_t bytes) {
  CopyWords(to, from, bytes);
}
#endif

// No byte more than `bytes`: what stands behind them is not the peer's to see. (Batches are whole
// words.)
WEFT_INLINE void CopyExactly(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t rest = bytes % 8;
  if (rest != 0) [[unlikely]] {
    std::memcpy(to + (bytes - rest), from + (bytes - rest), rest);
  }
  CopyToRing(to, from, bytes - rest);
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

inline uint64_t RingWriter::HeaderOf(RecordKind kind, uint32_t length, uint32_t told) const {
  return length | uint64_t{static_cast<uint8_t>(kind)} << ring_internal::kKindShift |
         uint64_t{number_} << ring_internal::kNumberShift |
         uint64_t{told} << ring_internal::kToldShift;
}

// Where all was consumed, what is skipped is free.
inline void RingWriter::StepToBeginning() {
  const uint32_t skipped = kRingBytes - position_;
  if (KnowsAllConsumed()) consumed_ += skipped;
  produced_ += skipped;
  position_ = 0;
}

WEFT_INLINE RingWriter::Result RingWriter::TryWrite(RecordKind kind, ByteSpan payload,
                                                    uint32_t told) {
  using namespace ring_internal;
  WEFT_DCHECK(payload.size() <= kMaxRecordPayload && told < kToldModulus);
  const auto length = static_cast<uint32_t>(payload.size());
  const uint32_t bytes = RecordBytes(length);
  if (!KnowsAllConsumed() && Needed(bytes) > FreeBytes()) [[unlikely]] {
    if (!Refresh()) return Result::kBroken;
    if (Needed(bytes) > FreeBytes()) return Result::kFull;
  }
  if (BeginsAgain(bytes)) StepToBeginning();
  std::byte* const start = ring_ + position_;
  const uint32_t next = Behind(position_ + bytes);
  FenceBeforePayload();
  CopyExactly(start + kRecordHeaderBytes, payload.data(), length);
  if (next != zero_at_) {
    if (next != 0) WordAt(ring_ + next).store(0, std::memory_order_relaxed);
    zero_at_ = next;
  }
  WordAt(start).store(HeaderOf(kind, length, told), std::memory_order_release);
  ++number_;
  position_ = next;
  produced_ += bytes;
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
  const uint64_t behind = LoadHeader(position_);
  const uint64_t first = LoadHeader(0);
  if (!IsNext(first)) return position_ != 0 ? behind : 0;
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
  record->told = ToldOf(header);
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
  untold_ += bytes;
  return true;
}

}  // namespace weft
