#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>

#include "core/full_fence.h"
#include "transport/shm/ring_steps.h"

namespace weft {

// --- the writer ----------------------------------------------------------------------------------

// False: the reader's count is impossible. (What it said by a record may be more than the word
// says.)
bool RingWriter::Refresh() {
  if (broken_) return false;
  const uint64_t acked = words_->consumed.load(std::memory_order_acquire);
  if (acked > produced_) {
    broken_ = true;
    return false;
  }
  consumed_ = std::max(consumed_, acked);
  return true;
}

// As HasRoom(), where the reader has something to consume.
bool RingWriter::LookForRoom(uint32_t payload) {
  const uint32_t bytes = RecordBytes(payload);
  return FreeBytes() >= Needed(bytes) || (Refresh() && FreeBytes() >= Needed(bytes));
}

// A claim that ends before `most` is at the beginning, and all was consumed: there is room behind
// the last record.
RingWriter::Claim RingWriter::TryGrow(uint32_t used, uint32_t most) {
  const bool may_have_more = claim_ != position_ && KnowsAllConsumed();
  if (!may_have_more || RecordBytes(most) > kRingBytes - position_) return {};
  std::byte* const payload = ring_ + position_ + kRecordHeaderBytes;
  std::memcpy(payload, ring_ + claim_ + kRecordHeaderBytes, used);
  claim_ = position_;
  return {payload, most};
}

void RingWriter::WantRoom() {
  words_->wants_room.store(1, std::memory_order_relaxed);
  FullFence();
}

void RingWriter::StopWanting() { words_->wants_room.store(0, std::memory_order_relaxed); }

void RingWriter::Close(uint32_t acked) {
  ring_internal::WordAt(ring_ + position_)
      .store(HeaderOf(RecordKind::kClosed, /*length=*/0, acked), std::memory_order_release);
}

// --- the reader ----------------------------------------------------------------------------------

bool RingReader::Ack() {
  unacked_ = 0;
  words_->consumed.store(consumed_, std::memory_order_release);
  FullFence();
  return words_->wants_room.load(std::memory_order_relaxed) != 0;
}

}  // namespace weft
