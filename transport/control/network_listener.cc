#include "transport/control/network_listener.h"

#include <utility>
#include <vector>

#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/control/address.h"
#include "transport/control/socket.h"

namespace weft {

bool Strangers::MakeRoom(uint64_t now_ns) {
  if (sessions_.CountSlowly() < kMaxStrangers) return true;
  AcceptSession* const oldest = sessions_.Front();
  if (now_ns - oldest->started_ns() < kGraceNs) return false;
  oldest->Evict();
  return true;
}

absl::StatusOr<std::unique_ptr<NetworkListener>> NetworkListener::Open(
    ControlContext* context, Strangers* strangers, const std::string& address,
    const ListenOptions& options, PathPolicy paths, Acceptor* acceptor) {
  auto policy = std::make_shared<AcceptPolicy>(acceptor, options, std::move(paths));
  std::unique_ptr<NetworkListener> listener(
      new NetworkListener(context, strangers, std::move(policy)));
  WEFT_RETURN_IF_ERROR(listener->Bind(address));
  WEFT_RETURN_IF_ERROR(context->engine.poller->Add(listener->fd(), EPOLLIN,
                                                   static_cast<PollHandler*>(listener.get())));
  auto proofs = LocalProofServer::Open(context->engine.poller, context->engine.doorbell,
                                       listener->policy_.get());
  if (proofs.ok()) {
    listener->proofs_ = *std::move(proofs);
    listener->policy_->local_socket = listener->proofs_->name();
  } else {
    WEFT_LOG(kWarning, "no shared memory for clients of ", address, ": ",
             ToStd(proofs.status().message()));
  }
  return listener;
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
  policy_->acceptor = nullptr;
  policy_->local_socket.clear();
  proofs_.reset();
  socket_.Reset();
  unix_.reset();
  ListNode<ListenerTag>::Unlink();
}

void NetworkListener::OnReady(uint32_t) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (!strangers_->MakeRoom(context_->now_ns())) return;
    absl::StatusOr<Descriptor> client = AcceptClient(fd());
    if (!client.ok()) {
      WEFT_LOG_EVERY_N_SEC(kError, 10, address_, ": ", ToStd(client.status().message()));
      context_->engine.poller->Remove(fd());
      context_->engine.timers->Schedule(this, context_->now_ns() + kPauseNs);
      return;
    }
    if (!client->valid()) return;
    auto* const session = new AcceptSession(context_, policy_);  // the context's from here on
    if (session->Start(*std::move(client)).ok()) strangers_->Add(session);
  }
}

void NetworkListener::OnTimer() {
  const absl::Status status =
      context_->engine.poller->Add(fd(), EPOLLIN, static_cast<PollHandler*>(this));
  if (!status.ok()) context_->engine.timers->Schedule(this, context_->now_ns() + kPauseNs);
}

}  // namespace weft
