// What all domains of libfabric have in common: the turn.
//
// One domain is one fi_domain, driven by one engine. What it holds are parts (fabric_parts.h), each
// with a state of its own: slots, posted receives, outstanding operations, the completion queue,
// links. Here they are put together: a completion finds its work by the WorkId that it carries, and
// a turn goes over the parts in this order:
//
//   deferred operations   are told to their users
//   links that wait       post what the provider has refused before
//   completion queue      is read: receives go to the sink, sends and operations to their links
//   receives              are posted again
//   connections           are looked at, every kConnectionTurns turns
//   handlers              hear that their link is up or down, and that there is room again
//
// Threads: the engine's.
// Lifetime: links and regions are destroyed before their domain. Handlers and sinks called from
//   Poll() may destroy any link, open new ones and post; they do not call Poll().
// Errors: a failed send ends its link, a failed operation itself, a failed receive is posted
//   again (posted_receives.h); the process never ends for what a provider reports.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/link.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/fabric_parts.h"
#include "transport/ofi/ofi.h"

namespace weft {

class FabricDomain : public LinkDomain {
 public:
  ~FabricDomain() override;

  const PathInfo& path() const final { return path_; }
  const std::string& address() const final { return path_.local; }
  uint32_t slot_bytes() const final { return parts_.slots.widest_bytes(); }
  uint32_t usual_slot_bytes() const final { return parts_.slots.usual_bytes(); }
  absl::Status AddSlots(uint32_t send, uint32_t receive) final;
  void RemoveSlots(uint32_t send, uint32_t receive) final;
  SendSlot AcquireSlot() final { return parts_.slots.Acquire(); }
  SendSlot AcquireWideSlot() final { return parts_.slots.AcquireWide(); }
  void ReleaseSlot(SendSlot slot) final { parts_.slots.Give(DomainSlots::SlotOf(slot)); }
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) final;
  int Poll(int budget) final;
  bool busy() const final;
  const LinkDomainStats& stats() const final { return parts_.stats; }

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

  // Whether Poll() would have something to do besides the queue.
  bool HasPending() const { return parts_.links.has_events() || parts_.operations.has_deferred(); }

  FabricParts& parts() { return parts_; }
  const OfiOptions& options() const { return options_; }
  const std::shared_ptr<FabricObjects>& objects() const { return parts_.objects; }
  PathInfo& mutable_path() { return path_; }

 private:
  int ReadCompletions(int budget);
  void OnCompleted(WorkId id, const absl::Status& status);
  void OnFailed(fid_cq* queue, const fi_cq_err_entry& entry);
  void TellOfRoom();

  const OfiOptions options_;
  PathInfo path_;
  FabricParts parts_;
  uint32_t turns_to_connections_ = 1;
};

}  // namespace weft
