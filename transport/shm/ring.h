// A one-way road for records between two processes, in memory that both have mapped: one writer,
// one reader, no locks, and a reader that finds out about a record in the cache line where it
// begins.
//
// Layout. The ring is kRingBytes of shared bytes, all zero at first. A record begins at a multiple
// of 64 with a header of 8 bytes and goes on with its payload; it takes whole lines:
//
//   bits 0..31   length of the payload, in bytes
//   bits 32..39  RecordKind, never 0: so a header is never 0
//   bits 40..63  0
//
// A record does not wrap around. Where the next one does not fit before the end, the writer puts it
// at the beginning and a header of the kind kWrap where it would have been. Beside the ring, in
// lines of their own, stand two words (RingWords):
//
//   consumed     the reader's: bytes that it is done with, ever, with those that a wrap skipped
//   wants_room   the writer's: it waits for `consumed` to move on, and may sleep
//
// Publishing. The writer copies the payload, then stores 0 where the next record's header will
// stand, then stores the header with release. The reader polls one header with acquire. So the line
// that it waits for brings the record's first 56 bytes along; there is no tail index to fetch
// first. The zero is there before the header is, so what the line held in the ring's previous round
// is never taken for a header. For the same reason one line beyond the record must be free: a
// writer therefore always has room for a header, and can close a full ring.
//
// Room. The writer counts what it has produced, the reader what it has consumed; produced -
// consumed
// <= kRingBytes always, and the difference is what the writer must not touch. The reader stores its
// count with release only now and then, when it has moved on by a quarter of the ring; the writer
// loads it with acquire only when its last copy of it leaves too little room. A record takes its
// own bytes; what a wrap skips before it, which is less than that, where it would end beyond the
// ring; and the line behind it. For the largest, of kMaxRecordBytes, that is less than the three
// quarters that are free for sure when the reader has seen everything: so a writer that waits for
// room, for a record of whatever size, is always waiting for something that the reader will still
// tell.
//
// Waking. A writer that finds no room sets wants_room, and looks again; a reader that has told its
// count looks at wants_room. With a full fence between the steps on both sides, neither misses the
// other (as in transport/doorbell.h).
//
// A hostile peer may write anything anywhere at any time: ring, words, all.
//   The reader trusts a header only after one load into its own memory: known kind, length within
//   the bound, record inside the ring. It copies the payload out before anything looks at it, so
//   nobody sees bytes that change. It reads nothing else from the shared memory; where it stands is
//   in its private memory. So all that a liar can do is to make up records, which he may send
//   anyway. The writer reads one word: `consumed`, which must lie between what it was and what was
//   produced. A liar there spoils his own records. Everything else leads to kBroken, which ends
//   this link. Nobody waits for a peer's store, and there is no lock to die with.
//
// Threads: a writer on one thread, its reader on another, in any process.
// Lifetime: the shared memory outlives both. Writer and reader start with the zero-filled memory.
// Errors: kBroken says that the peer broke the rules; the object is not to be used again.
// Invariants: position_ is a multiple of 64 below kRingBytes; reader: published_ <= consumed_;
//   writer: consumed_ <= produced_ <= consumed_ + kRingBytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/cache_line.h"

