// What all domains of libfabric have in common: slots, receives, operations, and the reading of the
// completion queue.
//
// One domain is one fi_domain with one completion queue, driven by one engine. Completions are read
// in batches; each entry carries a WorkId that is looked up before anything is done with it, so an
// entry for a work that was taken back meanwhile is dropped.
//
// Threads: the engine's.
// Lifetime: links and regions are destroyed before their domain. Handlers and sinks called from
//   Poll() may destroy any link, open new ones and post; they do not call Poll().
// Errors: a failed send ends its link, a failed operation itself, a failed receive is posted
//   again; the process never ends for what a provider reports.
// Invariants: send slots in use <= send slots asked for, but for those given up while in use.
//   Memory there is for send_slots_kept_ of them, kFirstSendSlots for each AddSlots(), and for more
//   as soon as more are in use than ever before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/link.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/fabric_link.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/ofi.h"
#include "transport/ofi/operation_table.h"
#include "transport/ofi/posted_receives.h"
#include "transport/ofi/queue_look.h"
#include "transport/ofi/registration.h"
#include "transport/ofi/slot_pool.h"
#include "transport/operation_join.h"

namespace weft {

// How a provider differs, as far as this code has to know. What libfabric's own attributes tell
// (inject size, largest transfer, how memory is addressed) is taken from there.
struct FabricTraits {
  PathKind kind;
  LinkKind link;
  PostedReceives::Limits receives;
  // Sends and parts of operations in the provider's hands at one time, over all links: what its
  // completion queue has room for beside the receives.
  uint32_t max_in_flight = ~uint32_t{0};
  // fi_inject() pays: the bytes are copied and there is no completion at all. (On verbs there is
  // one, which the provider swallows: it would take room in the queue that nobody counts. Short
  // sends are inlined there anyway.)
  bool injects = true;
  // Closing a registration returns when nothing that a peer had begun touches the memory any more.
  bool closing_reclaims = false;
  // A send or a write may wait for the word of the peer's provider that it has arrived
  // (FI_DELIVERY_COMPLETE). Of a send, that is a fence (FabricLink::SendFence); of a write,
  // Link::WriteAcknowledged.
  bool fences = false;
  // Small operations cost as much as the call to the provider: several share one, as far as it
  // takes several pieces.
  bool groups_operations = false;
  // A failed operation has broken the connection (reliable connected queue pairs do).
  bool errors_end_links = false;
  // Looking at the completion queue is a system call, also when it is empty.
  bool looks_cost = false;
};

// What an endpoint completes to.
struct EndpointQueues {
  fid_cq* receives = nullptr;
  fid_cq* sends = nullptr;
  QueueSeat* seat = nullptr;  // in the group whose queues they are, if they are a group's
};

class FabricDomain : public LinkDomain {
 public:
  ~FabricDomain() override;

  const PathInfo& path() const final { return path_; }
  const std::string& address() const final { return path_.local; }
  uint32_t slot_bytes() const final { return has_wide_ ? wide_.slot_bytes() : pool_.slot_bytes(); }
  uint32_t usual_slot_bytes() const final { return pool_.slot_bytes(); }
  absl::Status AddSlots(uint32_t send, uint32_t receive) final;
  void RemoveSlots(uint32_t send, uint32_t receive) final;
  SendSlot AcquireSlot() final { return AcquireFrom(pool_); }
  SendSlot AcquireWideSlot() final { return AcquireFrom(has_wide_ ? wide_ : pool_); }
  void ReleaseSlot(SendSlot slot) final { TakeBack(SlotOf(slot)); }
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) final;
  int Poll(int budget) final;
  bool busy() const override;
  const LinkDomainStats& stats() const final { return stats_; }

