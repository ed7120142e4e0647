#include "transport/control/network_listener.h"

#include <utility>
#include <vector>

#include "core/fork_guard.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/activation.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"

namespace weft {

absl::StatusOr<std::unique_ptr<NetworkListener>> NetworkListener::Open(ControlContext* context,
                                                                       const std::string& address,
                                                                       const ListenOptions& options,
                                                                       PathPolicy policy,
                                                                       Acceptor* acceptor) {
  std::unique_ptr<NetworkListener> listener(new NetworkListener(
      context,
      std::make_shared<ListenerState>(acceptor, options, std::move(policy),
                                      std::make_shared<SharedListener>(&context->accepted))));
  WEFT_RETURN_IF_ERROR(listener->Bind(address));
  WEFT_RETURN_IF_ERROR(listener->Start());
  return listener;
}

absl::StatusOr<std::unique_ptr<NetworkListener>> NetworkListener::Join(
    ControlContext* context, std::shared_ptr<SharedListener> shared, const ListenOptions& options,
    PathPolicy policy, Acceptor* acceptor) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t number, shared->Join(&context->accepted));
  std::unique_ptr<NetworkListener> listener(new NetworkListener(
      context,
      std::make_shared<ListenerState>(acceptor, options, std::move(policy), std::move(shared))));
  listener->state_->number = number;
  WEFT_RETURN_IF_ERROR(listener->Start());
  return listener;
}

uint64_t NetworkListener::descriptors_wanted() const {
  const ListenOptions& options = state_->options;
  const uint64_t each = state_->policy.Allows(PathKind::kShm) ? kDescriptorsOfShmConnection
                                                              : kDescriptorsOfConnection;
  return each * options.max_connections + Newcomers::kMaxStrangers * options.engines;
}

absl::Status NetworkListener::Start() {
  if (state_->options.security.has_value()) {
    WEFT_ASSIGN_OR_RETURN(state_->credentials, context_->tls->CredentialsFor(
                                                   TlsRole::kServer, *state_->options.security));
  }
  paused_ = accepts() && state_->options.socket >= 0;
  if (!paused_) {
    WEFT_RETURN_IF_ERROR(
        context_->engine.poller->Add(fd(), EPOLLIN, static_cast<PollHandler*>(this)));
  } else {
    OwnDescriptor(fd());
  }
  if (state_->policy.Allows(PathKind::kShm)) OpenLocalSocket();
  return absl::OkStatus();
}

void NetworkListener::OpenLocalSocket() {
  const auto on_neighbour = [state = state_.get()](
                                const Nonce128& nonce,
                                Neighbour* neighbour) -> absl::StatusOr<HandOver> {
    // All are compared, for a look-up would tell by its time how near a guess was. There are as
    // many as handshakes at the most (newcomers.h).
    AcceptHandshake* found = nullptr;
    for (const auto& [high, handshake] : state->awaited) {
      if (handshake->IsAwaiting(nonce)) found = handshake;
    }
    if (found == nullptr) return absl::NotFoundError("no handshake waits for this nonce");
    return found->TakeNeighbour(nonce, neighbour);
  };
  auto proofs =
      LocalProofServer::Open(context_->engine.poller, context_->engine.doorbell, on_neighbour);
  if (!proofs.ok()) {
    WEFT_LOG(kWarning, "no shared memory for clients of ", address(), ": ",
             ToStd(proofs.status().message()));
    return;
  }
  proofs_ = *std::move(proofs);
  state_->local_socket = proofs_->name();
}

absl::Status NetworkListener::Bind(const std::string& text) {
  if (IsActivated(text)) return Activate(text);
  WEFT_ASSIGN_OR_RETURN(ServerAddress address, ParseServerAddress(text));
  if (state_->options.socket >= 0) return Adopt(address);
  if (address.kind == ServerAddress::Kind::kUnix) {
    WEFT_ASSIGN_OR_RETURN(unix_, UnixListener::Open(address.path));
    state_->shared->address = address.text();
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<KernelAddress> found, Resolve(address));
  absl::Status status;
  for (const KernelAddress& candidate : found) {
    absl::StatusOr<Descriptor> socket = ListenInternet(candidate);
    status = socket.status();
    if (!status.ok()) continue;
    socket_ = *std::move(socket);
    WEFT_ASSIGN_OR_RETURN(const KernelAddress bound, LocalAddress(socket_.get()));
    WEFT_ASSIGN_OR_RETURN(const ServerAddress in_use, ParseServerAddress(bound.text()));
    state_->shared->is_beyond_host = !bound.is_loopback();
    address.port = in_use.port;
    state_->shared->address = address.text();
    return absl::OkStatus();
  }
  return status;
}

