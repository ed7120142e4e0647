#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/full_fence.h"

namespace weft {
namespace {

// Of a header; ring.h has the layout.
constexpr int kKindShift = 16;
constexpr int kNumberShift = 24;
constexpr int kToldShift = 40;

constexpr uint32_t LengthOf(uint64_t header) { return static_cast<uint16_t>(header); }
constexpr auto KindOf(uint64_t header) {
  return static_cast<RecordKind>(static_cast<uint8_t>(header >> kKindShift));
}
constexpr auto NumberOf(uint64_t header) { return static_cast<uint16_t>(header >> kNumberShift); }
constexpr auto ToldOf(uint64_t header) { return static_cast<uint32_t>(header >> kToldShift); }

std::atomic_ref<uint64_t> WordAt(std::byte* place) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(place));
}

// The position behind a record that ends at `end`: the ring's end is its beginning.
constexpr uint32_t Behind(uint32_t end) { return end == kRingBytes ? 0 : end; }

// Up to this length a loop costs less than a call of memcpy().
constexpr size_t kShortBytes = 256;

// REQUIRES: a multiple of 8.
inline void CopyWords(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > kShortBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) std::memcpy(to + at, from + at, 32);
  if ((bytes & 16) != 0) {
    std::memcpy(to + at, from + at, 16);
    at += 16;
  }
  if ((bytes & 8) != 0) std::memcpy(to + at, from + at, 8);
}

// Between a header at the beginning and what is written behind it, perhaps over the place that the
// reader still looks at: see "Publishing" in ring.h. In ThreadSanitizer's eyes such stores have to
// be atomic, and fences are nothing.
#if defined(__SANITIZE_THREAD__)
void FenceBeforePayload() {}
void CopyToRing(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, from + at, sizeof(word));
    WordAt(to + at).store(word, std::memory_order_relaxed);
  }
}
#else
inline void FenceBeforePayload() { std::atomic_thread_fence(std::memory_order_release); }
inline void CopyToRing(std::byte* to, const std::byte* from, size_t bytes) {
  CopyWords(to, from, bytes);
}
#endif

// No byte more than `bytes`: what stands behind them is not the peer's to see. (Batches are whole
// words.)
inline void CopyExactly(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t words = bytes & ~size_t{7};
  CopyToRing(to, from, words);
  if (words != bytes) [[unlikely]] {
    std::memcpy(to + words, from + words, bytes - words);
  }
}

}  // namespace

// --- the writer ----------------------------------------------------------------------------------

uint64_t RingWriter::HeaderOf(RecordKind kind, uint32_t length, uint32_t told) const {
  return length | uint64_t{static_cast<uint8_t>(kind)} << kKindShift |
         uint64_t{number_} << kNumberShift | uint64_t{told} << kToldShift;
}

// False: the reader's count is impossible. (What it said by a record may be more than the word
// says.)
bool RingWriter::Refresh() {
  if (broken_) return false;
  const uint64_t told = words_->consumed.load(std::memory_order_acquire);
  if (told > produced_) {
    broken_ = true;
    return false;
  }
  consumed_ = std::max(consumed_, told);
  return true;
}

// Where all was consumed, what is skipped is free.
void RingWriter::StepToBeginning() {
  const uint32_t skipped = kRingBytes - position_;
  if (KnowsAllConsumed()) consumed_ += skipped;
  produced_ += skipped;
  position_ = 0;
}

RingWriter::Result RingWriter::TryWrite(RecordKind kind, ByteSpan payload, uint32_t told) {
  WEFT_DCHECK(payload.size() <= kMaxRecordPayload && told < kToldModulus);
  const auto length = static_cast<uint32_t>(payload.size());
  const uint32_t bytes = RecordBytes(length);
  if (!KnowsAllConsumed() && Needed(bytes) > FreeBytes()) {
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

void RingWriter::WantRoom() {
  words_->wants_room.store(1, std::memory_order_relaxed);
  FullFence();
}

void RingWriter::StopWanting() { words_->wants_room.store(0, std::memory_order_relaxed); }

void RingWriter::Close(uint32_t told) {
  WordAt(ring_ + position_)
      .store(HeaderOf(RecordKind::kClosed, /*length=*/0, told), std::memory_order_release);
}

// --- the reader ----------------------------------------------------------------------------------

uint64_t RingReader::LoadHeader(uint32_t position) const {
  // Only ever loaded; atomic_ref wants to be able to store.
  return WordAt(const_cast<std::byte*>(ring_ + position)).load(std::memory_order_acquire);
}

// Of a header at the beginning of the ring, where an old one may stand.
bool RingReader::IsNext(uint64_t header) const {
  return header != 0 && NumberOf(header) == number_;
}

bool RingReader::HasRecord() const {
  return (position_ != 0 && LoadHeader(position_) != 0) || IsNext(LoadHeader(0));
}

// In this order: see "Publishing".
RingReader::Result RingReader::Next(std::byte* buffer, Record* record) {
  const uint64_t behind = LoadHeader(position_);
  const uint64_t first = LoadHeader(0);
  if (IsNext(first)) {
    if (position_ != 0) consumed_ += kRingBytes - position_;
    position_ = 0;
    return Take(first, buffer, record);
  }
  if (behind == 0 || position_ == 0) return Result::kNone;
  if (NumberOf(behind) != number_) return Result::kBroken;
  return Take(behind, buffer, record);
}

RingReader::Result RingReader::Take(uint64_t header, std::byte* buffer, Record* record) {
  const uint32_t length = LengthOf(header);
  const RecordKind kind = KindOf(header);
  if (kind == RecordKind::kClosed && length == 0) {
    *record = {kind, {}, ToldOf(header)};
    return Result::kRecord;
  }
  const bool known =
      kind == RecordKind::kBatch || kind == RecordKind::kAsk || kind == RecordKind::kAnswer;
  if (!known || length == 0 || length > max_payload_) return Result::kBroken;
  const uint32_t bytes = RecordBytes(length);
  if (bytes > kRingBytes - position_) return Result::kBroken;
  // Whole words: a record ends at a full line, and so has them.
  CopyWords(buffer, ring_ + position_ + kRecordHeaderBytes, (size_t{length} + 7) & ~size_t{7});
  *record = {kind, ByteSpan(buffer, length), ToldOf(header)};
  ++number_;
  position_ = Behind(position_ + bytes);
  consumed_ += bytes;
  untold_ += bytes;
  return Result::kRecord;
}

bool RingReader::Tell() {
  untold_ = 0;
  words_->consumed.store(consumed_, std::memory_order_release);
  FullFence();
  return words_->wants_room.load(std::memory_order_relaxed) != 0;
}

}  // namespace weft
