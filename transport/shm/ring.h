// A one-way queue of records between two processes, in memory that both have mapped: one writer,
// one reader, no locks, and a reader that finds out about a record in the cache line where it
// begins.
//
// Layout. The ring is kRingBytes of shared bytes, all zero at first. A record begins at a multiple
// of 64 with a header of 8 bytes and goes on with its payload; it takes whole lines:
//
//   bits 0..15   length of the payload, in bytes
//   bits 16..23  RecordKind, never 0: so a header is never 0
//   bits 24..39  number of the record, from 0, modulo 2^16
//   bits 40..63  acked: lines that the writer's side has consumed of the ring back, modulo 2^24
//
// The next record begins behind the last one, or at the beginning of the ring; the reader looks at
// both places. At the beginning it begins
//
//   where it would not fit before the end: a record does not wrap around; and
//   where the writer knows that the reader has consumed all, and it is no longer than what is
//   before the place behind the last one: so a ring with one record at a time, as with calls that
//   wait for their replies, is the same few lines again and again, which stay in the caches. A
//   thousand such links that walked through their rings would touch 48 MB.
//
// Beside the ring, in lines of their own, stand two words (RingWords):
//
//   consumed     the reader's: bytes that it is done with, ever, with those that were skipped
//   wants_room   the writer's: it waits for `consumed` to move on, and may sleep
//
// Claiming. A record may be made in the ring itself: the caller writes where TryClaim() says, and
// Publish() shows it. A claim has room for the longest record that may be wanted; what is left of
// it is claimed again. At the beginning, where all was consumed, it ends before the place behind
// the last record, which the reader still looks at; TryGrow() moves it to a place with more room.
// While a claim is open nothing else is written.
//
// Publishing. The writer has the payload there, then stores 0 where the next record's header would
// stand, then stores the header with release. The reader polls both places with acquire. So the
// line that it waits for brings the record's first 56 bytes along; there is no tail index to fetch
// first. What says that a header is new:
//   At the beginning, that it has the number of the next record: nothing but headers ever stands
//   there, and since the present one at most kRingBytes / 64 records were written.
//   Behind the last record, that it is not 0, where the beginning does not have the next record.
//   The zero is there before the last record's header is, so what the line held earlier is never
//   taken for a header. Records that follow one at the beginning may be written over that place
//   while the reader still looks at it: so it loads that place first and the beginning second, and
//   the writer has a fence between the header at the beginning and what comes after it. Who sees
//   bytes of those records finds the one at the beginning as well. (That one ends before the
//   place, or it would be written over it before its own header is there.)
// A zero that stands there since an earlier record is not stored again (nor is it ever claimed):
// its line then stays in both caches. One line beyond the record must be free for it: a writer
// therefore always has room for a header, and can close a full ring.
//
// Room. The writer counts what it has produced, the reader what it has consumed; both count what
// the step to the beginning skips. The difference is what the writer must not touch, but for
// skipped bytes: produced - consumed <= kRingBytes always. The reader's count comes to the writer
// in two ways.
//   The word: the reader stores it with release only now and then, when it has taken a quarter of
//   the ring in records; the writer loads it with acquire only when what it knows leaves too little
//   room. On this alone rests that a writer never waits for ever, as follows.
//     Let M be kMaxRecordBytes, and the reader have seen everything. What it has not acked are
//     records of less than a quarter, and one wrap's skip, less than M, at most: two wraps are more
//     than a quarter apart, and a step to the beginning of the other kind is one where the writer
//     knew all. The next record needs its own bytes, the line behind it, and, only where it does
//     not fit before the end, a skip of less than its own bytes: and not both skips, for less than
//     a quarter behind the beginning it fits. So it needs at most 2 M, which is less than the three
//     quarters. A writer that waits for room, for a record of whatever size, is always waiting for
//     something that the reader will still ack.
//   The header of each record on the ring back (`acked`): room comes with the replies, and a lone
//   call and its reply ack each other without a line of its own. The writer
//   may take or leave it. It leaves what is not between what it knows and what it has produced; and
//   all, if it has produced so much since it last found the ring back empty that 24 bits may mean
//   something else.
//
// Waking. A writer that finds no room sets wants_room, and looks again; a reader that has acked its
// count by the word looks at wants_room. With a full fence between the steps on both sides, neither
// misses the other (as in transport/doorbell.h).
//
// A hostile peer may write anything anywhere at any time: ring, words, all.
//   The reader trusts a header only after one load into its own memory: known kind, the next
//   number, length within the bound, record inside the ring. It copies the payload out before
//   anything looks at it, so nobody sees bytes that change. It reads nothing else from the shared
//   memory; where it stands is in its private memory. So all that a liar can do is to make up
//   records, which he may send anyway, in either place. The writer reads one word, `consumed`, and
//   gets counts with records: neither moves it beyond what it has produced. A liar there spoils
//   the records that are meant for him. What was written into a claim is never read again, but by
//   TryGrow(), which looks at none of it. The caller must not read it either: the peer may change
//   it, and may see it before it is published, or if it never is. Everything else leads to kBroken,
//   which ends this link. Nobody waits for a peer's store, and there is no lock to die with.
//
// What every record takes is part of those who write and read: ring_steps.h.
//
// Threads: a writer on one thread, its reader on another, in any process.
// Lifetime: the shared memory outlives both. Writer and reader start with the zero-filled memory.
// Errors: kBroken says that the peer broke the rules; the object is not to be used again.
// Invariants: position_ is a multiple of 64 below kRingBytes, and the count modulo kRingBytes;
//   writer: consumed_ <= produced_ <= consumed_ + kRingBytes; a claim is at position_ or at 0, and
//   its payload covers neither the header at position_ nor anything that was not consumed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/cache_line.h"

