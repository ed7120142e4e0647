#include "transport/shm/ring.h"

#include <cstring>

#include "core/check.h"
#include "core/full_fence.h"

namespace weft {
namespace {

constexpr uint64_t HeaderOf(RecordKind kind, uint32_t length) {
  return uint64_t{static_cast<uint8_t>(kind)} << 32 | length;
}

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

// No byte more than `bytes`: what stands behind them is not the peer's to see. (Batches are whole
// words.)
inline void CopyExactly(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t words = bytes & ~size_t{7};
  CopyWords(to, from, words);
  if (words != bytes) [[unlikely]] {
    std::memcpy(to + words, from + words, bytes - words);
  }
}

}  // namespace

// --- the writer ----------------------------------------------------------------------------------

// False: the reader's count is impossible.
bool RingWriter::Refresh() {
  if (broken_) return false;
  const uint64_t told = words_->consumed.load(std::memory_order_acquire);
  if (told - consumed_ > produced_ - consumed_) {
    broken_ = true;
    return false;
  }
  consumed_ = told;
  return true;
}

RingWriter::Result RingWriter::TryWrite(RecordKind kind, ByteSpan payload) {
  WEFT_DCHECK(payload.size() <= kMaxRecordPayload);
  const auto length = static_cast<uint32_t>(payload.size());
  const uint32_t bytes = RecordBytes(length);
  const uint32_t skipped = Skipped(bytes);
  const uint32_t needed = Needed(bytes);
  if (needed > FreeBytes()) {
    if (!Refresh()) return Result::kBroken;
    if (needed > FreeBytes()) return Result::kFull;
  }
  const uint32_t start = skipped != 0 ? 0 : position_;
  const uint32_t next = Behind(start + bytes);
  CopyExactly(ring_ + start + kRecordHeaderBytes, payload.data(), length);
  WordAt(ring_ + next).store(0, std::memory_order_relaxed);
  WordAt(ring_ + start).store(HeaderOf(kind, length), std::memory_order_release);
  if (skipped != 0) {
    WordAt(ring_ + position_).store(HeaderOf(RecordKind::kWrap, 0), std::memory_order_release);
  }
  position_ = next;
  produced_ += skipped + bytes;
  return Result::kWritten;
}

void RingWriter::WantRoom() {
  words_->wants_room.store(1, std::memory_order_relaxed);
  FullFence();
}

void RingWriter::StopWanting() { words_->wants_room.store(0, std::memory_order_relaxed); }

void RingWriter::Close() {
  WordAt(ring_ + position_).store(HeaderOf(RecordKind::kClosed, 0), std::memory_order_release);
}

// --- the reader ----------------------------------------------------------------------------------

uint64_t RingReader::LoadHeader() const {
  // Only ever loaded; atomic_ref wants to be able to store.
  return WordAt(const_cast<std::byte*>(ring_ + position_)).load(std::memory_order_acquire);
}

bool RingReader::HasRecord() const { return LoadHeader() != 0; }

RingReader::Result RingReader::Next(std::byte* buffer, Record* record) {
  uint64_t header = LoadHeader();
  if (header == 0) return Result::kNone;
  if (header == HeaderOf(RecordKind::kWrap, 0)) {
    if (position_ == 0) return Result::kBroken;
    consumed_ += kRingBytes - position_;
    position_ = 0;
    header = LoadHeader();
    if (header == 0 || header == HeaderOf(RecordKind::kWrap, 0)) return Result::kBroken;
  }
  return Take(header, buffer, record);
}

RingReader::Result RingReader::Take(uint64_t header, std::byte* buffer, Record* record) {
  const auto length = static_cast<uint32_t>(header);
  const uint64_t kind = header >> 32;
  if (kind == static_cast<uint64_t>(RecordKind::kClosed) && length == 0) {
    *record = {RecordKind::kClosed, {}};
    return Result::kRecord;
  }
  const bool known = kind == static_cast<uint64_t>(RecordKind::kBatch) ||
                     kind == static_cast<uint64_t>(RecordKind::kAsk) ||
                     kind == static_cast<uint64_t>(RecordKind::kAnswer);
  if (!known || length == 0 || length > max_payload_) return Result::kBroken;
  const uint32_t bytes = RecordBytes(length);
  if (bytes > kRingBytes - position_) return Result::kBroken;
  // Whole words: a record ends at a full line, and so has them.
  CopyWords(buffer, ring_ + position_ + kRecordHeaderBytes, (size_t{length} + 7) & ~size_t{7});
  *record = {static_cast<RecordKind>(kind), ByteSpan(buffer, length)};
  position_ = Behind(position_ + bytes);
  consumed_ += bytes;
  return Result::kRecord;
}

bool RingReader::TellConsumed() {
  if (consumed_ - published_ < kTellConsumedBytes) return false;
  published_ = consumed_;
  words_->consumed.store(consumed_, std::memory_order_release);
  FullFence();
  return words_->wants_room.load(std::memory_order_relaxed) != 0;
}

}  // namespace weft
