// The exchange by which two processes prove to each other that they run on one host, under one
// user, and hand over what a link over shared memory is made of.
//
// Each listener has an abstract Unix socket with a random name, which its ServerHello tells. A
// client of the same host connects to it and presents the nonce from that hello. Only a process of
// the same host and network namespace can connect; the kernel says whose process it is
// (SO_PEERCRED), on both sides, and nothing is taken from, or given to, another user's. Then both
// pass descriptors: of their engine's doorbell page, of their domain's memory, and, the server
// alone, of the memory of the link to come. What is in those is the domains' business. The socket
// itself stays open, as the doorbell of both (doorbell.h).
//
//   request   8 bytes "WEFTSHM\4", 16 bytes nonce (high, low; little-endian); 2 descriptors
//   answer    8 bytes "WEFTSHM\4", 1 byte: 0 yes, 1 no; then text why not; 3 descriptors if yes
//   ring      1 byte, from either, once a link is made of this; no descriptor
//
// The socket is of the kind SOCK_SEQPACKET: each of them is one message.
//
// Threads: one engine's. Lifetime: poller and doorbell outlive the objects. No object is destroyed
//   inside its own callback.
// Errors: texts name the obstacle for a candidate path's reason (docs/paths.md).
// Trust: processes of this user, and no more than this: what they pass is memory of a fixed size,
//   or it is not taken, and is closed where that may wait (descriptor_message.h).
// Invariants: a server holds at most kMaxVisitors clients that have not presented anything yet; the
//   oldest leaves when another comes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "transport/control/hello.h"
#include "transport/descriptor.h"
#include "transport/doorbell.h"
#include "transport/link.h"
#include "transport/poller.h"

namespace weft {

// A process, named for all times: numbers are used again.
struct PeerProcess {
  int32_t id = 0;
  uint64_t start = 0;  // clock ticks from the boot to its start; 0: it cannot be read
  uint32_t user_id = 0;
  uint32_t group_id = 0;
};

// A neighbour that the kernel vouches for.
struct Neighbour {
  PeerProcess process;
  std::unique_ptr<PeerDoorbell> doorbell;
  Descriptor domain;  // its LinkDomain::host_descriptor()
  Descriptor link;    // LinkDomain::NewLinkMemory() of the server: the server's to fill in

  void Describe(LinkPeer* peer) const {
    peer->process_id = process.id;
    peer->process_start = process.start;
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
  // A client presents `nonce`. OK: it is expected, *neighbour (whose process is the kernel's word)
  // has been taken, and the client gets these; an error's text is the answer to it.
  using OnNeighbour =
      Function<absl::StatusOr<HandOver>(const Nonce128& nonce, Neighbour* neighbour)>;

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
  absl::StatusOr<HandOver> Examine(const Nonce128& nonce, std::vector<Descriptor> descriptors,
                                   Descriptor* socket, Neighbour* neighbour);
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
  PeerProcess server_process_;
};

// The process at the other end of a Unix socket, as the kernel vouches for it. PERMISSION_DENIED:
// it runs as another user. (Root's processes may do all this anyway, by other means.)
absl::StatusOr<PeerProcess> VouchedProcess(int fd);

// Whether a process that says it is `told` is the one that the kernel calls `vouched` here.
absl::Status CheckProcessId(int32_t told, int32_t vouched);

}  // namespace weft
