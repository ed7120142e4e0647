// A listening address of a real network. It accepts clients as long as Newcomers has room for them:
// with security TLS's handshake is part of what a newcomer may take, in bytes and in time. Who has
// hung up already and left nothing to be read is closed, which costs five system calls: the more of
// them come at once, the more of them have.
//
// Several engines may share an address (shared_listener.h). The listener of the first has the
// socket. Once others have joined, it looks at the first bytes of each client (arrival.h), and
// hands the socket to one of them, or keeps it. Those of the others have a bell in the socket's
// place.
//
// Threads: one engine's. Lifetime: the user's; it may outlive the transport, and then does nothing.
// Errors: see Transport::Listen().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/timer_wheel.h"
#include "transport/control/arrival.h"
#include "transport/control/control_connection.h"
#include "transport/control/local_proof.h"
#include "transport/control/shared_listener.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/unix_listener.h"

namespace weft {

struct ListenerTag;

class NetworkListener final : public Listener,
                              public ListNode<ListenerTag>,
                              private PollHandler,
                              private Arrival::Owner,
                              private Timer {
 public:
  static absl::StatusOr<std::unique_ptr<NetworkListener>> Open(ControlContext* context,
                                                               const std::string& address,
                                                               const ListenOptions& options,
                                                               PathPolicy policy,
                                                               Acceptor* acceptor);
  // Takes part in what another engine's accepts.
  static absl::StatusOr<std::unique_ptr<NetworkListener>> Join(
      ControlContext* context, std::shared_ptr<SharedListener> shared, const ListenOptions& options,
      PathPolicy policy, Acceptor* acceptor);
  ~NetworkListener() override { Stop(); }

  const std::string& address() const override { return state_->shared->address; }
  bool is_beyond_host() const override { return state_->shared->is_beyond_host; }
  uint64_t descriptors_wanted() const override;
  std::shared_ptr<SharedListener> shared() const override { return state_->shared; }

  // To another process, or from one: transport.h.
  int socket() const override { return context_ != nullptr && accepts() ? fd() : -1; }
  void HoldClients() override { holding_ = true; }
  bool has_handshakes() const override;
  std::vector<Descriptor> StopAccepting() override;
  void LeaveAddress() override {
    if (unix_ != nullptr) unix_->LeaveFile();
  }
  void TakeClient(Descriptor client) override;
  absl::Status Resume() override;

  // Takes no more clients; the transport ends, or the user has had enough.
  void Stop();

 private:
  // Of each connection: its control socket, and the socket of tcp or ofi_tcp, if it has one.
  static constexpr uint64_t kDescriptorsOfConnection = 2;
  // Over shared memory: its control socket, its doorbell, and its process, which those from the
  // same engine have in common. Files that come by the handshake are closed when the path is up.
  static constexpr uint64_t kDescriptorsOfShmConnection = 3;
  // Clients taken in one round, so that others get their turn.
  static constexpr int kAcceptsAtOnce = 16;
  // How long not to ask when this process has no descriptors left, and when there are too many
  // strangers, or engines have still to join: a listener that could take nobody would keep the
  // engine awake.
  static constexpr uint64_t kPauseNs = 100'000'000;
  static constexpr uint64_t kFullPauseNs = 10'000'000;
  // Clients kept aside; the next ones wait in the kernel's queue, as they do for strangers.
  static constexpr size_t kMaxHeld = Newcomers::kMaxStrangers;

  NetworkListener(ControlContext* context, std::shared_ptr<ListenerState> state)
      : context_(context), state_(std::move(state)) {}

  absl::Status Bind(const std::string& text);
  // The same with ListenOptions::socket.
  absl::Status Adopt(const ServerAddress& address);
  // The same with a socket of the service manager's, or another process's that was this: the file
  // of a Unix socket is the manager's.
  absl::Status Activate(const std::string& text);
  // The rest of Open() and Join(): begins to take clients.
  absl::Status Start();
  // Of the first engine.
  bool accepts() const { return state_->number == 0; }
  int fd() const {
    if (!accepts()) return state_->shared->bell(state_->number);
    return unix_ != nullptr ? unix_->fd() : socket_.get();
  }
  // The next socket; invalid: there is none now.
  absl::StatusOr<Descriptor> Take() {
    if (accepts()) return AcceptClient(fd());
    return state_->shared->Take(state_->number);
  }
  void OnReady(uint32_t events) override;
  void BeginArrival(Descriptor socket);
  void OnEnd(Arrival* arrival, Arrival::End end) override;
  // To the engine of this number.
  void GiveTo(uint32_t number, Descriptor socket, size_t most);
  void OnTimer() override;
  void Hold(Descriptor client);
  void StopWatching();
  // Asks nobody in for a while.
  void Pause(uint64_t ns);
  // Opens the local socket at which clients of this host prove where they are.
  void OpenLocalSocket();

  ControlContext* context_;  // null: stopped
  const std::shared_ptr<ListenerState> state_;
  Descriptor socket_;
  std::unique_ptr<UnixListener> unix_;
  std::unique_ptr<LocalProofServer> proofs_;
  IntrusiveList<Arrival, ArrivalTag> arrivals_;  // owned
  bool paused_ = false;                          // before Resume()
  bool holding_ = false;                         // since HoldClients()
  std::vector<Descriptor> held_;                 // at most kMaxHeld
};

}  // namespace weft
