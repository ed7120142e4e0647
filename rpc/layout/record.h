// Records that change under their readers: one-sided reads take no lock, and nothing orders the
// bytes that a network card, a socket or another process's copy takes from memory. A read that
// meets a writer can get any mixture of old and new bytes; it is *torn*.
//
// A message whose first field has (weft.sequence) gives records that show it. The struct carries
//   the sequence word   its first 8 bytes: even at rest, odd while the owner writes; +2 per change
//   a checksum          its last 8 bytes: over all the others, the sequence word included
// A reader takes a record if its sequence is even and the checksum fits, and reads again otherwise.
//
// Why that is right on every path, with one read: it assumes nothing about the order, nor about a
// size that would be read in one piece. A mixture of two records passes only if its checksum fits
// by chance: once in 2^64 torn reads. Records that differ in one 8-byte word always have different
// checksums. (A sequence word alone, read together with the body, is not enough: it may be taken
// before, or after, the rest. One in every cache line, as FaRM does, needs readers who take a line
// at a time: sockets and copying processes don't. The word, the body and the word again, in three
// reads one after the other, would be certain, and three round trips.) The sequence in the checksum
// makes two states that are otherwise the same different ones, so a read that passes has seen the
// record as it stood at one moment during the read.
//
// The checksum is no protection against a hostile owner, whose memory it is anyway.
//
// Memory of zeros is a record at rest, sequence 0, all fields 0: a fresh table needs no set-up.
//
// Writers: the owner, through RecordWriter, one at a time for each record (a second one aborts).
//   Nobody else: atomics and writes by peers would not keep the checksum, so RemoteArray does not
//   offer them for such records.
// Readers: peers through RemoteArray::Read; threads of the owner through LoadRecord.
//
// Threads: any, as said above.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rpc/layout/fixed_layout.h"

namespace weft {

template <class T>
concept CheckedRecord = FixedLayout<T> && T::kChecked && alignof(T) == 8 && sizeof(T) >= 16;

// Of the first bytes - 8 of a record; of zeros, zero. REQUIRES: `bytes` is a multiple of 8.
uint64_t RecordChecksum(const std::byte* record, size_t bytes);

// A private copy of a record is a whole one: taken from between two changes.
bool IsWholeRecord(const std::byte* record, size_t bytes);

namespace internal {
void PublishRecord(std::byte* shared, std::byte* changed, size_t bytes);
bool LoadRecord(const std::byte* shared, std::byte* out, size_t bytes);
}  // namespace internal

// Changes one record that others may be reading:
//
//   RecordWriter<BucketLayout> bucket(table[i]);
//   bucket->keys[0] = key;
//                                        // the end of its scope publishes all changes at once
//
// It works on a copy, so that readers are disturbed for as long as copying back takes.
template <CheckedRecord T>
class RecordWriter {
 public:
  // REQUIRES: until the end nobody else changes `shared`.
  explicit RecordWriter(T& shared) : shared_(shared), changed_(shared) {}
  ~RecordWriter() {
    if (!abandoned_) {
      internal::PublishRecord(reinterpret_cast<std::byte*>(&shared_),
                              reinterpret_cast<std::byte*>(&changed_), sizeof(T));
    }
  }
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // The record as it will be. Its sequence and checksum are not for the caller.
  T* operator->() { return &changed_; }
  T& operator*() { return changed_; }

  // Leaves the record as it was.
  void Abandon() { abandoned_ = true; }

 private:
  T& shared_;
  T changed_;
  bool abandoned_ = false;
};

// Copies a record that another thread of this process may be changing. False: it was being changed
// all the time (a writer that has stopped midway, or never pauses).
template <CheckedRecord T>
[[nodiscard]] bool LoadRecord(const T& shared, T* out) {
  return internal::LoadRecord(reinterpret_cast<const std::byte*>(&shared),
                              reinterpret_cast<std::byte*>(out), sizeof(T));
}

}  // namespace weft
