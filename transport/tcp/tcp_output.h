// What leaves by the socket of a tcp link, and in which order.
//
//   begun           the rest of a frame of which some has left
//   small frames    requests to read, ends, and payloads of few bytes: encoded already
//   line            batches, and writes that batches behind them wait for, in order
//   unordered       the other writes, in order
//   pieces          of a write, and of answers to what the peer reads, in turns
//
// The socket gets them in this order, but that a batch waits for the pieces of the line's writes
// that were posted before it: the peer is to find those in its memory. So a batch waits for what
// the kernel holds (tcp_link.cc bounds it), and for one frame that has begun.
//
// Writes leave one behind the other, as the peer expects, in the order in which they were posted,
// wherever they wait. So a batch that is behind one of the line may wait for an unordered one too.
//
// A frame has its number when it has begun, or is a small frame. Pieces are made ahead, because one
// system call with many is much faster than many with one each; they are put off, or dropped, as
// long as they have not begun.
//
// Bodies of pieces leave from where they are: from local memory of an operation, which its user
// keeps, or from a region that the peer reads. When that region goes, pieces that have not begun
// are dropped, zeros leave in the place of one that has, and the answer ends as refused.
//
// Threads: the engine's. Lifetime: a member of its link; slots, regions and answers outlive it.
// Errors: a number of errno, from Pump(): the socket is broken.
// Invariants: small_bytes() grows beyond kMaxSmallBytes only by this side's own requests: the link
//   ends a peer that lets answers grow to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/bytes.h"
#include "core/intrusive_list.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_regions.h"
#include "transport/tcp/tcp_slots.h"
#include "transport/tcp/tcp_work.h"
#include "transport/tls/tls_stream.h"

namespace weft {

// Spare records for answers. Grows to what peers have ever asked for at one time.
class TcpAnswers {
 public:
  TcpAnswers() = default;
  ~TcpAnswers();
  TcpAnswers(const TcpAnswers&) = delete;
  TcpAnswers& operator=(const TcpAnswers&) = delete;

  TcpAnswer* Take();
  void Give(TcpAnswer* answer);

 private:
  TcpAnswer* free_ = nullptr;
};

class TcpOutput final : public TcpRegionUser {
 public:
  // Made ahead.
  static constexpr uint32_t kPiecesAhead = 8;
  // What the fastest transfers gave to the kernel at one time: over loopback they were a quarter
  // slower with 512 KiB, and half as fast with 128 KiB (docs/performance_log.md).
  static constexpr uint64_t kMostPumpBytes = kPiecesAhead * kPieceBytes;
  // Of small frames. What a peer makes this side owe it is bounded by kMaxRangesOfLink: ends of 16
  // bytes for each, and requests of 40. A payload is copied into a small frame while there are
  // fewer than kMaxCopiedBytes.
  static constexpr size_t kMaxSmallBytes = size_t{160} << 10;
  static constexpr size_t kMaxCopiedBytes = size_t{32} << 10;

  enum class Result : uint8_t {
    kDone = 1,     // everything has left
    kBlocked = 2,  // the kernel takes no more; the socket will be writable
    kMore = 3,     // there is more, and others are to have their turn
    kBroken = 4,   // error() says why
  };

  TcpOutput(TcpRegions* regions, TcpSlots* slots, TcpAnswers* answers)
      : regions_(regions), slots_(slots), answers_(answers) {}
  ~TcpOutput() { Clear(); }

  // Gives all slots and answers back, and forgets the rest: operations are the link's.
  void Clear();

  // The slot is this side's from now on. REQUIRES: 1..slot_bytes.
  void AddBatch(TcpSlot* slot, uint32_t bytes);
  // A read's request, and a write. REQUIRES: `operation` stays until it is over.
  void AddRead(TcpOperation* operation);
  void AddWrite(TcpOperation* operation);
  // What the peer reads: `records` ranges. Small ones are copied at once.
  void AddAnswer(uint32_t number, const std::byte* spans, uint32_t records);
  void AddEnd(uint32_t number, bool refused) {
    AppendHeader(TcpFrameKind::kEnd, refused ? kTcpRefused : 0, 0, number);
  }

  // The kernel has all of it that the peer needs to carry it out: not, perhaps, its padding.
  bool HasLeft(const TcpOperation& operation) const { return operation.sent_at <= small_sent_; }

  // By `tls`, if the link has it. Batches, small frames and what has begun leave, and about
  // `most_bytes` of large transfers; of these 0: they wait, and kMore is returned.
  Result Pump(int socket, TlsStream* tls = nullptr, uint64_t most_bytes = kMostPumpBytes);
  int error() const { return error_; }
  uint64_t pumped_bytes() const { return pumped_bytes_; }  // by the last one

  bool empty() const {
    return count_ == 0 && small_bytes() == 0 && line_.empty() && unordered_.empty() &&
           answer_list_.empty();
  }
  size_t small_bytes() const { return small_.size() - small_begin_; }
  uint32_t batches() const { return batches_; }
  // There is something that waits while Pump() is given no bytes.
  bool has_transfers() const { return ahead() > 0 || writes_left_ > 0 || !answer_list_.empty(); }
  // Ranges that the peer reads, and has not got.
  uint32_t ranges_owed() const { return ranges_owed_; }
  // From here on to the end of this: what large transfers alone touch.
  const void* large_part() const { return pieces_.data(); }

