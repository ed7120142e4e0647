#include "transport/tls/tls_kernel_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/send.h"
#include "transport/tls/tls_errors.h"

namespace weft {
namespace {

using Alert = TlsRecords::Alert;
using Kind = TlsRecords::Kind;
using Message = TlsRecords::Message;

// So many records the kernel makes of the bytes of one call: full ones, and the rest. Where its
// memory is short of large pieces it may make more, of fewer bytes each. It numbers them by itself:
// no number comes twice, and a key bears 1.4 times as many (RFC 8446, 5.5).
uint64_t RecordsOf(size_t bytes) {
  return (bytes + TlsRecords::kMostPlainBytes - 1) / TlsRecords::kMostPlainBytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsKernelStream>> TlsKernelStream::Begin(
    int fd, TlsScratch* scratch, std::unique_ptr<TlsRecords>* records) {
  // With neither key the socket is what it was.
  int error = AttachKernelTls(fd);
  if (error == 0) error = GiveKernelTlsKey(fd, KernelTlsSide::kOut, (*records)->out_key());
  if (error != 0) {
    return absl::UnavailableError(
        StrCat("the kernel's TLS does not take this socket: ", ErrnoText(error)));
  }
  error = GiveKernelTlsKey(fd, KernelTlsSide::kIn, (*records)->in_key());
  if (error != 0) {
    return absl::InternalError(StrCat(
        "TLS: the kernel takes the key of one direction and not the other's: ", ErrnoText(error)));
  }
  return std::unique_ptr<TlsKernelStream>(new TlsKernelStream(fd, scratch, std::move(*records)));
}

TlsKernelStream::Pieces TlsKernelStream::Clip(const iovec* iovecs, int count, size_t most_bytes) {
  Pieces pieces;
  for (int i = 0; i < count && pieces.count < kMaxPieces && pieces.bytes < most_bytes; ++i) {
    if (iovecs[i].iov_len == 0) continue;
    iovec& piece = pieces.first[pieces.count++];
    piece = {iovecs[i].iov_base, std::min(iovecs[i].iov_len, most_bytes - pieces.bytes)};
    pieces.bytes += piece.iov_len;
  }
  return pieces;
}

// --- in ------------------------------------------------------------------------------------------

ssize_t TlsKernelStream::Read(const iovec* iovecs, int count, size_t seen_bytes) {
  const Pieces pieces = Clip(iovecs, count, kMaxReadBytes);
  size_t taken = 0;
  socket_has_more_ = true;
  for (int calls = 0; calls < kMaxReadRecords && taken == 0 && pieces.bytes > 0 && !at_end_ &&
                      !failed() && socket_has_more_;
       ++calls) {
    taken = Receive(pieces, seen_bytes > 0, iovecs, count);
  }
  Flush();
  if (taken > 0 || pieces.bytes == 0 || (at_end_ && !failed())) return static_cast<ssize_t>(taken);
  errno = failed() ? EPROTO : EAGAIN;
  return -1;
}

size_t TlsKernelStream::Receive(const Pieces& pieces, bool is_seen, const iovec* iovecs,
                                int count) {
  const MutableByteSpan scratch = scratch_->input();
  const iovec by_scratch{scratch.data(), pieces.bytes};
  const KernelTlsReceived received = is_seen ? ReceiveKernelTls(fd_, &by_scratch, 1)
                                             : ReceiveKernelTls(fd_, pieces.first, pieces.count);
  if (received.error != 0) {
    OnReceiveError(received.error);
    return 0;
  }
  if (received.type == 0 && received.bytes == 0) {
    Fail(absl::UnavailableError("TLS: the stream was cut: it ended without TLS's own end"));
    return 0;
  }
  if (received.type == static_cast<uint8_t>(Kind::kData)) {
    // None: a record without data, and behind it one of another type, or nothing yet.
    if (received.bytes == 0) CountOwnMessage();
    size_t left = is_seen ? received.bytes : 0;
    for (IovecCursor to(iovecs, count); left > 0;) {
      const size_t bytes = std::min(to.piece().size(), left);
      std::memcpy(to.piece().data(), scratch.data() + (received.bytes - left), bytes);
      left -= bytes;
      to.Advance(bytes);
    }
    CountData(received.bytes);
    return received.bytes;
  }
  size_t gathered = is_seen ? received.bytes : 0;
  for (int i = 0; gathered < received.bytes; ++i) {
    const size_t bytes = std::min(pieces.first[i].iov_len, received.bytes - gathered);
    std::memcpy(scratch.data() + gathered, pieces.first[i].iov_base, bytes);
    gathered += bytes;
  }
  OnMessage(received);
  return 0;
}

void TlsKernelStream::OnMessage(KernelTlsReceived received) {
  const MutableByteSpan scratch = scratch_->input();
  while (!received.ends_record && received.bytes < TlsRecords::kMostPlainBytes) {
    // The reader had no room for all of it: the rest has been opened with it.
    const MutableByteSpan room = scratch.subspan(received.bytes);
    const iovec place{room.data(), room.size()};
    const KernelTlsReceived rest = ReceiveKernelTls(fd_, &place, 1);
    if (rest.error != 0) return OnReceiveError(rest.error == EAGAIN ? EIO : rest.error);
    if (rest.type != received.type || rest.bytes == 0) break;
    received.bytes += rest.bytes;
    received.ends_record = rest.ends_record;
  }
  const auto kind = static_cast<Kind>(received.type);
  if (kind != Kind::kAlert && kind != Kind::kHandshake) {
    return FailRecord({Alert::kUnexpectedMessage, "its content type is unknown"});
  }
  const uint64_t updates = records_->peer_updates();
  const Message said = records_->Take(kind, scratch.first(received.bytes));
  if (records_->peer_updates() != updates) {
    asked_ = false;
    in_bytes_ = 0;
    const int error = GiveKernelTlsKey(fd_, KernelTlsSide::kIn, records_->in_key());
    if (error != 0) {
      return Fail(absl::InternalError(
          StrCat("TLS: the kernel does not take the peer's next key: ", ErrnoText(error))));
    }
  }
  OnSaid(said);
}

void TlsKernelStream::OnSaid(Message said) {
  switch (said) {
    case Message::kEnd:
      at_end_ = true;
      return;
    case Message::kIgnored:
      return CountOwnMessage();
    case Message::kKeyUpdateRequested:
      CountOwnMessage();
      return WantUpdate(Update::kOwn);
    case Message::kFatalAlert:
      return Fail(TlsAlertError(records_->fatal_alert()));
    case Message::kWrong:
      return FailRecord(records_->fault());
  }
}

void TlsKernelStream::OnReceiveError(int error) {
  switch (error) {
    case EAGAIN:
      socket_has_more_ = false;
      return;
    case EBADMSG:
      return FailRecord({Alert::kBadRecordMac,
                         "it does not open: it was changed, left out, or is another one's"});
    case EMSGSIZE:
      return FailRecord({Alert::kRecordOverflow, "it is longer than 2^14 bytes of content"});
    case EINVAL:
      return FailRecord({Alert::kUnexpectedMessage, "it is not sealed, or no record"});
    default:
      return Fail(absl::UnavailableError(StatusFromErrno(error, "TLS: reading").message()));
  }
}

void TlsKernelStream::CountOwnMessage() {
  if (!own_messages_.Count()) Fail(TlsOwnMessages::TooMany());
}

// N bytes came in N records at most: so the kernel is asked for its count only after
// records_per_key() bytes. Records without data are in its count as well, and are seen then.
void TlsKernelStream::CountData(size_t bytes) {
  own_messages_.AddData(bytes);
  in_bytes_ += bytes;
  if (in_bytes_ < records_->records_per_key() || asked_) [[likely]]
    return;
  in_bytes_ = 0;
  if (KernelTlsRecords(fd_, KernelTlsSide::kIn).value_or(0) < records_->records_per_key()) return;
  asked_ = true;
  WantUpdate(Update::kAsksForPeers);
}

// --- out -----------------------------------------------------------------------------------------

ssize_t TlsKernelStream::Write(const iovec* iovecs, int count) {
  if (ended_) Fail(absl::InternalError("TLS: a write behind the end"));
  // The last record of a key is its update.
  if (out_records_ + 1 >= records_->records_per_key()) WantUpdate(Update::kOwn);
  Flush();
  if (failed() || unsent() > 0) {
    errno = failed() ? EPROTO : EAGAIN;
    return -1;
  }
  if (socket_broken_) return static_cast<ssize_t>(Clip(iovecs, count, kMaxWriteBytes).bytes);
  const uint64_t records =
      std::min<uint64_t>(records_->records_per_key() - 1 - out_records_, RecordsOf(kMaxWriteBytes));
  const Pieces pieces = Clip(iovecs, count, records * TlsRecords::kMostPlainBytes);
  if (pieces.count == 0) return 0;
  ssize_t sent = 0;
  do {
    sent = SendPieces(fd_, pieces.first, pieces.count);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    if (OnSendError(errno)) return static_cast<ssize_t>(pieces.bytes);
    errno = failed() ? EPROTO : EAGAIN;
    return -1;
  }
  out_records_ += RecordsOf(static_cast<size_t>(sent));
  return sent;
}

void TlsKernelStream::Flush() {
  if (failed()) return;
  if (update_ != Update::kNone && !SendUpdate()) return;
  if (ends_ && SendMessage(Kind::kAlert, TlsRecords::AlertMessage(Alert::kCloseNotify))) {
    ends_ = false;
  }
}

// Whether the socket is broken, and takes everything from here on. False: it is full, or the stream
// has failed.
bool TlsKernelStream::OnSendError(int error) {
  if (error == ENOMEM || error == ENOBUFS) {
    Fail(absl::ResourceExhaustedError("TLS: the kernel has no memory to make a record"));
  } else if (error != EAGAIN) {
    socket_broken_ = true;
  }
  return socket_broken_;
}

bool TlsKernelStream::SendMessage(Kind kind, ByteSpan content) {
  return socket_broken_ || SendKernelTlsMessage(fd_, kind, content) || OnSendError(errno);
}

bool TlsKernelStream::SendUpdate() {
  const bool asks = update_ == Update::kAsksForPeers;
  if (!SendMessage(Kind::kHandshake, TlsRecords::KeyUpdateMessage(asks))) return false;
  update_ = Update::kNone;
  if (socket_broken_) return true;
  records_->UseNextOutKey();
  out_records_ = 0;
  const int error = GiveKernelTlsKey(fd_, KernelTlsSide::kOut, records_->out_key());
  if (error == 0) return true;
  Fail(absl::InternalError(
      StrCat("TLS: the kernel does not take the next key: ", ErrnoText(error))));
  return false;
}

// One is as good as several. Behind the end nobody listens any more.
void TlsKernelStream::WantUpdate(Update update) {
  if (!ended_ && !failed()) update_ = std::max(update_, update);
}

void TlsKernelStream::End() {
  if (failed() || std::exchange(ended_, true)) return;
  update_ = Update::kNone;
  ends_ = true;
  Flush();
}

size_t TlsKernelStream::unsent() const {
  return (update_ == Update::kNone ? 0 : TlsRecords::kKeyUpdateBytes) +
         (ends_ ? TlsRecords::kAlertBytes : 0);
}

// --- the end -------------------------------------------------------------------------------------

void TlsKernelStream::FailRecord(TlsRecords::Fault fault) {
  // The kernel has taken the socket for broken, and sends nothing before this is read.
  int error = 0;
  socklen_t bytes = sizeof(error);
  (void)::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
  // An alert tells the peer, if there is room for it.
  if (!ended_) (void)SendKernelTlsMessage(fd_, Kind::kAlert, TlsRecords::AlertMessage(fault.alert));
  Fail(absl::DataLossError(StrCat("TLS: a record is wrong: ", fault.what)));
}

void TlsKernelStream::Fail(absl::Status why) {
  if (failed()) return;
  error_ = std::move(why);
  update_ = Update::kNone;
  ends_ = false;
}

}  // namespace weft
