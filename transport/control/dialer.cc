#include "transport/control/dialer.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/socket.h"

namespace weft {

absl::Status ConnectTimeout(const std::string& server, uint64_t timeout_ns, const char* what,
                            std::string_view detail) {
  const std::string in_brackets = detail.empty() ? "" : StrCat(" (", detail, ")");
  return absl::UnavailableError(StrCat("connect to ", server, ": no success within ",
                                       timeout_ns / kNsPerMs, " ms, waiting for ", what,
                                       in_brackets));
}

Dialer::Dialer(const ServerAddress& server, std::vector<KernelAddress> addresses, Poller* poller,
               uint64_t now_ns, uint64_t timeout_ns, Function<void()> on_ready)
    : server_(server.text()),
      is_unix_(server.kind == ServerAddress::Kind::kUnix),
      addresses_(std::move(addresses)),
      poller_(poller),
      timeout_ns_(timeout_ns),
      deadline_ns_(now_ns + timeout_ns),
      on_ready_(std::move(on_ready)) {}

uint64_t Dialer::due_ns() const {
  return state_ == State::kNext ? deadline_ns_ : std::min(deadline_ns_, step_end_ns_);
}

void Dialer::OnReady(uint32_t) {
  decided_ = true;
  on_ready_();
}

std::optional<absl::StatusOr<Descriptor>> Dialer::Advance(uint64_t now_ns) {
  if (now_ns >= deadline_ns_) {
    return ConnectTimeout(server_, timeout_ns_, "the connection to be accepted",
                          ToStd(error_.message()));
  }
  if (state_ == State::kConnecting && decided_) {
    error_ = FinishDial(socket_.get(), addresses_[next_]);
    if (error_.ok()) {
      poller_->Remove(socket_.get());
      return std::move(socket_);
    }
    GiveUpAddress();
  } else if (state_ == State::kConnecting && now_ns >= step_end_ns_) {
    error_ = absl::UnavailableError(StrCat("connect to ", addresses_[next_].text(), ": no answer"));
    GiveUpAddress();
  } else if (state_ == State::kBusy && now_ns >= step_end_ns_) {
    state_ = State::kNext;
  }
  while (state_ == State::kNext) {
    if (next_ == addresses_.size()) return error_;
    DialNext(now_ns);
  }
  return std::nullopt;
}

void Dialer::DialNext(uint64_t now_ns) {
  absl::StatusOr<Descriptor> socket = StartDial(addresses_[next_]);
  error_ = socket.status();
  if (socket.ok()) {
    error_ = poller_->Add(socket->get(), EPOLLOUT, static_cast<PollHandler*>(this));
  }
  if (error_.ok()) {
    socket_ = *std::move(socket);
    decided_ = false;
    state_ = State::kConnecting;
    step_end_ns_ = now_ns + timeout_ns_ / (addresses_.size() - next_);
  } else if (is_unix_ && absl::IsResourceExhausted(error_)) {
    state_ = State::kBusy;
    step_end_ns_ = now_ns + kBusyRetryNs;
  } else {
    ++next_;
  }
}

void Dialer::GiveUpAddress() {
  Drop();
  ++next_;
  state_ = State::kNext;
}

void Dialer::Drop() {
  if (!socket_.valid()) return;
  poller_->Remove(socket_.get());
  socket_.Reset();
}

}  // namespace weft