 protected:
  FabricDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
               const FabricTraits& traits);

  // Turns between two calls of PollConnections().
  static constexpr uint32_t kConnectionTurns = 16;
  // Connection events of the provider, from Poll(). Returns how many there were. `found`: there
  // were completions in this turn, and what they brought about is not to wait.
  virtual int PollConnections(bool found) {
    (void)found;
    return 0;
  }
  // PollConnections() is called in the next turn.
  void LookAtConnections() { turns_to_connections_ = 1; }
  // An error completion has been seen: there may be a connection event behind it.
  virtual void OnCompletionError() {}

  // Whether a queue has entries; makes the provider progress without taking any.
  bool HasCompletions();
  // How often there were completions, which is how busy the links are.
  uint64_t finds() const { return finds_; }
  // Something may come soon.
  void ExpectCompletions();
  // The near queue is to be looked at, should it rest.
  void WakeNear();
  // The queues for one more endpoint, until LeaveQueues().
  absl::StatusOr<EndpointQueues> JoinQueues();
  void LeaveQueues(const EndpointQueues& queues);
  // Whether Poll() would have something to do besides the queue.
  bool HasPending() const { return !events_.empty() || !deferred_.empty() || more_to_do_; }

  const OfiOptions& options() const { return options_; }
  const std::shared_ptr<FabricObjects>& objects() const { return objects_; }
  PathInfo& mutable_path() { return path_; }

 private:
  friend class FabricLink;

  // Entries read at once: a batch of 32 is half a kilobyte and amortizes the provider's locks.
  static constexpr int kBatchEntries = 32;
  // Send slots that have memory before they are used, for each AddSlots(): a connection that is not
  // pressed sends one batch a turn. With 8 KiB each, half of what a connection may cost in all.
  static constexpr uint32_t kFirstSendSlots = 4;
  // Wide slots are those from this index on.
  static constexpr uint32_t kFirstWideIndex = 1 << 29;
  // Of the pool's bytes, those for wide slots: one part of so many.
  static constexpr uint64_t kWideShare = 4;
  // Error entries handled in one Poll(): they come in bursts when an endpoint closes.
  static constexpr int kMaxErrorsAtOnce = 256;

  // --- for links ---
  void Join(FabricLink* link);
  void Leave(FabricLink* link);
  SendSlot AcquireFrom(SlotPool& pool);
  static bool IsWide(uint32_t index) { return index >= kFirstWideIndex; }
  SlotPool& PoolOf(uint32_t index) { return IsWide(index) ? wide_ : pool_; }
  SlotPool& receive_pool() { return has_wide_ ? wide_ : pool_; }
  // REQUIRES: `slot` was made of what AcquireFrom() gave.
  static Slot* SlotOf(SendSlot slot) {
    auto* const found = static_cast<Slot*>(slot.record);
    WEFT_DCHECK(found->data == slot.data && found->kind == WorkKind::kSend);
    return found;
  }
  bool HasFlightRoom() const { return in_flight_ < traits_.max_in_flight; }
  // Completions to come of `link`: so many more or fewer. `awaited`: somebody waits for them.
  void CountFlight(const FabricLink* link, bool awaited, int change) {
    in_flight_ += static_cast<uint32_t>(change);
    if (link->group_ == nullptr) return;
    SendQueue& sends = *link->group_->sends;
    sends.in_flight += static_cast<uint32_t>(change);
    if (awaited) sends.awaited += static_cast<uint32_t>(change);
  }
  // Behind a plain send nobody waits. A link has few wide slots, so that the next waits for them.
  static bool IsAwaited(const Slot& slot) { return slot.fence != nullptr || IsWide(slot.index); }
  // Something was posted to `link`. REQUIRES: there are groups.
  void OnPosted(FabricLink* link) {
    if (link->group_ == nullptr) return objects_->groups->WakeNear();
    objects_->groups->Posted(link->group_);
    if (link != last_used_) UseNext(link);
  }
  void UseNext(FabricLink* link);
  void Forget(const FabricLink* link) {
    if (last_used_ == link) last_used_ = nullptr;
  }
  void TakeBack(Slot* slot);
  void TakeBackFailed(Work* work, const absl::Status& why);
  void Defer(OperationRecord* record, const absl::Status& status);
  void ScheduleRetry(FabricLink* link);
  void ScheduleEvent(FabricLink* link);
  void FinishAll(WorkList& works, const absl::Status& status);
  void CompleteDeferredOf(const FabricLink* link);

  // --- completions ---
  bool MayNeedProgress() const;
  bool NearRests(bool awaited) const;
  int ReadCompletions(int budget);
  int ReadGroups(int budget);
  int ReadQueue(fid_cq* queue, int budget);
  void HandleEntry(const fi_cq_msg_entry& entry);
  int ReadErrors(fid_cq* queue);
  void HandleError(fid_cq* queue, const fi_cq_err_entry& entry);
  static std::string DetailOf(fid_cq* queue, const fi_cq_err_entry& entry);
  void OnSendDone(WorkId id, const absl::Status& status);
  void OnPartDone(WorkId id, const absl::Status& status);
  void Complete(OperationRecord* record);

  // --- slots ---
  Slot* TakeSendSlot(SlotPool& pool);

  int DeliverEvents();
  int DeliverDeferred(int budget);
  void RetryLinks();
  void TellSlotsFree();
  bool any_ran_out() const {
    return send_slots_ran_out_ || wide_slots_ran_out_ || operations_ran_out_ || link_has_room_;
  }
  bool HasRoomAgain();

  // Constant after construction.
  const OfiOptions options_;
  const FabricTraits traits_;
  PathInfo path_;
  const std::shared_ptr<FabricObjects> objects_;
  const size_t inject_bytes_;
  const uint64_t max_transfer_bytes_;
  const uint64_t max_key_;
  const uint32_t max_pieces_;  // of one provider call
  const bool has_wide_;

  // Engine thread only.
  LinkDomainStats stats_;
  Registrar registrar_;
  SlotPool pool_;
  SlotPool wide_;  // empty without has_wide_
  PostedReceives receives_;
  OperationTable operations_;
  OperationJoins joins_;  // of batches
  uint32_t send_target_ = 0;
  uint32_t send_slots_kept_ = 0;
  uint32_t in_flight_ = 0;           // sends and parts whose completions are still to come
  FabricLink* last_used_ = nullptr;  // of those in groups
  bool send_slots_ran_out_ = false;
  bool wide_slots_ran_out_ = false;
  bool operations_ran_out_ = false;
  bool link_has_room_ = false;  // one that had none (FabricLink::HasRoom())
  uint64_t finds_ = 0;
  uint32_t turns_to_connections_ = 1;
  QueueLook look_;             // at the queue, or at the groups
  QueueLook near_look_;        // at the near queue
  bool near_backlog_ = false;  // there may be more in the near queue than was read
  bool more_to_do_ = false;    // a link has work that waits for its next turn, not for the provider

  IntrusiveList<FabricLink, MemberTag> members_;
  IntrusiveList<FabricLink, RetryTag> retries_;
  IntrusiveList<FabricLink, EventTag> events_;
  WorkList deferred_;  // operations to be completed by the next Poll()
};

}  // namespace weft
