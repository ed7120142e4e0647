// Links over connected endpoints of libfabric: one listening endpoint for each domain, a connected
// endpoint for each link, one shared queue of receives and one of completions. verbs and ofi_tcp
// are such providers.
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
// A link is brought up so:
//
//   active side    Connect()  fi_connect with {magic, nonce} -> FI_CONNECTED -> up
//   passive side   Accept()   waits for the nonce; FI_CONNREQ with it -> fi_accept ->
//                             FI_CONNECTED -> up. Any other request is rejected before an
//                             endpoint is made for it.
//   either side    FI_SHUTDOWN, an error event, a failed completion -> down
//
// A domain without an address to listen at has no listening endpoint: it connects only.
//
// Connection events come through an event queue of their own. Looking at it costs a system call, so
// it is done every 1,024 turns, on every turn while a link is connecting, before sleeping, and, in
// the next turn without completions, after a sleep or an error completion.
//
// Threads: the engine's.
// Lifetime: links and regions are destroyed before their domain. Handlers and sinks called from
//   Poll() may destroy any link, open new ones and post; they do not call Poll().
// Errors: a failed send ends its link, a failed operation itself, a failed receive is posted
//   again (posted_receives.h); the process never ends for what a provider reports.
// Invariants: every link is in by_endpoint_ (it has one), in expected_ (it waits for a peer), or
//   with the derived class (it waits for its peer's address), or has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/link.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/fabric_parts.h"
#include "transport/ofi/ofi.h"
#include "transport/ofi/socket_address.h"

namespace weft {

class FabricDomain : public LinkDomain {
 public:
  ~FabricDomain() override;
  bool tells_links() const override { return false; }  // they share a receive context

  const PathInfo& path() const final { return path_; }
  const std::string& address() const final { return path_.local; }
  uint32_t slot_bytes() const final { return parts_.slots.slot_bytes(); }
  absl::Status AddSlots(uint32_t send, uint32_t receive) final;
  void RemoveSlots(uint32_t send, uint32_t receive) final;
  SendSlot AcquireSlot() final { return parts_.slots.Acquire(); }
  void ReleaseSlot(SendSlot slot) final { parts_.slots.Give(DomainSlots::SlotOf(slot)); }
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) final;
  int Poll(int budget) final;
  bool Arm() final;
  int descriptor() const final { return wait_fd_; }
  bool busy() const final;
  const LinkDomainStats& stats() const final { return parts_.stats; }
  absl::Status usable() const final { return lost_; }

  // --- for links ---
  FabricParts& parts() { return parts_; }
  // A link has begun to connect, and has come to an end of that.
  void BeginConnecting() {
    ++connecting_;
    LookAtConnections();
  }
  void EndConnecting() { --connecting_; }
  // The link is going away, or has failed.
  virtual void Forget(FabricLink* link);

 protected:
  FabricDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
               const FabricTraits& traits);

  // Listens, if there is an address to listen at, and prepares to sleep. Once, before anything
  // else.
  absl::Status Start();
  // What an endpoint that connects to `remote` is made of.
  absl::StatusOr<InfoPtr> InfoFor(SocketAddress& remote) const;
  // Wakes a sleeper of this domain whenever `fd` is readable.
  absl::Status WatchDescriptor(int fd);

  // An endpoint for `link`, which begins to connect to `remote`. An error leaves the link alone.
  absl::Status BeginConnect(FabricLink* link, SocketAddress remote);
  // Sends a connection request away.
  virtual void Reject(const fi_info& request);
  // Whether the address to connect from is the listener's (with any port), or the system's choice.
  virtual bool connects_from_listener() const { return false; }

  // Connection events of the provider, from Poll(). Returns how many there were. `found`: there
  // were completions in this turn, and what they brought about is not to wait.
  virtual int PollConnections(bool found);
  // PollConnections() is called in the next turn.
  void LookAtConnections() { turns_to_connections_ = 1; }

  const OfiOptions& options() const { return options_; }
  const std::shared_ptr<FabricObjects>& objects() const { return parts_.objects; }
  PathInfo& mutable_path() { return path_; }

 private:
  // Turns between two calls of PollConnections().
  static constexpr uint32_t kConnectionTurns = 16;
  // Looking is a system call, of 0.3 us and more. An idle spin looks about as often as the engine
  // does at its descriptors, every 0.2 ms or so; whoever connects, or has seen an error, does not
  // wait for it.
  static constexpr uint32_t kEventInterval = 1024 / kConnectionTurns;
  // Events handled in one turn; more wait for the next.
  static constexpr int kMaxEventsAtOnce = 16;

  const char* name() const { return PathKindName(path().kind).data(); }

  absl::Status OpenEvents();
  absl::Status OpenListener();
  absl::Status OpenDescriptor();
  // Gives `link` a bound and enabled endpoint for `info`. An error leaves the link alone.
  absl::Status MakeEndpoint(FabricLink* link, fi_info* info);
  absl::Status PrepareEndpoint(fid_ep* endpoint);

  int ReadCompletions(int budget);
  void OnCompleted(WorkId id, const absl::Status& status);
  void OnFailed(fid_cq* queue, const fi_cq_err_entry& entry);
  void TellOfRoom();
  // Whether Poll() would have something to do besides the queue.
  bool HasPending() const { return parts_.links.has_events() || parts_.operations.has_deferred(); }

  // In the next turn that finds no completions.
  void LookNow() {
    look_now_ = true;
    LookAtConnections();
  }
  int ReadEvents();
  void OnConnectionRequest(const fi_eq_cm_entry& entry, size_t bytes);
  void OnEventError();
  void OnEventFailure(int64_t result);
  void OnListenerLost(const absl::Status& why);
  FabricLink* LinkOf(fid_t endpoint) const;

  const OfiOptions options_;
  PathInfo path_;
  FabricParts parts_;
  uint32_t turns_to_connections_ = 1;

  EventQueuePtr events_;
  PassiveEndpointPtr listener_;
  absl::Status lost_;  // the device is gone: no more links
  int wait_fd_ = -1;   // an epoll over the descriptors of both queues
  uint32_t looks_skipped_ = 0;
  uint32_t connecting_ = 0;  // links that are neither up nor down
  bool look_now_ = false;
  absl::flat_hash_map<uint64_t, FabricLink*> expected_;  // by nonce
  absl::flat_hash_map<fid_t, FabricLink*> by_endpoint_;  // events name the endpoint by its address,
                                                         // which is compared, never followed
};

}  // namespace weft
