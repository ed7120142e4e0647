// The domain of shm links: which rings to look into, regions, and what completes later.
//
// A turn (Poll()) looks into the rings of the links that are hot: new ones, and those that had
// something lately. Mostly that is all: what a record brings about besides (a link's end, a
// refusal, work that waits) makes the next turn a full one. Few links are always hot. With more, a
// link that stays quiet goes cold, and is found again by its ready flag (ready_flags.h). What
// such a link and all above it touch with a record is prefetched at once then, from a list that was
// made when it went cold (prefetch_list.h).
//
// Threads: the engine's.
// Lifetime: links and regions are destroyed before their domain. Handlers and sinks called from
//   Poll() may destroy any link, open new ones and post; they do not call Poll().
// Errors: what a peer does ends its link at most, with DATA_LOSS or UNAVAILABLE.
// Invariants: there is nothing behind slots but rings: receives_posted is an account, for a ring
//   takes what fits; a send slot is a place in its link's ring (shm_link.h). A link is in hot_ at
//   hot_place_, or cold. has_duties_ wherever AnyDuties().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/grown_array.h"
#include "core/intrusive_list.h"
#include "transport/link.h"
#include "transport/operation_join.h"
#include "transport/prefetch_list.h"
#include "transport/shm/domain_memory.h"
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
  bool busy() const override { return operations_.size() > 0 || !retries_.empty(); }
  const LinkDomainStats& stats() const override { return stats_; }

  int host_descriptor() const override { return memory_->descriptor(); }
  absl::StatusOr<int> NewLinkMemory() override { return LinkMemory::Create(); }

  // How many links are polled in every turn. For tests and diagnosis.
  size_t hot_links() const { return hot_.size() - hot_holes_; }

 private:
  friend class ShmLink;
  friend class ShmRegion;

  // Where there are no more links than this, all are polled in every turn however quiet they are:
  // an empty look costs some 3 ns.
  static constexpr size_t kAlwaysHot = 8;
  // Turns without a record after which a link goes cold, if there are more. Calls that go round a
  // thousand links leave each hot for so many turns: with 512 of them each turn looked at so many
  // rings that a call took 10 times as long as with one link.
  static constexpr uint32_t kQuietTurns = 16;
  // The same for the link that was cold when this side sent: its answer takes a round trip, some 30
  // turns, and the handler's time.
  static constexpr uint32_t kAwaitedTurns = 1024;
  // While one is awaited, one turn of so many looks for calls of cold links: the scan takes longer
  // than all else in a turn, and the answer arrives meanwhile. Others wait for 0.1 us at most.
  static constexpr uint32_t kAwaitedTurnsPerScan = 4;
  // Looks at rings of hot links after a cold one has called, until there is a record: most calls
  // come ahead of theirs, by 0.1 to 0.3 us. A peer that sets its flag for nothing costs the others
  // as much.
  static constexpr size_t kLooksForCaller = 64;
  // One turn of so many looks at a cold ring without being called: that is a cache miss.
  static constexpr uint32_t kTurnsPerColdLook = 256;
  // Records of one link in one turn: others do not wait for a flood.
  static constexpr int kRecordsAtOnce = 32;

  ShmDomain(const ShmOptions& options, std::unique_ptr<DomainMemory> memory);

  absl::StatusOr<std::unique_ptr<Link>> Open(const LinkPeer& peer, LinkHandler* handler,
                                             ShmRole role);

  // --- for links --------------------------------------------------------------------------------
  absl::Status Join(ShmLink* link);
  void Leave(ShmLink* link);
  PrefetchList& PrefetchOf(const ShmLink* link) { return prefetch_lists_[link->flag_index_]; }
  void ScheduleRetry(ShmLink* link);
  void ScheduleEvent(ShmLink* link);
  void Defer(ShmOperation* record, const absl::Status& status);
  void CompleteDeferredOf(const ShmLink* link);
  absl::Status TooManyOperations();
  // True while the link that is being polled lives.
  bool IsPolled(const ShmLink* link) const { return polled_ == link; }

  void Complete(ShmOperation* record);
  void MakeHot(ShmLink* link);
  void MakeCold(ShmLink* link);
  void AwaitAnswer(ShmLink* link);
  void LetCool(ShmLink* link);
  void CloseHoles();
  bool IsTimeToScan();
  bool WakeCold();
  void LookAtNextCold();
  enum class Cooling : bool { kNo = false, kYes = true };
  int ReceiveHot(int budget, Cooling cooling);
  void StayQuiet(ShmLink* link);
  int ReceiveFrom(ShmLink* link, uint64_t found, int budget);
  int ReceiveFromCaller(int budget);
  bool AnyDuties() const;
  int PollAll(int budget);
  int DeliverDeferred(int budget);
  int DeliverEvents();
  void RetryLinks();
  bool MayTellRoom() const { return operations_ran_out_ && operations_.room() > 0; }
  void TellSlotsFree();
  bool AnyHasInput();

  // Constant after construction.
  const ShmOptions options_;
  PathInfo path_;
  const std::unique_ptr<DomainMemory> memory_;
  // Where records are copied to before anybody looks at them.
  const std::unique_ptr<std::byte[]> buffer_memory_;
  std::byte* const buffer_;  // in it, at a multiple of 64

  // Engine thread only.
  LinkDomainStats stats_;
  ShmOperations operations_;
  OperationJoins joins_;  // of batches
  PeerDomains peers_;
  bool has_duties_ = false;   // beside the rings of hot links: AnyDuties() says so, or did
  uint64_t connections_ = 0;  // that AddSlots() has made room for
  bool operations_ran_out_ = false;
  bool more_to_do_ = false;  // a link has work that waits for its next turn only

  // By index of the ready flag.
  std::vector<ShmLink*> links_;              // null: free
  GrownArray<PrefetchList> prefetch_lists_;  // of cold links: wanted
  std::vector<ShmLink*> hot_;  // capacity for all links; null: left since CloseHoles()
  size_t hot_holes_ = 0;
  size_t cold_links_ = 0;   // of links_
  size_t next_hot_ = 0;     // whose turn it is when the budget was used up
  uint32_t next_cold_ = 0;  // to be looked at in this turn
  uint32_t turns_to_cold_look_ = 0;
  ShmLink* polled_ = nullptr;
  ShmLink* awaited_ = nullptr;  // was cold when this side sent, and has not been heard since
  uint32_t turns_to_scan_ = 0;  // while one is awaited

  IntrusiveList<ShmLink, ShmMemberTag> members_;
  IntrusiveList<ShmLink, ShmRetryTag> retries_;
  IntrusiveList<ShmLink, ShmEventTag> events_;
  ShmWorkList deferred_;  // operations that complete in the next Poll()
};

}  // namespace weft
