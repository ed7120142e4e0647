// Links over connected endpoints: one listening endpoint for each domain, a connected endpoint for
// each link, one shared queue of receives. tcp and verbs are such providers.
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
// Invariants: every link is in by_endpoint_ (it has one), in expected_ (it waits for a peer), or
//   with the derived class (it waits for its peer's address), or has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "transport/ofi/fabric_domain.h"
#include "transport/ofi/socket_address.h"

namespace weft {

class MsgLink;

class MsgDomain : public FabricDomain {
 public:
  ~MsgDomain() override;

  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) final;

  bool Arm() final;
  int descriptor() const final { return wait_fd_; }
  absl::Status usable() const final { return lost_; }

  // --- for links ---
  using FabricDomain::parts;
  // A link has begun to connect, and has come to an end of that.
  void BeginConnecting() {
    ++connecting_;
    LookAtConnections();
  }
  void EndConnecting() { --connecting_; }
  // The link is going away, or has failed.
  virtual void Forget(MsgLink* link);

 protected:
  MsgDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
            const FabricTraits& traits);

  // Listens, if there is an address to listen at, and prepares to sleep. Once, before anything
  // else.
  absl::Status Start();
  // What an endpoint that connects to `remote` is made of.
  absl::StatusOr<InfoPtr> InfoFor(SocketAddress& remote) const;
  // Wakes a sleeper of this domain whenever `fd` is readable.
  absl::Status WatchDescriptor(int fd);

  // An endpoint for `link`, which begins to connect to `remote`. An error leaves the link alone.
  absl::Status BeginConnect(MsgLink* link, SocketAddress remote);
  // Sends a connection request away.
  virtual void Reject(const fi_info& request);
  // Whether the address to connect from is the listener's (with any port), or the system's choice.
  virtual bool connects_from_listener() const { return false; }

  int PollConnections(bool found) override;
  void OnCompletionError() final { LookNow(); }

  fid_pep* listener() const { return listener_.get(); }
  const char* name() const { return PathKindName(path().kind).data(); }

 private:
  // Looking is a system call, of 0.3 us and more. An idle spin looks about as often as the engine
  // does at its descriptors, every 0.2 ms or so; whoever connects, or has seen an error, does not
  // wait for it.
  static constexpr uint32_t kEventInterval = 1024 / kConnectionTurns;
  // Events handled in one turn; more wait for the next.
  static constexpr int kMaxEventsAtOnce = 16;

  absl::Status OpenEvents();
  absl::Status OpenListener();
  absl::Status OpenDescriptor();
  // Gives `link` a bound and enabled endpoint for `info`. An error leaves the link alone.
  absl::Status MakeEndpoint(MsgLink* link, fi_info* info);
  absl::Status PrepareEndpoint(fid_ep* endpoint);

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
  MsgLink* LinkOf(fid_t endpoint) const;

  EventQueuePtr events_;
  PassiveEndpointPtr listener_;
  absl::Status lost_;  // the device is gone: no more links
  int wait_fd_ = -1;   // an epoll over the descriptors of both queues
  uint32_t looks_skipped_ = 0;
  uint32_t connecting_ = 0;  // links that are neither up nor down
  bool look_now_ = false;
  absl::flat_hash_map<uint64_t, MsgLink*> expected_;  // by nonce
  absl::flat_hash_map<fid_t, MsgLink*> by_endpoint_;  // events name the endpoint by its address,
                                                      // which is compared, never followed
};

}  // namespace weft
