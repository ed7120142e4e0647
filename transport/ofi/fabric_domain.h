// What the shm and tcp domains have in common: slots, receives, operations, and the reading of the
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
// Invariants: posted receives <= min(receives asked for, max_posted_receives);
//   send slots in use <= send slots asked for, but for those taken back while in use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/link.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/fabric_link.h"
#include "transport/ofi/ofi.h"
#include "transport/ofi/operation_table.h"
#include "transport/ofi/registration.h"
#include "transport/ofi/slot_pool.h"

namespace weft {

class FabricDomain : public LinkDomain {
 public:
  ~FabricDomain() override;

  const PathInfo& path() const final { return path_; }
  const std::string& address() const final { return path_.local; }
  uint32_t slot_bytes() const final { return options_.slot_bytes; }
  absl::Status AddSlots(uint32_t send, uint32_t receive) final;
  void RemoveSlots(uint32_t send, uint32_t receive) final;
  SendSlot AcquireSlot() final;
  void ReleaseSlot(SendSlot slot) final { TakeBack(SlotOf(slot)); }
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) final;
  int Poll(int budget) final;
  bool busy() const final;
  const LinkDomainStats& stats() const final { return stats_; }

 protected:
  // The objects that every domain has. Declared in the order of creation.
  struct Objects {
    InfoPtr info;
    FabricPtr fabric;
    DomainPtr domain;
    QueuePtr queue;
  };
  // Opens fabric, domain and completion queue for what `info` describes.
  static absl::StatusOr<Objects> OpenObjects(InfoPtr info, fi_wait_obj wait_object,
                                             size_t queue_entries);

  FabricDomain(const OfiOptions& options, Objects objects, PathKind kind);

  // Where receives are posted: a shared receive context, or the one endpoint. Set once, before the
  // first AddSlots(); not set to null before all completions are handled.
  void ReceiveAt(fid_ep* endpoint, uint32_t max_posted_receives) {
    receive_endpoint_ = endpoint;
    max_posted_receives_ = max_posted_receives;
  }

  // Connection events of the provider, from Poll(). Returns how many there were.
  virtual int PollConnections() { return 0; }
  // An error completion has been seen: there may be a connection event behind it.
  virtual void OnCompletionError() {}

  // Waits until the provider has completed every posted work of `link`, at most `limit_ns`.
  // Completions of others are kept for the next Poll(); no callback is made.
  void DrainPosted(FabricLink* link, uint64_t limit_ns);

  // Whether the queue has entries; makes the provider progress without taking any.
  bool HasCompletions();
  // Whether Poll() would have something to do besides the queue.
  bool HasPending() const { return !events_.empty() || !deferred_.empty() || !kept_.empty(); }

  // Keys of regions for remote access come from `keys`; before the first one.
  void UseKeys(KeySource* keys) { registrar_.UseKeys(keys); }
  // Gives all slots back to the system. REQUIRES: nothing progresses any more.
  void ReleasePool() { pool_.Release(); }

  const OfiOptions& options() const { return options_; }
  Objects& objects() { return objects_; }
  PathInfo& mutable_path() { return path_; }

 private:
  friend class FabricLink;

  // Entries read at once: a batch of 32 is half a kilobyte and amortizes the provider's locks.
  static constexpr int kBatchEntries = 32;
  // Error entries handled in one Poll(): they come in bursts when an endpoint closes.
  static constexpr int kMaxErrorsAtOnce = 256;

  // --- for links ---
  void Join(FabricLink* link);
  void Leave(FabricLink* link);
  Slot* SlotOf(SendSlot slot);
  void TakeBack(Slot* slot);
  void TakeBackFailed(Work* work, const absl::Status& why);
  void Defer(OperationRecord* record, const absl::Status& status);
  void ScheduleRetry(FabricLink* link);
  void ScheduleEvent(FabricLink* link);
  void FinishAll(WorkList& works, const absl::Status& status);
  void CompleteDeferredOf(const FabricLink* link);

  // --- completions ---
  int ReadCompletions(int budget);
  bool ReadBatch(int limit);
  void HandleBatch();
  void HandleEntry(const fi_cq_msg_entry& entry);
  int ReadErrors();
  void HandleError(const fi_cq_err_entry& entry);
  void OnReceiveDone(WorkId id, size_t bytes);
  void OnReceiveFailed(WorkId id);
  void OnSendDone(WorkId id, const absl::Status& status);
  void OnPartDone(WorkId id, const absl::Status& status);
  void Complete(OperationRecord* record);

  // --- receives ---
  uint32_t ReceiveTarget() const;
  bool PostReceive(Slot* slot);
  void TopUpReceives();
  void CancelSurplusReceives();
  void CountWithheld();

  int DeliverEvents();
  int DeliverDeferred();
  void RetryLinks();
  void TellSlotsFree();
  bool HasRoomAgain();

  // Constant after construction.
  const OfiOptions options_;
  PathInfo path_;
  Objects objects_;
  const size_t inject_bytes_;
  const uint64_t max_transfer_bytes_;
  fid_ep* receive_endpoint_ = nullptr;
  uint32_t max_posted_receives_ = 0;

  // Engine thread only.
  LinkDomainStats stats_;
  Registrar registrar_;
  SlotPool pool_;
  OperationTable operations_;
  uint32_t send_target_ = 0;
  uint32_t receive_target_ = 0;
  uint32_t cancelling_ = 0;
  uint32_t sends_posted_ = 0;  // whose completions are still to come
  bool send_slots_ran_out_ = false;
  bool operations_ran_out_ = false;

  // The batch being handled. Kept here so that DrainPosted(), called from inside a handler, can
  // look at the rest of it.
  fi_cq_msg_entry batch_[kBatchEntries];
  int batch_next_ = 0;
  int batch_end_ = 0;
  std::vector<fi_cq_msg_entry> kept_;  // receives that arrived during DrainPosted(); at most the
                                       // posted ones
  FabricLink* draining_ = nullptr;     // whose works DrainPosted() waits for

  IntrusiveList<FabricLink, MemberTag> members_;
  IntrusiveList<FabricLink, RetryTag> retries_;
  IntrusiveList<FabricLink, EventTag> events_;
  WorkList deferred_;  // operations to be completed by the next Poll()
};

}  // namespace weft
