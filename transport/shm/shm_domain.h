// The domain of shm links: which rings to look into, regions, and what completes later.
//
// A turn (Poll()) looks into the rings of the links that are hot (hot_links.h). Mostly that is all:
// what a record brings about besides (a link's end, a refusal, work that waits, copies that go on,
// mappings to be unmapped), and links that are cold, make the next turn a full one.
//
// Threads: the engine's.
// Lifetime: links and regions are destroyed before their domain. Handlers and sinks called from
//   Poll() may destroy any link, open new ones and post; they do not call Poll().
// Errors: what a peer does ends its link at most, with DATA_LOSS or UNAVAILABLE.
// Invariants: there is nothing behind slots but rings: receives_posted is an account, for a ring
//   takes what fits; a send slot is a place in its link's ring (shm_link.h). has_duties_ wherever
//   AnyDuties().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/block_memory.h"
#include "transport/link.h"
#include "transport/link_lists.h"
#include "transport/operation_join.h"
#include "transport/shm/copy_turn.h"
#include "transport/shm/domain_memory.h"
#include "transport/shm/hot_links.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_link.h"
#include "transport/shm/shm_work.h"

namespace weft {

class ShmDomain final : public LinkDomain {
 public:
  // Eight calls of 64 B gain nothing by it, 16 are twice as fast (batch_parts.h).
  static constexpr uint8_t kFramesToPart = 12;

  static absl::StatusOr<std::unique_ptr<LinkDomain>> Open(const ShmOptions& options);
  ~ShmDomain() override;

  const PathInfo& path() const override { return path_; }
  const std::string& address() const override { return path_.local; }
  uint32_t slot_bytes() const override { return options_.slot_bytes; }
  uint8_t frames_to_part() const override { return kFramesToPart; }
  absl::Status AddSlots(uint32_t send, uint32_t receive) override;
  void RemoveSlots(uint32_t send, uint32_t receive) override;
  void ReleaseSlot(SendSlot slot) override { static_cast<ShmLink*>(slot.record)->ReleaseSlot(); }
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) override;
  int Poll(int budget) override;
  bool Arm() override;
  int descriptor() const override { return -1; }
  bool busy() const override { return operations_.size() > 0 || links_.has_retries(); }
  const LinkDomainStats& stats() const override { return stats_; }

  int host_descriptor() const override { return memory_->Show(); }
  absl::StatusOr<int> NewLinkMemory() override { return LinkMemory::Create(); }

  // How many links are looked at in every turn. For tests and diagnosis.
  size_t hot_links() const { return hot_links_.count(); }

 private:
  friend class ShmLink;
  friend class ShmRegion;

  ShmDomain(const ShmOptions& options, std::unique_ptr<DomainMemory> memory);

  absl::StatusOr<std::unique_ptr<Link>> Open(const LinkPeer& peer, LinkHandler* handler,
                                             ShmRole role);

  // --- for links --------------------------------------------------------------------------------
  absl::Status Join(ShmLink* link);
  void Leave(ShmLink* link);
  void ScheduleRetry(ShmLink* link);
  void ScheduleTurn(ShmLink* link);
  void ScheduleEvent(ShmLink* link);
  void Defer(ShmOperation* record, const absl::Status& status);
  void CompleteDeferredOf(const ShmLink* link);
  absl::Status TooManyOperations();

  void Complete(ShmOperation* record);
  bool AnyDuties() const;
  int PollAll(int budget);
  int CopyInTurn();
  int UnmapInTurn();
  int DeliverDeferred(int budget);
  bool MayTellRoom() const { return operations_ran_out_ && operations_.room() > 0; }

  // Constant after construction.
  const ShmOptions options_;
  PathInfo path_;
  const std::unique_ptr<DomainMemory> memory_;
  // Two places in it, at multiples of 64: where records are copied to before anybody looks at them,
  // and where a batch is made that will be alone in its ring (shm_link.h).
  const Block buffer_memory_;
  std::byte* const buffer_;
  std::byte* const staged_;

  // Engine thread only.
  LinkDomainStats stats_;
  ShmOperations operations_;
  OperationJoins joins_;        // of batches
  PeerDomains peers_;           // and what is to be unmapped of those that are gone
  ShmLink* staging_ = nullptr;  // whose slot staged_ is; null: nobody's
  bool has_duties_ = false;     // beside the rings of hot links: AnyDuties() says so, or did
  CopyTurn copy_turn_;
  uint64_t connections_ = 0;  // that AddSlots() has made room for
  bool operations_ran_out_ = false;

  HotLinks<ShmLink> hot_links_;
  LinkLists<ShmLink> links_;
  ShmWorkList deferred_;  // operations that complete in the next Poll()
};

}  // namespace weft
