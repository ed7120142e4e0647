// One-sided transfers on a sealed connection, carried out by both engines: a card would move the
// bytes in the clear.
//
// They travel in batches, which are sealed, as frames: a read is asked for and answered by data, a
// write brings its data and is answered by an end (docs/wire_format.md). No memory is registered
// with the provider for them. Their frames take half of the credits at most, so that messages find
// room beside them.
//
// Threads: one engine's. Lifetime: a member of its connection; sender and regions outlive it.
// Errors: a peer that breaks the rules is false; what the peer does not grant is PERMISSION_DENIED.
// Invariants: kMostSealedTransfers are under way each way. Each post completes once, with End() at
//   the latest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "transport/framing/batch.h"
#include "transport/framing/batch_sender.h"
#include "transport/framing/sealed_regions.h"
#include "transport/operation.h"
#include "transport/region.h"

namespace weft {

// Of each direction: begun, and not over. Bounds what a peer has to remember.
inline constexpr uint32_t kMostSealedTransfers = 64;

class SealedTransfers {
 public:
  SealedTransfers(BatchSender* sender, SealedRegions* regions)
      : sender_(*sender), regions_(*regions) {}
  SealedTransfers(const SealedTransfers&) = delete;
  SealedTransfers& operator=(const SealedTransfers&) = delete;

  // As RemoteAccess::Post(), of what that has checked: `op` completes later.
  // A write is over when its bytes are in the peer's memory.
  void Post(TransferKind kind, absl::Span<const Transfer> transfers, Operation* op);
  // Behind what is posted. REQUIRES: as WriteThenSend(); no message waits.
  void SendBehind(ByteSpan message);
  // It has not left yet: no other message may be appended.
  bool message_waits() const { return !message_.empty(); }

  // A frame of the peer's, of one of the kinds above.
  [[nodiscard]] bool OnFrame(const Frame& frame);

  // Appends what there is, as far as there is room.
  void AppendDue();
  // Room is all that it waits for.
  bool has_due() const;

  // Everything outstanding completes with CANCELLED. REQUIRES: the sender is shut.
  void End();

 private:
  // The transfers of one post.
  struct Batch {
    Operation* op = nullptr;
    size_t left = 0;
    absl::Status status;  // of the first that failed
  };
  struct Outgoing {
    bool reads = false;
    std::byte* local = nullptr;
    RemoteSpan remote;
    std::shared_ptr<Batch> batch;  // null: it is over
    uint64_t moved = 0;            // bytes
  };
  struct Asked {
    uint64_t id = 0;
    RemoteSpan span;  // what is still to be sent
  };
  struct Ended {
    uint64_t id = 0;
    uint32_t status = 0;
  };

  bool MayAppend(size_t payload_bytes);
  size_t MostData(size_t field_bytes) const { return sender_.eager_bytes() - field_bytes; }
  void Advance();
  bool AppendEnd();
  bool AppendAnswer();
  bool AppendOwn();
  bool AppendPiece(Outgoing& writing);
  bool Begin();
  bool AppendMessageBehind();

  bool OnRead(ByteSpan payload);
  bool OnWrite(ByteSpan payload);
  bool OnData(ByteSpan payload);
  bool OnEnd(ByteSpan payload);
  bool MayBegin(uint64_t id) const;
  Outgoing* Find(uint64_t id);
  void Complete(Outgoing& outgoing, const absl::Status& status);
  static void Settle(const std::shared_ptr<Batch>& batch, const absl::Status& status);

  BatchSender& sender_;
  SealedRegions& regions_;

  // Of this side's. Those from oldest_ to begun_ are in the ring; the last may be a write that is
  // not sent whole.
  std::deque<Outgoing> waiting_;  // bounded by OperationSlots
  uint64_t oldest_ = 0;
  uint64_t begun_ = 0;
  bool writes_ = false;
  std::array<Outgoing, kMostSealedTransfers> ring_;  // [id % kMostSealedTransfers]
  std::vector<std::byte> message_;                   // that waits behind them

  // Of the peer's.
  uint64_t peer_begun_ = 0;
  RemoteSpan peer_write_rest_;  // what is to come of the last that began; none: nothing
  bool peer_write_refused_ = false;
  std::deque<Asked> asked_;
  std::deque<Ended> ended_;
};

}  // namespace weft
