#include "transport/control/control_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/control/wanted_engine.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"

namespace weft {

ControlSocket::ControlSocket(Descriptor descriptor, Poller* poller, Function<void()> on_activity)
    : descriptor_(std::move(descriptor)),
      stream_(descriptor_.get()),
      poller_(poller),
      on_activity_(std::move(on_activity)) {}

// One who hung up without a word, and was told none, has no use for a polite end.
ControlSocket::~ControlSocket() {
  if (watched_events_ != 0) poller_->Remove(fd());
  const bool was_told = greeted_ || stream_.state() != TlsStream::State::kPlain;
  if (gone() && received_bytes_ == 0 && !was_told) ResetOnClose(fd());
}

absl::Status ControlSocket::StartTls(TlsCredentials* credentials, SharedTls* tls, uint64_t now_ns,
                                     const ServerAddress& server, uint32_t wanted_engine) {
  tls_ = tls;
  WEFT_RETURN_IF_ERROR(
      stream_.Start(credentials, tls->scratch(), now_ns, server.host, server.text()));
  if (wanted_engine != kAnyEngine) {
    WEFT_RETURN_IF_ERROR(stream_.AlsoOffer(WantedEngineProtocol(wanted_engine)));
  }
  stream_.Flush();  // the client begins
  return absl::OkStatus();
}

void ControlSocket::ExpectTls(TlsCredentials* credentials, SharedTls* tls, uint64_t now_ns) {
  tls_ = tls;
  expected_tls_ = {credentials, now_ns};
}

void ControlSocket::StartExpectedTls() {
  std::byte first;
  if (::recv(fd(), &first, sizeof(first), MSG_PEEK) != 1) return;  // the reader will see why
  const ExpectedTls expected = std::exchange(expected_tls_, {});
  may_join_ = !LooksLikeTls(ByteSpan(&first, 1));
  if (may_join_) return;
  absl::Status status = stream_.Start(expected.credentials, tls_->scratch(), expected.now_ns);
  if (!status.ok()) EndStream(std::move(status));
}

Descriptor ControlSocket::Release() {
  if (watched_events_ != 0) poller_->Remove(fd());
  watched_events_ = 0;
  shut_ = true;
  return std::move(descriptor_);
}

bool ControlSocket::Receive(ControlFrame* frame) {
  if (!ended_.ok() || lingering_) return false;
  switch (reader_.Next(frame)) {
    case ControlFrameReader::Result::kFrame:
      return true;
    case ControlFrameReader::Result::kNeedMore:
      ended_ = stream_end_;
      return false;
    case ControlFrameReader::Result::kError:
      ended_ = reader_.error();
      return false;
  }
  return false;
}

bool ControlSocket::HasUnread() const {
  std::byte next;
  const ssize_t count = ::recv(fd(), &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT);
  return count >= 0 || errno != EAGAIN;
}

void ControlSocket::Queue(ControlType type, uint16_t flags, ByteSpan body) {
  if (shut_) return;
  if (!std::exchange(greeted_, true)) {
    const auto preamble = EncodePreamble();
    unsent_.insert(unsent_.end(), preamble.begin(), preamble.end());
  }
  if (unsent_.size() + kControlHeaderBytes + body.size() > kMaxUnsentBytes) {
    EndStream(absl::ResourceExhaustedError(
        StrCat("the peer does not read its control connection: ", unsent_.size(),
               " bytes are waiting; the limit is ", kMaxUnsentBytes)));
    return;
  }
  AppendControlFrame(type, flags, body, &unsent_);
  WriteSome();
}

void ControlSocket::SendRaw(std::string_view text) {
  if (shut_) return;
  const ByteSpan bytes = AsBytes(text);
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  WriteSome();
}

void ControlSocket::Linger() {
  WEFT_CHECK(!is_shaking_hands());  // Ours: the connection closes it
  lingering_ = true;
  WriteSome();
}

void ControlSocket::OnReady(uint32_t events) {
  if (expected_tls_.credentials != nullptr) StartExpectedTls();
  if (is_shaking_hands()) return OnHandshakeReady(events);
  if ((events & EPOLLOUT) != 0) WriteSome();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !has_more()) ReadSome();
  if (!gone() && is_secured()) WriteSome();  // OpenSSL's own answers
  if (!lingering_ || gone() || has_more()) on_activity_();
}

