// Messages that wait, one behind the other in one piece of memory: each with its number.
//
// The memory grows by doubling and stays, so that a queue which is filled and emptied again and
// again allocates nothing. What has been taken off the front is made room again when the rear has
// none left: by moving what waits, if that is less than what was taken off. So each byte is moved
// less than once on average.
//
// Threads: one at a time. Lifetime: owns the bytes.
// Errors: none; who uses it bounds what it holds.
// Invariants: head_ <= tail_ <= capacity_; an empty queue begins at the front of its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "core/bytes.h"

namespace weft {

class ByteQueue {
 public:
  // Each message's number and length, in bytes.
  static constexpr size_t kEntryBytes = 8;

  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  size_t capacity() const { return capacity_; }  // bytes of memory

  // REQUIRES: message.size() < 2^32.
  void PushBack(uint32_t number, ByteSpan message) {
    const size_t bytes = kEntryBytes + message.size();
    if (bytes > capacity_ - tail_) MakeRoom(bytes);
    std::byte* const to = memory_.get() + tail_;
    StoreLe64(to, uint64_t{message.size()} << 32 | number);
    if (!message.empty()) std::memcpy(to + kEntryBytes, message.data(), message.size());
    tail_ += bytes;
    ++count_;
  }

  // REQUIRES (all three): not empty. Good until the next PushBack(), Clear() or Trim().
  uint32_t front_number() const { return LoadLe32(memory_.get() + head_); }
  ByteSpan front() const {
    return {memory_.get() + head_ + kEntryBytes, LoadLe32(memory_.get() + head_ + 4)};
  }
  void PopFront() {
    head_ += kEntryBytes + front().size();
    if (--count_ == 0) head_ = tail_ = 0;
  }

  void Clear() { head_ = tail_ = count_ = 0; }

  // Gives the memory back if nothing waits and it is more than `keep_bytes`.
  void Trim(size_t keep_bytes) {
    if (count_ > 0 || capacity_ <= keep_bytes) return;
    memory_.reset();
    capacity_ = 0;
  }

 private:
  static constexpr size_t kLeastBytes = 256;

  void MakeRoom(size_t bytes) {
    const size_t used = tail_ - head_;
    if (used + bytes <= capacity_ && used <= head_) {
      std::memmove(memory_.get(), memory_.get() + head_, used);
    } else {
      capacity_ = std::max({kLeastBytes, 2 * capacity_, used + bytes});
      auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity_);
      if (used > 0) std::memcpy(larger.get(), memory_.get() + head_, used);
      memory_ = std::move(larger);
    }
    head_ = 0;
    tail_ = used;
  }

  std::unique_ptr<std::byte[]> memory_;
  size_t capacity_ = 0;
  size_t head_ = 0;  // of the first that waits
  size_t tail_ = 0;  // behind the last
  size_t count_ = 0;
};

}  // namespace weft
