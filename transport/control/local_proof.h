// The exchange by which two processes prove to each other that they run on one host, under one
// user, and hand over what a link over shared memory is made of.
//
// Each listener has an abstract Unix socket with a random name, which its ServerHello tells. A
// client with the same boot id connects to it and presents the nonce from that hello. Only a
// process of the same host and network namespace can connect; the kernel says whose process it is
// (SO_PEERCRED), on both sides. Then both pass descriptors: of their engine's doorbell (event and
// page), of their domain's memory, and, the server alone, of the memory of the link to come. What
// is in those is the domains' business.
//
//   request   8 bytes "WEFTSHM\3", 16 bytes nonce (high, low; little-endian); 3 descriptors
//   answer    8 bytes "WEFTSHM\3", 1 byte: 0 yes, 1 no; then text why not; 4 descriptors if yes
//
// The socket is of the kind SOCK_SEQPACKET: request and answer are one message each.
//
// Threads: one engine's. Lifetime: poller and doorbell outlive the objects. No object is destroyed
//   inside its own callback.
// Errors: texts name the obstacle for a candidate path's reason (docs/paths.md).
// Invariants: a server holds at most kMaxVisitors clients that have not presented anything yet; the
//   oldest leaves when another comes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "transport/control/hello.h"
#include "transport/descriptor.h"
#include "transport/doorbell.h"
#include "transport/link.h"
#include "transport/poller.h"

namespace weft {

// A neighbour that the kernel vouches for.
struct Neighbour {
  int32_t process_id = 0;
  std::unique_ptr<PeerDoorbell> doorbell;
  Descriptor domain;  // its LinkDomain::host_descriptor()
  Descriptor link;    // LinkDomain::NewLinkMemory() of the server: the server's to fill in

  void Describe(LinkPeer* peer) const {
    peer->process_id = process_id;
    peer->doorbell = doorbell.get();
    peer->host_descriptor = domain.get();
    peer->memory_descriptor = link.get();
  }
  // A link has been made of them.
  void CloseDescriptors() {
    domain.Reset();
    link.Reset();
  }
};

// What a server hands over, besides its doorbell. Borrowed until the answer is sent, that is: until
// the callback's caller is back in the poller.
struct HandOver {
  int domain_descriptor = -1;
  int link_descriptor = -1;
};

class LocalProofServer final : private PollHandler {
 public:
  // A client presents `nonce`. OK: it is expected, `neighbour` (whose process number is the
  // kernel's) has been taken, and the client gets these; an error's text is the answer to it.
  using OnNeighbour =
      Function<absl::StatusOr<HandOver>(const Nonce128& nonce, Neighbour neighbour)>;

  static constexpr size_t kMaxVisitors = 64;

  static absl::StatusOr<std::unique_ptr<LocalProofServer>> Open(Poller* poller, Doorbell* doorbell,
                                                                OnNeighbour on_neighbour);
  ~LocalProofServer();

  // The abstract socket's name, without the leading zero byte.
  const std::string& name() const { return name_; }

 private:
  class Visitor;

  LocalProofServer(std::string name, Descriptor listener, Poller* poller, Doorbell* doorbell,
                   OnNeighbour on_neighbour);

  void OnReady(uint32_t events) override;
  void Serve(Visitor* visitor);
  absl::StatusOr<HandOver> Examine(int fd, const Nonce128& nonce,
                                   std::array<Descriptor, 4> descriptors);
  void Answer(int fd, const absl::StatusOr<HandOver>& verdict);

  const std::string name_;
  const Descriptor listener_;
  Poller* const poller_;
  Doorbell* const doorbell_;
  OnNeighbour on_neighbour_;
  std::deque<std::unique_ptr<Visitor>> visitors_;  // oldest first
};

class LocalProofClient final : private PollHandler {
 public:
  // The exchange is over: the server is a neighbour, or why not. Once.
  using OnResult = Function<void(absl::StatusOr<Neighbour> neighbour)>;

  // `domain_descriptor`: of this side's domain; it stays open for as long as this lives.
  LocalProofClient(Poller* poller, Doorbell* doorbell, int domain_descriptor, OnResult on_result)
      : poller_(poller),
        doorbell_(doorbell),
        domain_descriptor_(domain_descriptor),
        on_result_(std::move(on_result)) {}
  ~LocalProofClient();

  // Connects to the server's socket and presents the nonce; the result follows from Poller::Poll().
  // Who owns this bounds the time. `server` is what the server told of itself. RESOURCE_EXHAUSTED:
  // the server has too many waiting visitors; try again soon.
  absl::Status Start(const std::string& socket_name, const Nonce128& nonce,
                     const HostFacts& server);

 private:
  void OnReady(uint32_t events) override;
  absl::StatusOr<Neighbour> ReadAnswer();

  Poller* const poller_;
  Doorbell* const doorbell_;
  const int domain_descriptor_;
  OnResult on_result_;
  Descriptor socket_;
  int32_t server_process_id_ = 0;
};

// The number of the process at the other end of a Unix socket, as the kernel vouches for it.
// PERMISSION_DENIED: it runs as another user.
absl::StatusOr<int32_t> VouchedProcessId(int fd);

// Whether a process that says it is `told` is the one that the kernel calls `vouched` here.
absl::Status CheckProcessId(int32_t told, int32_t vouched);

}  // namespace weft
