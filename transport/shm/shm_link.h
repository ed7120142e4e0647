// A link through shared memory: two rings, and the peer's table of regions.
//
//   State        entered by                                        left to
//   kConnecting  construction                                      kUp, kDown
//   kUp          both sides have marked themselves (link_memory.h)  kDown
//   kDown        the peer closed; it broke the rules; Abandon()    (destroyed)
//
// A batch that will be alone in its ring is made aside, in memory of the domain that one link has
// at a time, and Send() copies it into the ring ("Lines" in ring_steps.h). Other slots are places
// in the ring itself: TakeSlot() claims them, Send() publishes them. The peer copies either once,
// out of this side's reach. A link has one slot out at a time. One whose lines went cold has a
// place in the ring: they are fetched while the batch is made, and the peer does not look yet.
//
// Operations are carried out by this process, inside Post() (Posted::kDone): where the peer's
// memory is mapped, that is a checked memcpy, which touches neither queue nor engine. An operation
// for which the turn has no time any more (copy_turn.h), or that fails, waits in line, and so do
// batches behind it: so a write is there before a later batch is. Where this process cannot reach
// the memory, the peer is asked, in the same order (asked_copies.h). What is asked and answered
// waits while a place in the ring is out; it may take the room of a batch that is made aside, which
// then waits in line behind it.
//
// What the peer may do to a slot: nothing that is written there is read again on this side. The
// framing keeps in private memory where the next frame goes, how many there are and how long the
// batch is; headers are stored only; and protobuf's serializer does not look back.
//
// Threads: the engine's. Handlers are called by ShmDomain::Poll() only.
// Lifetime: destroyed before its domain. Handler and doorbell outlive it. The peer's memory is
//   mapped from Start() to Detach(), the rings for as long as a slot is out. Inside Receive(),
//   Retry() and DeliverEvent() whoever is called may destroy it: they touch nothing behind that.
// Errors: DATA_LOSS when the peer broke the rules of the ring, UNAVAILABLE when it closed or never
//   came.
// Invariants: a link with waiting works, or whose HasRoom() was false, is in the domain's list of
//   retries, or of those that await their turn, until it can go on. After Detach() the rings are
//   unmapped, when the slot that is out has come back: a peer writes into its own memory only.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cache_line.h"
#include "core/huge_page_arena.h"
#include "transport/link.h"
#include "transport/link_life.h"
#include "transport/link_lists.h"
#include "transport/prefetch_list.h"
#include "transport/shm/asked_copies.h"
#include "transport/shm/domain_memory.h"
#include "transport/shm/hot_links.h"
#include "transport/shm/link_memory.h"
#include "transport/shm/ring_steps.h"
#include "transport/shm/shm_work.h"

