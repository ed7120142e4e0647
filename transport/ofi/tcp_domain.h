// Links over TCP: libfabric's tcp provider, a listening endpoint for each domain and a connected
// endpoint for each link.
//
//   active side    Connect()  fi_connect with {magic, nonce} -> FI_CONNECTED -> up
//   passive side   Accept()   waits for the nonce; FI_CONNREQ with it -> fi_accept ->
//                             FI_CONNECTED -> up. Any other request is rejected before an
//                             endpoint is made for it.
//   either side    FI_SHUTDOWN, an error event, a failed completion -> down
//
// Connection events come through an event queue of their own. Looking at it costs a system call, so
// Poll() does it every kEventInterval turns, on every turn while a link is connecting, after an
// error completion, and before sleeping.
//
// Threads: the engine's.
// Invariants: every link is in by_endpoint_ (it has one) or in expected_ (it waits for a peer), or
//   has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "transport/ofi/fabric_domain.h"
#include "transport/ofi/tcp_address.h"

namespace weft {

class TcpLink;

class TcpDomain final : public FabricDomain {
 public:
  static absl::StatusOr<std::unique_ptr<LinkDomain>> Open(const OfiOptions& options);
  ~TcpDomain() override;

  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer, LinkHandler* handler) final;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) final;

  bool Arm() final;
  int descriptor() const final { return wait_fd_; }

 protected:
  int PollConnections() final;
  void OnCompletionError() final { look_now_ = true; }

 private:
  friend class TcpLink;

  // Looking costs about 0.3 us; a turn at least as much. So this is below 1 %, and an idle spin
  // still looks every 20 us or so.
  static constexpr uint32_t kEventInterval = 64;
  // Events handled in one turn; more wait for the next.
  static constexpr int kMaxEventsAtOnce = 16;

  TcpDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects);

  absl::Status OpenListener();
  absl::Status OpenDescriptor();
  // A bound and enabled endpoint for `info`.
  absl::StatusOr<EndpointPtr> MakeEndpoint(fi_info* info);

  int ReadEvents();
  void OnConnectionRequest(const fi_eq_cm_entry& entry, size_t bytes);
  void OnEventError();
  TcpLink* LinkOf(fid_t endpoint) const;
  void Forget(TcpLink* link);

  EventQueuePtr events_;
  PassiveEndpointPtr listener_;
  int wait_fd_ = -1;  // an epoll over the descriptors of both queues
  uint32_t turns_ = 0;
  uint32_t connecting_ = 0;  // links that are neither up nor down
  bool look_now_ = false;
  absl::flat_hash_map<uint64_t, TcpLink*> expected_;  // by nonce
  absl::flat_hash_map<fid_t, TcpLink*> by_endpoint_;  // events name the endpoint by its address,
                                                      // which is compared, never followed
};

}  // namespace weft
