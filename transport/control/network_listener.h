// A listening address of a real network. It accepts clients as long as there are fewer than
// Strangers::kMaxStrangers whose hello is not complete.
//
// Threads: one engine's. Lifetime: the user's; it may outlive the transport, and then does nothing.
// Errors: see Transport::Listen().
// Invariants: at most kMaxStrangers clients are between accept(2) and a right hello, over all
//   listeners of a transport; each holds at most ControlSocket::kMaxUnreadBytes, so 40 MiB in all.
#pragma once

#include <memory>
#include <string>

#include "core/timer_wheel.h"
#include "transport/control/control_connection.h"
#include "transport/control/local_proof.h"
#include "transport/sockets/unix_listener.h"

namespace weft {

struct ListenerTag;

// Clients that have not said a right hello, oldest first.
class Strangers {
 public:
  // A burst of honest clients passes through in a few milliseconds; more than these wait in the
  // kernel's queue.
  static constexpr size_t kMaxStrangers = 128;
  // Once there are that many, one makes room for the next if it has had this long: the oldest of
  // the host that most of them come from, so that who fills the places loses them. An honest
  // client's hello takes a round trip.
  static constexpr uint64_t kGraceNs = 200'000'000;

  void Add(ControlConnection* stranger) { strangers_.PushBack(stranger); }
  // Whether one more may come in. If not, it is worth asking again in a while.
  bool MakeRoom(uint64_t now_ns);

 private:
  IntrusiveList<ControlConnection, StrangerTag> strangers_;
};

class NetworkListener final : public Listener,
                              public ListNode<ListenerTag>,
                              private PollHandler,
                              private Timer {
 public:
  static absl::StatusOr<std::unique_ptr<NetworkListener>> Open(
      ControlContext* context, Strangers* strangers, const std::string& address,
      const ListenOptions& options, PathPolicy policy, Acceptor* acceptor);
  ~NetworkListener() override { Stop(); }

  const std::string& address() const override { return address_; }

  // Takes no more clients; the transport ends, or the user has had enough.
  void Stop();

 private:
  // Clients taken in one round, so that others get their turn.
  static constexpr int kAcceptsAtOnce = 16;
  // How long not to ask when this process has no descriptors left, and when there are too many
  // strangers: a listener that could take nobody would keep the engine awake.
  static constexpr uint64_t kPauseNs = 100'000'000;
  static constexpr uint64_t kFullPauseNs = 10'000'000;

  NetworkListener(ControlContext* context, Strangers* strangers,
                  std::shared_ptr<ListenerState> state)
      : context_(context), strangers_(strangers), state_(std::move(state)) {}

  absl::Status Bind(const std::string& text);
  int fd() const { return unix_ != nullptr ? unix_->fd() : socket_.get(); }
  void OnReady(uint32_t events) override;
  void OnTimer() override;
  // Asks nobody in for a while.
  void Pause(uint64_t ns);
  // Opens the local socket at which clients of this host prove where they are.
  void OpenLocalSocket();

  ControlContext* context_;  // null: stopped
  Strangers* const strangers_;
  const std::shared_ptr<ListenerState> state_;
  std::string address_;
  Descriptor socket_;
  std::unique_ptr<UnixListener> unix_;
  std::unique_ptr<LocalProofServer> proofs_;
};

}  // namespace weft
