// Makes batches of a connection's frames, and sends them: the open slot, the credits, the turn's
// end.
//
// The open slot is a batch in the making: MakeRoom() makes sure that a frame fits, Append()
// completes one, Reserve() and Commit() do both for a message. The batch leaves when the next frame
// does not fit, at Flush(), at the turn's end, and behind a large batch of the peer's
// (batch_parts.h). Opening it takes its credit, and lists the sender, to be flushed. A message
// larger than a usual slot opens a wide one.
//
//   state     from                       to
//   stopped   construction, Stop()       Start() -> shut
//   shut      nothing leaves             Open() -> open, Stop() -> stopped
//   open      frames are taken and sent  Shut() -> shut
//
// Threads: one engine's. Lifetime: a member of its connection; host and list outlive it, and the
//   link outlives Stop() of it.
// Errors: a refusal is false or null. Who was refused sets awaits_room(), and hears of it from the
//   host when there may be room.
// Invariants: credit_window.h. While open and without a reservation, a sender with an open slot is
//   in the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "core/bytes.h"
#include "core/intrusive_list.h"
#include "transport/framing/batch.h"
#include "transport/framing/connection_owner.h"
#include "transport/framing/credit_window.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/seal.h"
#include "transport/link.h"
#include "transport/message_room.h"

namespace weft {

struct FlushTag;
class BatchSender;
// Those to be flushed at the turn's end.
using FlushList = IntrusiveList<BatchSender, FlushTag>;

class BatchSender final : public ListNode<FlushTag> {
 public:
  class Host {
   public:
    // At the turn's end, after SetDue(): appends what framing itself has to say. True: some of it
    // found no room, and stays due.
    virtual bool AppendDue() = 0;

   protected:
    ~Host() = default;
  };

  BatchSender(Host* host, FlushList* list) : list_(*list), host_(host) {}
  BatchSender(const BatchSender&) = delete;
  BatchSender& operator=(const BatchSender&) = delete;

  // --- life -------------------------------------------------------------------------------------

  // A seal outlives Stop(). REQUIRES: stopped; the agreement is within bounds; with a tag, the
  // link's slots all have the same room.
  void Start(FramingDomain* domain, Link* link, const LinkAgreement& agreement,
             const BatchTag& tag = {});
  void Open() { open_ = true; }
  // What is in the open slot does not leave any more, and nothing is appended to it.
  void Shut() {
    open_ = false;
    if (!reserved_) room_.Close();
  }
  // Gives the open slot back, and the account of receives. REQUIRES: shut, and the link still
  // there.
  void Stop();
  // Is flushed no more.
  void Unlist() { list_.Remove(this); }

  bool open() const { return open_; }
  // That have taken their credit: the open one.
  uint32_t unsent_batches() const { return slot_.data != nullptr ? 1 : 0; }
  bool seals() const { return std::holds_alternative<Seal*>(tag_); }
  CreditWindow& window() { return window_; }
  const CreditWindow& window() const { return window_; }
  // The largest payload of a frame; 0 while stopped.
  size_t eager_bytes() const { return eager_bytes_; }
  // The messages before this one have left.
  uint64_t first_unsent() const { return first_unsent_; }
  // Of the open slot. The connection appends messages that fit by itself.
  MessageRoom& room() { return room_; }
  uint64_t batches_sent() const { return batches_sent_; }
  uint64_t credit_stalls() const { return credit_stalls_; }

  // --- frames -----------------------------------------------------------------------------------

  // Makes sure that a frame of `frame_bytes` fits into the open slot. False: not open, no credit or
  // no slot.
  bool MakeRoom(size_t frame_bytes) { return room_.Fits(frame_bytes) || OpenNextSlot(frame_bytes); }
  // REQUIRES: MakeRoom() of it.
  std::byte* Append(size_t payload_bytes, FrameKind kind) {
    return room_.Append(payload_bytes, FrameHeader(kind));
  }
  // Undoes a MakeRoom() that opened a slot in vain.
  void CancelEmptyBatch() {
    if (room_.frames() == 0) CancelOpenSlot();
  }