absl::Status NetworkListener::Adopt(const ServerAddress& address) {
  WEFT_ASSIGN_OR_RETURN(Descriptor socket, DuplicateListener(state_->options.socket));
  WEFT_ASSIGN_OR_RETURN(const KernelAddress bound, LocalAddress(socket.get()));
  WEFT_ASSIGN_OR_RETURN(ServerAddress in_use, ParseServerAddress(bound.text()));
  const auto other = [&] {
    return absl::InvalidArgumentError(StrCat("listen on ", address.text(),
                                             " with another process's socket: it listens on ",
                                             in_use.text()));
  };
  if (in_use.kind != address.kind) return other();
  if (address.kind == ServerAddress::Kind::kUnix) {
    if (in_use.path != address.path) return other();
    WEFT_ASSIGN_OR_RETURN(unix_, UnixListener::Adopt(address.path, std::move(socket)));
    state_->shared->address = address.text();
    return absl::OkStatus();
  }
  if (address.port != 0 && address.port != in_use.port) return other();
  socket_ = std::move(socket);
  state_->shared->is_beyond_host = !bound.is_loopback();
  in_use.host = address.host;
  state_->shared->address = in_use.text();
  return absl::OkStatus();
}

absl::Status NetworkListener::Activate(const std::string& text) {
  absl::StatusOr<Descriptor> socket = TakeActivated(text);
  // Where another process has it already, that is the one: a second one of the manager's is closed.
  if (state_->options.socket >= 0) socket = DuplicateListener(state_->options.socket);
  if (!socket.ok()) return socket.status();
  WEFT_ASSIGN_OR_RETURN(const KernelAddress bound, LocalAddress(socket->get()));
  const absl::StatusOr<ServerAddress> in_use = ParseServerAddress(bound.text());
  if (!in_use.ok()) {
    return absl::InvalidArgumentError(StrCat("listen on ", text, ": this socket is at ",
                                             bound.text(),
                                             ", where no client of Weft's can come: ListenStream= "
                                             "is a port, ADDRESS:PORT or an absolute path"));
  }
  socket_ = *std::move(socket);
  state_->shared->is_beyond_host =
      in_use->kind == ServerAddress::Kind::kInternet && !bound.is_loopback();
  state_->shared->address = in_use->text();
  return absl::OkStatus();
}

bool NetworkListener::has_handshakes() const {
  if (context_ == nullptr) return false;
  if (!accepts() && state_->shared->HasWaiting(state_->number)) return true;
  return context_->newcomers->HasHandshakes();
}

std::vector<Descriptor> NetworkListener::StopAccepting() {
  if (context_ == nullptr || !accepts() || std::exchange(paused_, true)) return {};
  context_->engine.timers->Cancel(this);
  StopWatching();
  while (Arrival* const arrival = arrivals_.PopFront()) {
    Hold(arrival->Release());
    delete arrival;
  }
  return std::exchange(held_, {});
}

void NetworkListener::TakeClient(Descriptor client) {
  if (context_ == nullptr) return;
  if (state_->shared->is_shared()) return BeginArrival(std::move(client));
  ControlConnection::Accept(context_, state_, std::move(client));
}

absl::Status NetworkListener::Resume() {
  holding_ = false;
  if (context_ == nullptr) return absl::OkStatus();
  for (Descriptor& held : std::exchange(held_, {})) TakeClient(std::move(held));
  if (!std::exchange(paused_, false)) return absl::OkStatus();
  if (unix_ != nullptr) unix_->TakeFile();
  return context_->engine.poller->Add(fd(), EPOLLIN, static_cast<PollHandler*>(this));
}