namespace weft {

// 24 KiB each way: two rings, their words, and a send slot make less than the 64 KiB that a
// connection may cost. Room for 190 small batches, or two of the largest.
inline constexpr uint32_t kRingBytes = 24 << 10;
inline constexpr uint32_t kRecordHeaderBytes = 8;
// A payload of 8 KiB. With a wrap, two records' worth and a line: 66 % of the ring.
inline constexpr uint32_t kMaxRecordBytes = (8 << 10) + kCacheLineBytes;
inline constexpr uint32_t kMaxRecordPayload = kMaxRecordBytes - kCacheLineBytes;
// What the reader has consumed and not told: see "Room" above.
inline constexpr uint32_t kTellConsumedBytes = kRingBytes / 4;

static_assert(2 * kMaxRecordBytes + kCacheLineBytes <= kRingBytes - kTellConsumedBytes);
static_assert(kRingBytes % kCacheLineBytes == 0 && kMaxRecordBytes % kCacheLineBytes == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The numbers stand in shared memory: never reuse one.
enum class RecordKind : uint8_t {
  kBatch = 1,   // a batch of the framing; 1 byte or more
  kWrap = 2,    // no payload: the next record is at the beginning of the ring
  kClosed = 3,  // no payload: the writer's side has closed, nothing follows
  kAsk = 4,     // one-sided access that the target is to carry out
  kAnswer = 5,  // what came of it
};

// Two cache lines apart: processors fetch lines in pairs.
inline constexpr size_t kWordAlignment = 2 * kCacheLineBytes;

struct RingWords {
  alignas(kWordAlignment) std::atomic<uint64_t> consumed;
  alignas(kWordAlignment) std::atomic<uint32_t> wants_room;
};

constexpr uint32_t RecordBytes(uint32_t payload) {
  return (kRecordHeaderBytes + payload + (kCacheLineBytes - 1)) &
         ~static_cast<uint32_t>(kCacheLineBytes - 1);
}

class RingWriter {
 public:
  enum class Result : uint8_t { kWritten = 1, kFull = 2, kBroken = 3 };

  RingWriter() = default;
  // REQUIRES: `ring` is kRingBytes of zeros at a multiple of 64.
  RingWriter(std::byte* ring, RingWords* words) : ring_(ring), words_(words) {}

  // Writes one record and publishes it. kFull: nothing was written.
  // REQUIRES: payload.size() <= kMaxRecordPayload.
  Result TryWrite(RecordKind kind, ByteSpan payload);

  // Whether TryWrite() of so long a payload, or a shorter one, would find room now. False also for
  // a broken ring. REQUIRES: as TryWrite().
  bool HasRoom(uint32_t payload) {
    const uint32_t needed = Needed(RecordBytes(payload));
    return FreeBytes() >= needed || (Refresh() && FreeBytes() >= needed);
  }
  // The peer broke the rules.
  bool broken() const { return broken_; }

  // Asks to be woken when there may be room again, or not any more. Look for room once more after
  // asking.
  void WantRoom();
  void StopWanting();

  // The last record, for which there is always room. Nothing is written after it.
  void Close();

  uint64_t produced() const { return produced_; }

 private:
  // What a wrap before a record of so many bytes skips; 0: none.
  uint32_t Skipped(uint32_t bytes) const {
    return bytes > kRingBytes - position_ ? kRingBytes - position_ : 0;
  }
  // With that, and the line behind the record.
  uint32_t Needed(uint32_t bytes) const {
    return Skipped(bytes) + bytes + static_cast<uint32_t>(kCacheLineBytes);
  }
  uint64_t FreeBytes() const { return kRingBytes - (produced_ - consumed_); }
  bool Refresh();

  std::byte* ring_ = nullptr;
  RingWords* words_ = nullptr;
  uint32_t position_ = 0;
  bool broken_ = false;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;  // as the reader last told
};

class RingReader {
 public:
  enum class Result : uint8_t { kNone = 1, kRecord = 2, kBroken = 3 };

  struct Record {
    RecordKind kind = RecordKind::kBatch;
    ByteSpan payload;  // in the caller's buffer
  };

  RingReader() = default;
  // Longer payloads than `max_payload` are against the rules. REQUIRES: as RingWriter; max_payload
  // <= kMaxRecordPayload.
  RingReader(const std::byte* ring, RingWords* words, uint32_t max_payload)
      : ring_(ring), words_(words), max_payload_(max_payload) {}

  // Whether Next() would find something.
  bool HasRecord() const;

  // Copies the next record to `buffer`, which has room for RecordBytes(max_payload) bytes and is
  // aligned to 8. After kClosed there is nothing more.
  Result Next(std::byte* buffer, Record* record);

  // Tells the writer what was consumed, if that is worth it. True: the writer waits for it: wake
  // its engine.
  bool TellConsumed();

  uint64_t consumed() const { return consumed_; }

 private:
  uint64_t LoadHeader() const;
  Result Take(uint64_t header, std::byte* buffer, Record* record);

  const std::byte* ring_ = nullptr;
  RingWords* words_ = nullptr;
  uint32_t max_payload_ = 0;
  uint32_t position_ = 0;
  uint64_t consumed_ = 0;
  uint64_t published_ = 0;
};

}  // namespace weft
