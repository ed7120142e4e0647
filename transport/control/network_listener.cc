#include "transport/control/network_listener.h"

#include <utility>
#include <vector>

#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"

namespace weft {

absl::StatusOr<std::unique_ptr<NetworkListener>> NetworkListener::Open(ControlContext* context,
                                                                       const std::string& address,
                                                                       const ListenOptions& options,
                                                                       PathPolicy policy,
                                                                       Acceptor* acceptor) {
  std::unique_ptr<NetworkListener> listener(new NetworkListener(
      context, std::make_shared<ListenerState>(acceptor, options, std::move(policy))));
  if (options.security.has_value()) {
    WEFT_ASSIGN_OR_RETURN(listener->state_->credentials,
                          context->tls->CredentialsFor(TlsRole::kServer, *options.security));
  }
  WEFT_RETURN_IF_ERROR(listener->Bind(address));
  WEFT_RETURN_IF_ERROR(context->engine.poller->Add(listener->fd(), EPOLLIN,
                                                   static_cast<PollHandler*>(listener.get())));
  if (listener->state_->policy.Allows(PathKind::kShm)) listener->OpenLocalSocket();
  return listener;
}

void NetworkListener::OpenLocalSocket() {
  const auto on_neighbour = [state = state_.get()](
                                const Nonce128& nonce,
                                Neighbour* neighbour) -> absl::StatusOr<HandOver> {
    const auto found = state->awaited.find(nonce.high);
    if (found == state->awaited.end()) {
      return absl::NotFoundError("no handshake waits for this nonce");
    }
    return found->second->TakeNeighbour(nonce, neighbour);
  };
  auto proofs =
      LocalProofServer::Open(context_->engine.poller, context_->engine.doorbell, on_neighbour);
  if (!proofs.ok()) {
    WEFT_LOG(kWarning, "no shared memory for clients of ", address_, ": ",
             ToStd(proofs.status().message()));
    return;
  }
  proofs_ = *std::move(proofs);
  state_->local_socket = proofs_->name();
}

absl::Status NetworkListener::Bind(const std::string& text) {
  WEFT_ASSIGN_OR_RETURN(ServerAddress address, ParseServerAddress(text));
  if (address.kind == ServerAddress::Kind::kUnix) {
    WEFT_ASSIGN_OR_RETURN(unix_, UnixListener::Open(address.path));
    address_ = address.text();
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
    is_beyond_host_ = !bound.is_loopback();
    address.port = in_use.port;
    address_ = address.text();
    return absl::OkStatus();
  }
  return status;
}

void NetworkListener::Stop() {
  if (context_ == nullptr) return;
  context_->engine.timers->Cancel(this);
  context_->engine.poller->Remove(fd());
  context_ = nullptr;
  state_->acceptor = nullptr;
  state_->local_socket.clear();
  proofs_.reset();
  socket_.Reset();
  unix_.reset();
  ListNode<ListenerTag>::Unlink();
}

void NetworkListener::OnReady(uint32_t) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (!context_->newcomers->MakeRoom(context_->now_ns())) return Pause(kFullPauseNs);
    absl::StatusOr<Descriptor> client = AcceptClient(fd());
    if (!client.ok()) {
      WEFT_LOG_EVERY_N_SEC(kError, 10, address_, ": ", ToStd(client.status().message()));
      return Pause(kPauseNs);
    }
    if (!client->valid()) return;
    ControlConnection::Accept(context_, state_, *std::move(client));
  }
}

void NetworkListener::Pause(uint64_t ns) {
  context_->engine.poller->Remove(fd());
  context_->engine.timers->Schedule(this, context_->now_ns() + ns);
}

void NetworkListener::OnTimer() {
  const absl::Status status =
      context_->engine.poller->Add(fd(), EPOLLIN, static_cast<PollHandler*>(this));
  if (!status.ok()) context_->engine.timers->Schedule(this, context_->now_ns() + kPauseNs);
}

}  // namespace weft