namespace weft {

class ShmDomain;

enum class ShmRole : uint8_t { kPassive = 0, kActive = 1 };

class alignas(kCacheLineBytes) ShmLink final : public Link,
                                               public LinkNodes,
                                               public InHugePageArena {
 public:
  using State = LinkLife::State;

  ShmLink(ShmDomain* domain, LinkHandler* handler, ShmRole role, PeerDoorbell* doorbell);
  ~ShmLink() override;

  // Takes its place and marks itself. REQUIRES: once, before anything else.
  absl::Status Start(LinkMemory memory, std::shared_ptr<PeerDomain> peer);

  // --- Link -------------------------------------------------------------------------------------
  absl::Status Send(const SendSlot& slot, uint32_t bytes) override;
  bool HasRoom() override;
  SendSlot TakeSlot(uint32_t least) override;
  bool GrowSlot(SendSlot* slot, uint32_t used) override;
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override;
  bool MoveNow(TransferKind kind, MutableByteSpan local, const RemoteSpan& remote) override;
  bool Reclaim(std::unique_ptr<Region> region) override;
  PrefetchList& prefetch() override;
  void Abandon() override;

  // --- for the domain ---------------------------------------------------------------------------
  State state() const { return life_.state(); }
  bool up() const { return life_.up(); }
  bool down() const { return state() == State::kDown; }
  // Gives back the slot that is out.
  void ReleaseSlot();
  // Looks for what the peer has sent. What is not 0 is for Receive().
  uint64_t Look() { return life_.up() ? reader_.Find() : HasArrived(); }
  // Takes it, and what is behind it, up to `budget` records; returns how many. `this` may be gone
  // then. REQUIRES: `found` is what Look() has just returned, and not 0.
  int Receive(uint64_t found, int budget);
  // Goes on with what waits, as far as there is room and the turn has time. `this` may be gone
  // then.
  void Retry();
  // Whether Retry() would get further.
  bool CanRetry();
  void DeliverEvent();
  LinkHandler* handler() const { return life_.handler(); }
  HotPlace& hot() { return hot_; }
  // It has gone cold: writes down what the next record will touch, either way.
  void RegisterForPrefetch(PrefetchList& prefetch) const;

 private:
  friend class ShmDomain;

  bool HasArrived() const;
  bool MeetPeer();
  void BecomeUp();
  void Fail(const absl::Status& why);
  void Detach(const absl::Status& status, bool peer_is_gone);

  // The slot that is out is the domain's.
  bool IsStaging() const;
  void GiveUpSlot();
  bool Publish(const std::byte* data, uint32_t bytes);
  void AwaitRoom();
  absl::Status KeepBatch(uint32_t bytes, const std::byte* data);
  void OnRecord(const RingReader::Record& record);
  void OnOtherRecord(RecordKind kind, ByteSpan payload);

  absl::Status Check(const Transfer& transfer) const;
  void Fill(ShmOperation* record, bool is_read, const Transfer& transfer, Operation* op);
  void Submit(ShmOperation* record);
  // How far the transfers of a Post() were copied.
  struct Copied {
    size_t transfers = 0;  // as a whole
    uint64_t bytes = 0;    // of the next one
  };
  bool MoveAtOnce(bool is_read, absl::Span<const Transfer> transfers, Copied* copied);
  bool MoveInTurn(bool is_read, absl::Span<const Transfer> transfers, Copied* copied);
  bool MovePiece(bool is_read, absl::Span<const Transfer> transfers, Copied* copied);
  // kNoTime: it goes on when this link has its turn.
  enum class Progress : uint8_t { kDone = 1, kNoRoom = 2, kNoTime = 3, kFailed = 4 };
  Progress Carry(ShmWork* work);
  Progress CarryBatch();
  Progress CarryOperation(ShmOperation* record);
  Progress CarryAsked(ShmOperation* record);
  void OnAsk(ByteSpan ask);
  void OnAnswer(ByteSpan answer);
  void Answer();
  void WaitInLine(ShmWork* work, Progress why);

  void TellPeer();
  void SetPeerFlag();
  void WakePeer();

  // The base classes, and the first group below: shm_link.cc asserts it.
  static constexpr size_t kLinesInUse = 4;
  // Of the next record, in lines: a call of 64 B, or its reply.
  static constexpr size_t kLinesOfRecord = 2;

  // What each record touches. Constant after Start(): the first three.
  ShmDomain* const domain_;
  PeerDoorbell* const doorbell_;    // null: somebody else sees to it that the peer looks
  ReadyFlag* peer_flag_ = nullptr;  // null: not known yet
  LinkLife life_;
  bool detached_ = false;
  HotPlace hot_;
  RingReader reader_;
  RingWriter writer_;
  ShmWorkList waiting_;  // operations, and waiting_batch_

  // The rest. Constant after Start():
  const ShmRole role_;
  LinkMemory memory_;
  std::shared_ptr<PeerDomain> peer_;

  ShmWaitingBatch waiting_batch_;
  CopyAsker asker_;
  CopyAnswerer answerer_;
};

}  // namespace weft