  // Nothing leaves from its memory any more.
  void OnRegionGone(uint64_t key) override;

 private:
  static constexpr uint32_t kMaxBatches = 16;  // of one system call
  static constexpr uint32_t kMaxIovecs = 3 * (kPiecesAhead + 2) + 1 + kMaxBatches;
  // Ranges below are copied into small frames, in bytes: as fast as the kernel takes a range more.
  static constexpr uint64_t kCopiedBytes = 2 << 10;
  // Of one data frame made of such ranges.
  static constexpr uint32_t kCopiedFrameBytes = 16 << 10;

  // A frame that leaves in three ranges, or, of a batch, its rest.
  struct Piece {
    std::byte head[kTcpHeaderBytes + kTcpWriteHeadBytes];
    uint32_t head_at = 0;
    uint32_t head_bytes = 0;
    const std::byte* body = nullptr;
    uint64_t body_left = 0;
    uint32_t padding = 0;
    bool begun = false;             // it has its number
    TcpSlot* slot = nullptr;        // is given back behind it
    TcpOperation* write = nullptr;  // is this one's
    bool ends_write = false;        // which is sent with it
    uint32_t answered = 0;          // of an answer: its number
    bool is_answer = false;
    uint64_t region_key = 0;  // the body is in this region; 0: in none
  };
  // What Gather() has chosen.
  struct Plan {
    uint32_t batches = 0;
    bool batches_first = false;
    int iovecs = 0;
  };

  std::byte* Append(size_t bytes);
  void AppendHeader(TcpFrameKind kind, uint8_t flags, uint32_t length, uint32_t operation);
  bool CopyAnswer(TcpAnswer* answer);
  void AppendWrites(TcpOperation* operation);
  bool NextRange(TcpAnswer* answer);
  TcpOperation* NextWrite();
  void NoteWritten(TcpOperation* operation) {
    writing_ = operation->current == nullptr ? nullptr : operation;
  }
  void MakePieces(uint64_t most_bytes);
  void MakePieceOf(TcpOperation* operation);
  // All of it has a piece, or has been copied.
  void ForgetWrite(TcpOperation* operation) {
    decltype(line_)::Remove(operation);
    --writes_left_;
  }
  void MakePieceOf(TcpAnswer* answer);
  Piece* NewPiece(TcpFrameKind kind, uint8_t flags, uint32_t length, uint32_t operation);
  Piece& piece(uint32_t i) { return pieces_[(first_ + i) % pieces_.size()]; }
  const Piece& piece(uint32_t i) const { return pieces_[(first_ + i) % pieces_.size()]; }
  bool has_begun() const { return count_ > 0 && piece(0).begun; }
  uint32_t ahead() const { return has_begun() ? count_ - 1 : count_; }
  // A piece is in a region that the peer reads.
  bool sends_region() const;
  void Refuse(uint32_t number);
  void EndAnswer(TcpAnswer* answer, bool refused);
  void Forget(TcpAnswer* answer);
  uint64_t ahead_bytes() const;
  Plan Gather(iovec* iovecs, bool with_pieces);
  void Sent(uint64_t bytes, const Plan& plan);
  void SendPiece(uint64_t* bytes);
  void SendSmall(uint64_t* bytes);
  void SendBatch(uint64_t* bytes);

  TcpRegions* const regions_;
  TcpSlots* const slots_;
  TcpAnswers* const answers_;

  uint32_t sequence_ = 0;  // of the next frame
  uint32_t batches_ = 0;   // in the line
  uint32_t ranges_owed_ = 0;
  int error_ = 0;
  uint64_t pumped_bytes_ = 0;
  uint64_t writes_posted_ = 0;
  uint32_t writes_left_ = 0;  // in line_ and unordered_

  uint32_t first_ = 0;  // of pieces_
  uint32_t count_ = 0;
  // Of those that have not begun: of writes, and of those that batches wait for.
  uint32_t writes_ahead_ = 0;
  uint32_t ordered_ahead_ = 0;
  bool answers_turn_ = false;        // the next piece is an answer's
  TcpOperation* writing_ = nullptr;  // frames have been made of it, and not all

  std::vector<std::byte> small_;  // small_begin_ of them have left
  size_t small_begin_ = 0;
  uint64_t small_sent_ = 0;  // bytes of small frames that have ever left
  IntrusiveList<TcpLineItem, TcpLineTag> line_;
  IntrusiveList<TcpLineItem, TcpLineTag> unordered_;
  IntrusiveList<TcpAnswer, TcpAnswerTag> answer_list_;

  // count_ of them from first_ on, the one that has begun first. Places for that, for those that
  // are made ahead, and for the end of an answer behind the last.
  std::array<Piece, kPiecesAhead + 2> pieces_;
};

}  // namespace weft
