#include "transport/control/arrival.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "core/bytes.h"
#include "transport/control/wanted_engine.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"

namespace weft {

Arrival::~Arrival() { Release().Reset(); }

absl::Status Arrival::Start(uint64_t deadline_ns) {
  absl::Status status = context_->engine.poller->Add(socket_.get(), EPOLLIN | EPOLLRDHUP,
                                                     static_cast<PollHandler*>(this));
  if (!status.ok()) return status;
  const uint64_t now_ns = context_->now_ns();
  deadline_ns_ = deadline_ns;
  context_->newcomers->AddStranger(this, PeerHost(socket_.get()), now_ns);
  context_->engine.timers->Schedule(this, deadline_ns_);
  return absl::OkStatus();
}

Descriptor Arrival::Release() {
  context_->newcomers->Leave(this);
  if (armed()) context_->engine.timers->Cancel(this);
  if (socket_.valid()) context_->engine.poller->Remove(socket_.get());
  return std::move(socket_);
}

void Arrival::OnReady(uint32_t events) {
  // Of a client that says all it has to say and closes its half, the bytes are there still.
  const bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (hung_up || (in_part_ && (events & EPOLLRDHUP) != 0)) return owner_->OnEnd(this, End::kGone);
  Look();
}

void Arrival::OnTimer() {
  if (put_out_ || context_->now_ns() >= deadline_ns_) return owner_->OnEnd(this, End::kGone);
  Look();
}

// Not within this call: from the timers, which have their turn soon.
void Arrival::PutOut() {
  put_out_ = true;
  context_->engine.timers->Schedule(this, context_->now_ns());
}

void Arrival::Look() {
  std::array<std::byte, kMostWantedBytes> first;  // of a join they are enough as well
  static_assert(kMostWantedBytes >= kJoinBytes);
  const ssize_t count = recv(socket_.get(), first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    if (count == 0) ResetOnClose(socket_.get());  // he has no use for a polite end
    return owner_->OnEnd(this, End::kGone);
  }
  const auto bytes = static_cast<size_t>(count);
  const ByteSpan come = ByteSpan(first).first(bytes);
  if (!CanBeJoin(come)) {
    if (FindWantedEngine(come, &wanted_engine_)) return owner_->OnEnd(this, End::kClient);
  } else if (bytes >= kJoinBytes) {
    token_ = DecodeJoin(first.data());
    return owner_->OnEnd(this, End::kJoin);
  }
  if (!in_part_ && !context_->engine.poller->Modify(socket_.get(), EPOLLRDHUP).ok()) {
    return owner_->OnEnd(this, End::kGone);
  }
  in_part_ = true;
  context_->engine.timers->Schedule(this,
                                    std::min(deadline_ns_, context_->now_ns() + kLookAgainNs));
}

}  // namespace weft