namespace weft {

// 24 KiB each way: two rings and their words make less than the 64 KiB that a connection may cost,
// even if all of it was touched. Room for 190 small batches, or two of the largest.
inline constexpr uint32_t kRingBytes = 24 << 10;
inline constexpr uint32_t kRecordHeaderBytes = 8;
// A payload of 8 KiB. With a wrap, two records' worth and a line: 66 % of the ring.
inline constexpr uint32_t kMaxRecordBytes = (8 << 10) + kCacheLineBytes;
inline constexpr uint32_t kMaxRecordPayload = kMaxRecordBytes - kCacheLineBytes;
// What the reader has consumed and not acked: see "Room" above.
inline constexpr uint32_t kAckBytes = kRingBytes / 4;

static_assert(size_t{2} * kMaxRecordBytes + kCacheLineBytes <= kRingBytes - kAckBytes);
static_assert(kAckBytes + kMaxRecordBytes + kCacheLineBytes <= kRingBytes);
static_assert(2 * kMaxRecordBytes <= kRingBytes);  // see RingWriter::Skipped()
static_assert(kRingBytes % kCacheLineBytes == 0 && kMaxRecordBytes % kCacheLineBytes == 0);
static_assert(kMaxRecordPayload < 1 << 16 && kRingBytes / kCacheLineBytes < 1 << 16);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The numbers stand in shared memory: never reuse one. (2 said that the next record was at the
// beginning.)
enum class RecordKind : uint8_t {
  kBatch = 1,   // a batch of the framing; 1 byte or more
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

// A count of consumed bytes as headers carry it.
inline constexpr uint32_t kAckedModulus = 1 << 24;
constexpr uint32_t AckedLines(uint64_t consumed) {
  return static_cast<uint32_t>(consumed / kCacheLineBytes) & (kAckedModulus - 1);
}

class RingWriter {
 public:
  enum class Result : uint8_t { kWritten = 1, kFull = 2, kBroken = 3 };

  RingWriter() = default;
  // REQUIRES: `ring` is kRingBytes of zeros at a multiple of 64.
  RingWriter(std::byte* ring, RingWords* words) : ring_(ring), words_(words) {}

  // Room for the payload of the next record, in the ring, at a multiple of 8.
  struct Claim {
    std::byte* payload = nullptr;  // null: there is no room now, a claim is open, or broken()
    uint32_t room = 0;             // bytes; at least what was asked for
  };

  // Claims it: `least` bytes at least, and `most` unless that would take another place than a lone
  // record's. To be ended by Publish() or Abandon(). REQUIRES: least <= most <= kMaxRecordPayload.
  Claim TryClaim(uint32_t least, uint32_t most);
  // Moves the first `used` bytes of a claim that has less room than `most` to where there is more.
  // Null: there is no such place; the claim is what it was. REQUIRES: an open claim.
  Claim TryGrow(uint32_t used, uint32_t most);
  // The claim's first `length` bytes are the record. `acked`: RingReader::acked() of the ring back.
  // REQUIRES: an open claim with so much room; length >= 1.
  void Publish(RecordKind kind, uint32_t length, uint32_t acked);
  // Nothing was said. REQUIRES: an open claim.
  void Abandon() { claim_ = kNoClaim; }
  bool has_claim() const { return claim_ != kNoClaim; }

  // Claims, copies and publishes. kFull: nothing was written, for want of room or because a claim
  // is open. REQUIRES: payload.size() <= kMaxRecordPayload.
  Result TryWrite(RecordKind kind, ByteSpan payload, uint32_t acked);

  // Whether TryWrite() of so long a payload, or a shorter one, would find room now: always where
  // all was consumed. False while a claim is open, and where the ring is broken and not all was
  // consumed. REQUIRES: as TryWrite().
  bool HasRoom(uint32_t payload) {
    return !has_claim() && (KnowsAllConsumed() || LookForRoom(payload));
  }
  // The peer broke the rules.
  bool broken() const { return broken_; }
  // A record on the ring back has acked this.
  void OnAcked(uint32_t lines) {
    const uint64_t more =
        uint64_t{(lines - AckedLines(consumed_)) & (kAckedModulus - 1)} * kCacheLineBytes;
    if (more <= produced_ - consumed_ && produced_ - all_seen_at_ < kUnambiguousBytes) {
      consumed_ += more;
    }
  }
  // There is no record on the ring back that has not been passed to OnAcked().
  void OnAllSeen() { all_seen_at_ = produced_; }

  // Asks to be woken when there may be room again, or not any more. Look for room once more after
  // asking.
  void WantRoom();
  void StopWanting();

  // The last record, for which there is always room; an open claim is left. Nothing follows it.
  void Close(uint32_t acked);

  bool KnowsAllConsumed() const { return produced_ == consumed_; }
  uint64_t produced() const { return produced_; }
  // The acked tail: what the reader has acked so far.
  uint64_t consumed() const { return consumed_; }
  // Where the next record begins, if it is not too long for there.
  const std::byte* place() const { return ring_ + (KnowsAllConsumed() ? 0 : position_); }

 private:
  static constexpr uint32_t kNoClaim = ~uint32_t{0};
  // A count that was acked when the ring back was empty, or later, is that, and not one that was
  // acked 2^24 lines ago.
  static constexpr uint64_t kUnambiguousBytes = uint64_t{kAckedModulus} / 2 * kCacheLineBytes;

  // What the step to the beginning before a record of so many bytes takes of the room. (Where all
  // was consumed, one that does not fit before the end is not longer than what is before it.)
  uint32_t Skipped(uint32_t bytes) const {
    return bytes > kRingBytes - position_ && !KnowsAllConsumed() ? kRingBytes - position_ : 0;
  }
  // With that, and the line behind the record.
  uint32_t Needed(uint32_t bytes) const {
    return Skipped(bytes) + bytes + static_cast<uint32_t>(kCacheLineBytes);
  }
  uint64_t FreeBytes() const { return kRingBytes - (produced_ - consumed_); }
  bool LookForRoom(uint32_t payload);
  bool Refresh();
  void StepToBeginning();
  uint64_t HeaderOf(RecordKind kind, uint32_t length, uint32_t acked) const;

  friend class RingTestPeer;

  // What each record touches, in one line.
  std::byte* ring_ = nullptr;
  RingWords* words_ = nullptr;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;     // as the reader last acked: the acked tail
  uint64_t all_seen_at_ = 0;  // produced_ at the last OnAllSeen()
  uint32_t position_ = 0;  // behind the last record; a header of 0 stands there, unless this is 0
  uint32_t claim_ = kNoClaim;  // where the claimed record begins
  uint16_t number_ = 0;        // of the next record
  bool broken_ = false;
};

class RingReader {
 public:
  struct Record {
    RecordKind kind = RecordKind::kBatch;
    ByteSpan payload;    // in the caller's buffer
    uint32_t acked = 0;  // for RingWriter::OnAcked() of the ring back
  };

  RingReader() = default;
  // Longer payloads than `max_payload` are against the rules. REQUIRES: as RingWriter; max_payload
  // <= kMaxRecordPayload.
  RingReader(const std::byte* ring, RingWords* words, uint32_t max_payload)
      : ring_(ring), words_(words), max_payload_(max_payload) {}

  // Goes to the next record. Returns its header, as found; 0: there is none.
  uint64_t Find();

  // Copies the record that Find() has just found, all of its lines, to `buffer`, which has room for
  // RecordBytes(max_payload) bytes and is aligned to 8. False: the peer broke the rules. After
  // kClosed there is nothing more.
  [[nodiscard]] bool Take(uint64_t header, std::byte* buffer, Record* record);

  // Acks what was consumed, if that is worth it. True: the writer waits for it: wake
  // its engine.
  bool AckConsumed() { return unacked_ >= kAckBytes && Ack(); }

  uint64_t consumed() const { return consumed_; }
  // Behind the last record.
  const std::byte* place() const { return ring_ + position_; }
  // For RingWriter::TryWrite() on the ring back.
  uint32_t acked() const { return AckedLines(consumed_); }

 private:
  uint64_t LoadHeader(uint32_t position) const;
  bool IsNext(uint64_t header) const;
  bool Ack();

  friend class RingTestPeer;

  const std::byte* ring_ = nullptr;
  RingWords* words_ = nullptr;
  uint64_t consumed_ = 0;
  uint32_t position_ = 0;
  uint32_t unacked_ = 0;  // bytes of records since the last Ack(), without what was skipped
  uint32_t max_payload_ = 0;
  uint16_t number_ = 0;  // of the next record
};

}  // namespace weft