void NetworkListener::Stop() {
  if (context_ == nullptr) return;
  context_->engine.timers->Cancel(this);
  context_->engine.poller->Remove(fd());
  DisownDescriptor(fd());
  state_->acceptor = nullptr;
  state_->local_socket.clear();
  // They hear why, as those that have come before them.
  while (Arrival* const arrival = arrivals_.PopFront()) {
    ControlConnection::Accept(context_, state_, arrival->Release());
    delete arrival;
  }
  for (Descriptor& held : held_) ControlConnection::Accept(context_, state_, std::move(held));
  held_.clear();
  while (!accepts() && context_->newcomers->MakeRoom(context_->now_ns())) {
    Descriptor waiting = state_->shared->Take(state_->number);
    if (!waiting.valid()) break;
    ControlConnection::Accept(context_, state_, std::move(waiting));
  }
  state_->shared->Leave(state_->number);
  context_ = nullptr;
  proofs_.reset();
  socket_.Reset();
  unix_.reset();
  ListNode<ListenerTag>::Unlink();
}

void NetworkListener::OnReady(uint32_t) {
  const uint32_t engines = state_->options.engines;
  if (accepts() && engines > 1 && state_->shared->engines() < engines) return Pause(kFullPauseNs);
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (!context_->newcomers->MakeRoom(context_->now_ns())) return Pause(kFullPauseNs);
    // Each arrival may come to be held.
    if (holding_ && held_.size() + arrivals_.CountSlowly() >= kMaxHeld) return Pause(kFullPauseNs);
    absl::StatusOr<Descriptor> client = Take();
    if (!client.ok()) {
      WEFT_LOG_EVERY_N_SEC(kError, 10, address(), ": ", ToStd(client.status().message()));
      return Pause(kPauseNs);
    }
    if (!client->valid()) return;
    // Others' were looked at by who accepted them.
    if (accepts() && HasLeft(client->get())) {
      context_->hung_up.Increment();
      ResetOnClose(client->get());
      continue;
    }
    if (accepts() && (state_->shared->is_shared() || holding_)) {
      BeginArrival(*std::move(client));
    } else {
      ControlConnection::Accept(context_, state_, *std::move(client));
    }
  }
}

// One that cannot be watched is closed.
void NetworkListener::BeginArrival(Descriptor socket) {
  auto arrival =
      std::make_unique<Arrival>(context_, static_cast<Arrival::Owner*>(this), std::move(socket));
  const uint64_t patience_ns = state_->options.link.connect_timeout_ns;
  if (arrival->Start(context_->now_ns() + patience_ns).ok()) arrivals_.PushBack(arrival.release());
}

void NetworkListener::OnEnd(Arrival* arrival, Arrival::End end) {
  const std::unique_ptr<Arrival> owned(arrival);
  if (end == Arrival::End::kGone) return;
  if (holding_ && end == Arrival::End::kClient) return Hold(arrival->Release());
  const SharedListener& shared = *state_->shared;
  const uint32_t wanted = arrival->wanted_engine();
  if (end == Arrival::End::kJoin) {
    return GiveTo(shared.NumberIn(arrival->token()), arrival->Release(),
                  SharedListener::kMaxWaiting);
  }
  GiveTo(wanted != kAnyEngine ? wanted % shared.engines() : shared.LeastLoaded(),
         arrival->Release(), SharedListener::kMaxWaitingClients);
}

void NetworkListener::GiveTo(uint32_t number, Descriptor socket, size_t most) {
  if (number == 0) return ControlConnection::Accept(context_, state_, std::move(socket));
  if (state_->shared->Post(number, &socket, most)) return;
  context_->handovers_refused.Increment();
  WEFT_LOG_EVERY_N_SEC(kWarning, 10, "a socket is closed: engine ", number, " of those that share ",
                       address(), " has ", most, " sockets to take already, or takes no more");
}

// What the poller watches is this process's alone, and stays so.
void NetworkListener::StopWatching() {
  context_->engine.poller->Remove(fd());
  OwnDescriptor(fd());
}

// There are too many only where others have been taken over from a process just now (TakeClient()).
void NetworkListener::Hold(Descriptor client) {
  if (held_.size() >= kMaxHeld) {
    WEFT_LOG_EVERY_N_SEC(kWarning, 10, "a client is closed: ", kMaxHeld, " at ", address(),
                         " are kept aside for the next process already");
    return;
  }
  OwnDescriptor(client.get());
  held_.push_back(std::move(client));
}

void NetworkListener::Pause(uint64_t ns) {
  StopWatching();
  context_->engine.timers->Schedule(this, context_->now_ns() + ns);
}

void NetworkListener::OnTimer() {
  const absl::Status status =
      context_->engine.poller->Add(fd(), EPOLLIN, static_cast<PollHandler*>(this));
  if (!status.ok()) context_->engine.timers->Schedule(this, context_->now_ns() + kPauseNs);
}

}  // namespace weft