  // --- messages ---------------------------------------------------------------------------------

  // Space for a message of up to `bytes`; null: no room. Nothing leaves until Commit() or
  // Abandon(). REQUIRES: no reservation; bytes <= eager_bytes().
  std::byte* Reserve(size_t bytes);
  // The message's frame is complete; its number is MessageRoom::Commit()'s.
  void Commit(size_t bytes);
  void Abandon();
  // The same for a message that is written elsewhere: only keeps the batch.
  void Hold(size_t bytes) {
    reserved_ = true;
    reserved_bytes_ = static_cast<uint32_t>(bytes);
  }
  void Unhold() { reserved_ = false; }
  bool reserved() const { return reserved_; }
  size_t reserved_bytes() const { return reserved_bytes_; }

  // A message that is there already, else as Commit(). REQUIRES: MakeRoom() of it.
  void AppendMessage(ByteSpan message);
  // Connection::Append() of a message that finds no slot open, or a full one.
  // REQUIRES: bytes <= eager_bytes().
  MessageSpace AppendToNextSlot(size_t bytes);

  // --- sending ----------------------------------------------------------------------------------

  // Sends what there is. Nothing to do with a reservation, or unless open.
  void Flush();
  void FlushTurn();
  // In the list from now on.
  void FlushAtTurnsEnd() {
    if (!list_.IsLinked(this)) list_.PushBack(this);
  }
  // Host::AppendDue() at the end of this turn, or of the first with room.
  void SetDue() { due_ = true; }
  bool due() const { return due_; }

  // Sends what the turn has, or a batch of nothing, as Link::SendFence(). False: not now.
  bool SendFence(Operation* passed);

  // While a batch of `frames` is answered, slots are filled as far as batch_parts.h says.
  void BeginPart(uint16_t frames);
  void EndPart() { fill_bytes_ = usual_bytes_; }
  // What was appended leaves now. The sender stays in the list: once a turn, not once a part.
  void SendNow();

  // --- those who were refused -------------------------------------------------------------------

  // Somebody waits for OnWritable().
  bool awaits_room() const { return awaits_room_; }
  void set_awaits_room(bool awaits) { awaits_room_ = awaits; }

  void CheckInvariants() const;

 private:
  bool OpenNextSlot(size_t frame_bytes);
  bool OpenFirstSlot(size_t frame_bytes);
  bool GrowOpenSlot(size_t frame_bytes);
  bool TakeSlot(size_t frame_bytes);
  bool Take(SendSlot slot, uint32_t bytes);
  uint32_t FinishBatch();
  uint32_t AppendTag(uint32_t bytes);
  void SendOpenSlot();
  void CancelOpenSlot();

  MessageRoom room_{FrameHeader(FrameKind::kMessage)};
  FlushList& list_;
  bool open_ = false;
  bool due_ = false;
  bool reserved_ = false;
  bool awaits_room_ = false;
  uint32_t reserved_bytes_ = 0;  // by the reservation
  uint32_t usual_bytes_ = 0;     // what most are filled up to; a multiple of kFrameAlignment
  uint32_t fill_bytes_ = 0;      // of those opened now: usual_bytes_, or a part's
  uint32_t sent_bytes_ = 0;      // of the batch that was sent last, its header included
  uint16_t sent_frames_ = 0;     // the same
  BatchTag tag_;
  SendSlot slot_;  // the open one; no data: there is none
  CreditWindow window_;
  uint32_t sequence_ = 0;
  uint32_t peer_index_ = 0;
  uint32_t peer_token_ = 0;
  uint64_t first_unsent_ = 0;
  uint64_t batches_sent_ = 0;
  Link* link_ = nullptr;
  FramingDomain* domain_ = nullptr;
  // What most batches leave alone.
  uint32_t batch_bytes_ = 0;    // of the largest; a multiple of kFrameAlignment
  uint64_t credit_stalls_ = 0;  // times a batch found no credit, or no room in the link
  LinkDomain* links_ = nullptr;
  size_t eager_bytes_ = 0;
  Host* const host_;
};

}  // namespace weft
