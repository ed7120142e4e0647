// A link over one connected endpoint: posting in order, waiting when the provider is busy, and
// getting everything back at the end. The domain moves it along; see fabric_domain.h.
//
//   State        entered by                                        left to
//   kConnecting  construction                                      kUp, kDown
//   kUp          OnConnected(), from the provider's event          kDown
//   kDown        OnDisconnected(), a provider's error; Abandon()   (destroyed)
//
// Threads: the engine's. Handlers are called by FabricDomain::Poll() only, never from inside the
//   call that caused the event.
// Ordering: works are posted in the order of Send and Post. When the provider is busy
//   (-FI_EAGAIN), this work and all later ones wait in line; Poll() tries again. Over Soft-iWARP
//   all but reads wait, too, until the reads that are under way are over, and what comes later
//   waits behind them (FabricTraits::completes_out_of_order).
// Invariants: a work of this link is on exactly one of waiting_ and posted_; what the provider may
//   touch is on posted_ (an operation posted in part is still on waiting_).
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transport/link.h"
#include "transport/link_life.h"
#include "transport/link_lists.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/operation_table.h"
#include "transport/ofi/slot_pool.h"
#include "transport/ofi/work.h"

namespace weft {

class FabricDomain;
struct FabricParts;

class FabricLink final : public Link, public LinkNodes {
 public:
  using State = LinkLife::State;

  FabricLink(FabricDomain* domain, LinkHandler* handler, uint64_t nonce);
  ~FabricLink() override;

  absl::Status Send(const SendSlot& slot, uint32_t bytes) override {
    return SendFence(slot, bytes, /*passed=*/nullptr);
  }
  SendSlot TakeSlot(uint32_t least) override;
  bool has_fence() const override;
  bool reads_prove_writes() const override;
  absl::Status SendFence(const SendSlot& slot, uint32_t bytes, Operation* passed) override;
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override;
  bool Reclaim(std::unique_ptr<Region> region) override;
  void Abandon() override;

  State state() const { return life_.state(); }
  bool up() const { return life_.up(); }
  LinkHandler* handler() const { return life_.handler(); }

  // --- from the domain ---
  // Owns the endpoint from here on: works are posted to it.
  void Take(EndpointPtr endpoint) { endpoint_ = std::move(endpoint); }
  // The provider's news. The handler hears of it from the next Poll().
  void OnConnected();
  void OnDisconnected(const absl::Status& why);
  // A send, or a part of an operation, of this link has completed.
  void OnSendDone(Slot* slot, const absl::Status& status);
  void OnPartDone(OperationRecord* record, const absl::Status& status);
  // Posts what waits, as far as the provider takes it.
  void Retry();
  // The handler hears the oldest news.
  void DeliverEvent();

  uint64_t nonce() const { return nonce_; }
  bool connecting() const { return connecting_; }
  fid_ep* endpoint() const { return endpoint_.get(); }

 private:
  absl::StatusOr<Posted> PostOne(TransferKind kind, const Transfer& transfer, Operation* op);
  absl::StatusOr<Posted> PostBatch(TransferKind kind, absl::Span<const Transfer> transfers,
                                   Operation* op);
  absl::StatusOr<void*> Check(TransferKind kind, const Transfer& transfer) const;
  void Fill(OperationRecord* record, TransferKind kind, const Transfer& transfer, void* descriptor,
            Operation* op);
  void SubmitOperation(OperationRecord* record);
  int PostOperation(OperationRecord* record);
  int PostPart(const OperationRecord& record, uint64_t bytes);
  absl::Status TooManyOperations();
  absl::Status Submit(Work* work);
  absl::Status OnRefused(Work* work, int result);
  void Wait(Work* work);
  // It waits for the reads that are under way.
  bool Held(const Work& work) const;
  void CountRead(const OperationRecord& record, int parts);
  void ScheduleRetry();
  int Post(Work* work);
  int PostSend(Slot* slot);
  int PostFence(Slot* slot);
  void TakeBackFailed(Work* work, const absl::Status& why);
  void FinishAll(WorkList& works, const absl::Status& status);
  // From the next Poll() the handler hears of it.
  void Fail(const absl::Status& why);
  void EndConnecting();
  // Closes the endpoint and takes everything back: slots return to the pool, operations complete
  // with `status` from the next Poll(), or from the destructor if that comes first. Idempotent.
  void Detach(const absl::Status& status);

  // Constant after construction.
  FabricDomain* const domain_;
  FabricParts* const parts_;  // the domain's
  const uint64_t nonce_;

  EndpointPtr endpoint_;  // null: none yet, or closed
  LinkLife life_;
  bool connecting_ = true;
  bool detached_ = false;
  // Parts of reads; 0 where nothing has to wait for them.
  int reads_under_way_ = 0;

  WorkList waiting_;
  WorkList posted_;
};

}  // namespace weft
