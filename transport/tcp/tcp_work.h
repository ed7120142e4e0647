// What waits in a tcp link to be sent: batches, one-sided operations, and answers to the peer's
// reads.
//
// Threads: the engine's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/intrusive_list.h"
#include "transport/operation.h"
#include "transport/region.h"
#include "transport/tcp/tcp_frame.h"

namespace weft {

class TcpOutput;

struct TcpLineTag;
struct TcpOperationTag;
struct TcpAnswerTag;

// What waits in a line: batches and ordered writes leave in the order in which they were given, so
// that a write is in the peer's memory when a batch behind it arrives; unordered writes have a line
// of their own.
struct TcpLineItem : ListNode<TcpLineTag> {
  explicit TcpLineItem(bool batch) : is_batch(batch) {}
  const bool is_batch;
};

// A send slot: this, and its memory behind it. The frame's header is the last member, so that
// header and batch leave as one range.
struct alignas(64) TcpSlot : TcpLineItem {
  explicit TcpSlot(bool is_wide) : TcpLineItem(/*batch=*/true), wide(is_wide) {}

  std::byte* data() { return reinterpret_cast<std::byte*>(this) + sizeof(TcpSlot); }
  // The frame: header, batch and padding.
  std::byte* frame() { return data() - kTcpHeaderBytes; }
  uint64_t frame_bytes() const { return kTcpHeaderBytes + bytes + TcpPadding(bytes); }

  TcpSlot* next_free = nullptr;
  uint32_t bytes = 0;  // of the batch
  const bool wide;
  alignas(16) std::byte header_place[kTcpHeaderBytes];  // right before data()
};
static_assert(sizeof(TcpSlot) == 64);

// One post: a record for each of its transfers. The first stands for the whole.
struct TcpOperation : TcpLineItem, ListNode<TcpOperationTag> {
  TcpOperation() : TcpLineItem(/*batch=*/false) {}

  static constexpr uint64_t kNotSent = ~uint64_t{0};

  // Of each record.
  std::byte* local = nullptr;
  RemoteSpan remote;
  TcpOperation* next = nullptr;  // transfer of the same post

  // Of the first.
  const TcpOutput* output = nullptr;  // of the link that it is posted on
  Operation* user = nullptr;
  uint32_t number = 0;   // on the wire
  uint32_t records = 0;  // transfers
  bool is_read = false;
  bool in_order = true;             // a write that batches wait for
  uint64_t order = 0;               // of writes: how many were posted before it
  uint64_t sent_at = kNotSent;      // TcpOutput::HasLeft()
  TcpOperation* current = nullptr;  // the record that is moved next; null: all have been
  uint64_t moved = 0;               // bytes of it
  uint64_t bytes_left = 0;          // read: still to come

  // `bytes` more have been moved. REQUIRES: they are of the current record.
  void Move(uint64_t bytes) {
    moved += bytes;
    if (moved < current->remote.length) return;
    current = current->next;
    moved = 0;
  }
};

// A range that the peer reads: the records of one read, one behind the other. The first stands for
// the whole.
struct TcpAnswer : ListNode<TcpAnswerTag> {
  RemoteSpan span;            // what is left of it
  TcpAnswer* next = nullptr;  // of the same read, or free
  uint32_t number = 0;        // of the peer's operation; in the first
  uint32_t records = 0;       // in the first
};

}  // namespace weft
