// One-sided access where the initiator cannot reach the target's memory by itself: neither is it
// mapped (peer_files.h) nor does the kernel permit process_vm_readv(2) (Yama's ptrace_scope,
// containers with process numbers of their own); or the target's table of regions cannot be opened
// (domain_memory.h). Then the target's engine carries it out, asked through the rings. Rights,
// bounds and revokes are the same; but the target's engine has to be driven.
//
//   ask (kAsk)        number, read or write, key, offset, bytes; of a write: its bytes
//   answer (kAnswer)  number, result; of a read: its bytes
//
// An operation is asked for in pieces of kCopyPieceBytes, of which kMaxAsked may be under way on a
// link. Asks stand in the ring in line with the batches, and are carried out as they are met: so a
// write is there when a later batch is. Answers come in the order of the asks. The target keeps
// what it cannot answer yet, because its ring is full, in kMaxAsked places: more asks than that
// break the rules. So nothing is allocated, and no peer gets more than that of anybody's memory or
// time.
//
// Threads: one engine's. Lifetime: with their link.
// Errors: everything from a peer is checked; false, or kBroken, says that it broke the rules, which
//   ends the link.
// Invariants: asked - answered <= kMaxAsked on both sides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "transport/shm/ring.h"
#include "transport/shm/shm_regions.h"
#include "transport/shm/shm_work.h"

namespace weft {

inline constexpr uint32_t kCopyPieceBytes = 4096;  // a page; a ring holds four, and batches beside
inline constexpr uint32_t kMaxAsked = 4;
inline constexpr uint32_t kAskHeaderBytes = 32;
inline constexpr uint32_t kAnswerHeaderBytes = 8;
inline constexpr uint32_t kMaxAskPayload = kAskHeaderBytes + kCopyPieceBytes;  // answers are less
static_assert(kMaxAskPayload <= kMaxRecordPayload);

// The initiator's side of a link.
class CopyAsker {
 public:
  enum class Result : uint8_t { kAllAsked = 1, kNoRoom = 2, kBroken = 3 };

  // Asks for what is left of the operation, as far as there is room. kAllAsked: nothing is left to
  // ask; it ends with its last answer, or has none under way (operation->pieces_asked == 0).
  // `acked`: as RingWriter::TryWrite().
  Result Ask(RingWriter& writer, uint32_t acked, ShmOperation* operation);

  // *ended: the operation whose last answer this was; else null.
  bool OnAnswer(ByteSpan answer, ShmOperation** ended);

  // Room for another piece, as far as this is concerned.
  bool full() const { return asked_ - answered_ == kMaxAsked; }

  // Forgets all; `take` is called with each operation that only waits for answers.
  template <class Take>
  void Clear(Take take) {
    ShmOperation* last = nullptr;
    for (; answered_ != asked_; ++answered_) {
      ShmOperation* const operation = pieces_[answered_ % kMaxAsked].operation;
      operation->pieces_asked = 0;
      if (operation != last && operation->all_asked) take(operation);
      last = operation;
    }
  }

 private:
  struct Piece {
    ShmOperation* operation = nullptr;
    std::byte* local = nullptr;
    uint32_t bytes = 0;
  };

  std::array<Piece, kMaxAsked> pieces_;  // at number % kMaxAsked
  uint32_t asked_ = 0;
  uint32_t answered_ = 0;
};

// The target's side.
class CopyAnswerer {
 public:
  explicit CopyAnswerer(const RegionTable* regions) : regions_(regions) {}

  // Takes an ask; a write is carried out at once, a read when it is answered.
  bool OnAsk(ByteSpan ask);

  enum class Result : uint8_t { kAllAnswered = 1, kNoRoom = 2, kBroken = 3 };
  // Answers as far as there is room. `acked`: as RingWriter::TryWrite().
  Result Answer(RingWriter& writer, uint32_t acked);

  bool owes() const { return asked_ != answered_; }

 private:
  struct Debt {
    uint64_t key = 0;
    uint64_t offset = 0;
    uint32_t bytes = 0;  // 0: a write, which is done
    bool granted = false;
  };

  const RegionTable* const regions_;
  std::array<Debt, kMaxAsked> debts_;
  uint32_t asked_ = 0;
  uint32_t answered_ = 0;
};

}  // namespace weft