// The poller tells again of what is left in the socket meanwhile.
void ControlSocket::OnHandshakeReady(uint32_t events) {
  if (stream_.ReceiveFlight() || (events & EPOLLOUT) != 0) return tls_->line().Enter(this);
  if (!has_more()) return;
  ReadSome();  // it has failed, and says why
  on_activity_();
}

void ControlSocket::GoOn() {
  stream_.Flush();
  ReadSome();
  if (!gone()) WriteSome();  // the handshake may be complete now
  if (is_secured()) tls_->CountUp(stream_.resumed());
  on_activity_();
}

void ControlSocket::ReadSome() {
  if (gone()) return;
  std::array<std::byte, kReadBytes> bytes;
  size_t room = bytes.size();
  if (may_join_ && greeting() == ControlFrameReader::Greeting::kNone) {
    room = kJoinBytes - static_cast<size_t>(received_bytes_);
    if (room == 0) return;  // the reader has not been asked yet
  }
  const iovec place{bytes.data(), room};
  const ssize_t count = stream_.Read(&place, 1);
  if (stream_.state() == TlsStream::State::kFailed && count < 0) {
    return EndStream(stream_.error());
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) {
    const absl::Status status = StatusFromErrno(errno, "the control connection broke");
    EndStream(absl::UnavailableError(status.message()));
    return;
  }
  if (count == 0) {
    EndStream(absl::UnavailableError("the peer closed the control connection"));
    return;
  }
  received_bytes_ += static_cast<uint64_t>(count);
  if (lingering_) return;
  if (reader_.buffered() + static_cast<size_t>(count) > kMaxUnreadBytes) {
    EndStream(absl::DataLossError("the peer sends control messages faster than they are read"));
    return;
  }
  reader_.Append(ByteSpan(bytes.data(), static_cast<size_t>(count)));
}

void ControlSocket::WriteSome() {
  if (shut_) return;
  const bool can_send = !is_shaking_hands();  // which goes on in its turn, and then calls this
  if (can_send) stream_.Flush();
  size_t sent = 0;
  while (can_send && sent < unsent_.size()) {
    const iovec piece{unsent_.data() + sent, unsent_.size() - sent};
    const ssize_t count = stream_.Write(&piece, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      // What the peer said last may still be there to read, and says more than this error.
      if (errno != EAGAIN) shut_ = true;
      break;
    }
    sent += static_cast<size_t>(count);
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<ptrdiff_t>(sent));
  if (shut_) unsent_.clear();
  if (lingering_ && unsent_.empty() && !shut_) {
    stream_.End();
    if (stream_.Flush()) {
      ::shutdown(fd(), SHUT_WR);
      shut_ = true;
    }
  }
  if (watched_events_ != 0) Watch(WantedEvents()).IgnoreError();  // a change cannot fail
}

uint32_t ControlSocket::WantedEvents() const {
  // During the handshake it is the peer's turn, whatever waits for it to be complete.
  const bool waits_for_room = stream_.unsent() > 0 || (!unsent_.empty() && !is_shaking_hands());
  return waits_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

absl::Status ControlSocket::Watch(uint32_t events) {
  if (events == watched_events_) return absl::OkStatus();
  absl::Status status = watched_events_ == 0
                            ? poller_->Add(fd(), events, static_cast<PollHandler*>(this))
                            : poller_->Modify(fd(), events);
  if (status.ok()) watched_events_ = events;
  return status;
}

void ControlSocket::EndStream(absl::Status why) {
  shut_ = true;
  unsent_.clear();
  // An ended stream is readable for ever: out of the poller, or no engine would sleep any more.
  if (watched_events_ != 0) poller_->Remove(fd());
  watched_events_ = 0;
  if (tls_ != nullptr) tls_->line().Leave(this);
  if (stream_end_.ok()) stream_end_ = std::move(why);
}

}  // namespace weft
