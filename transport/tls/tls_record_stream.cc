#include "transport/tls/tls_record_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/tls/tls_errors.h"

namespace weft {

TlsRecordStream::TlsRecordStream(int fd, TlsScratch* scratch, TlsOutput* output,
                                 std::unique_ptr<TlsRecords> records, ByteSpan input)
    : fd_(fd),
      scratch_(scratch),
      output_(output),
      records_(std::move(records)),
      kept_(input.begin(), input.end()) {
  input_ = MutableByteSpan(kept_);
}

bool TlsRecordStream::has_pending() const {
  return at_end_ || !opened_.empty() || socket_has_more_ || HoldsRecord();
}

// --- in ------------------------------------------------------------------------------------------

ssize_t TlsRecordStream::Read(const iovec* iovecs, int count, size_t seen_bytes) {
  IovecCursor to(iovecs, count);
  const size_t wanted = to.left();
  const auto fits_unseen = [&](size_t record) {
    return wanted - to.left() >= seen_bytes && TlsRecords::SealedBytes(record) <= to.piece().size();
  };
  socket_has_more_ = true;
  GiveOpened(&to);
  for (int records = 0; to.left() > 0 && !at_end_ && !failed();) {
    size_t bytes = 0;
    if (!records_->Measure(input_, &bytes)) {
      FailRecord();
    } else if (bytes == 0 || bytes > input_.size()) {
      if (!Receive(to.left())) break;
    } else {
      if (records++ == kMaxReadRecords) break;
      if (fits_unseen(bytes)) {
        OpenInto(bytes, &to);
      } else {
        Open(bytes);
        GiveOpened(&to);
      }
    }
  }
  const size_t taken = wanted - to.left();
  if (records_->IsTimeToAsk()) AddKeyUpdate(/*requests_update=*/true);
  KeepInput();
  Send();
  if (taken > 0 || wanted == 0 || (at_end_ && !failed())) return static_cast<ssize_t>(taken);
  errno = failed() ? EPROTO : EAGAIN;
  return -1;
}

// Takes what the socket has, behind the part of a record that is there. False: nothing has come.
bool TlsRecordStream::Receive(size_t wanted) {
  if (!socket_has_more_) return false;
  // As many records as hold what is wanted, if they are full ones: then nothing is left over.
  const size_t records = std::min(wanted / kRecordBytes + 1, TlsScratch::kRecords);
  const MutableByteSpan room = scratch_->input().first(records * TlsRecords::kMostBytes);
  const size_t kept = input_.size();
  if (kept > 0 && input_.data() != room.data()) std::memmove(room.data(), input_.data(), kept);
  const MutableByteSpan place = room.subspan(kept);
  ssize_t received = 0;
  do {
    received = ::recv(fd_, place.data(), place.size(), 0);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && errno == EAGAIN) {
    received = 0;
  } else if (received < 0) {
    Fail(absl::UnavailableError(StatusFromErrno(errno, "TLS: reading").message()));
    return false;
  } else if (received == 0) {
    Fail(absl::UnavailableError("TLS: the stream was cut: it ended without TLS's own end"));
    return false;
  }
  const auto bytes = static_cast<size_t>(received);
  input_ = room.first(kept + bytes);
  // A short read has emptied the socket: the poller tells of what comes after it.
  socket_has_more_ = bytes == place.size();
  return bytes > 0;
}

void TlsRecordStream::Open(size_t bytes) {
  const MutableByteSpan record = input_.first(bytes);
  input_ = input_.subspan(bytes);
  std::byte* const place = record.data() + TlsRecords::kHeaderBytes;
  const TlsRecords::Opened opened = records_->Open(record, place);
  const MutableByteSpan content(place, opened.bytes);
  if (opened.kind != TlsRecords::Kind::kData || content.empty()) return OnNoData(opened, content);
  opened_ = content;
}

void TlsRecordStream::OpenInto(size_t bytes, IovecCursor* to) {
  const ByteSpan record = input_.first(bytes);
  input_ = input_.subspan(bytes);
  std::byte* const place = to->piece().data();
  const TlsRecords::Opened opened = records_->Open(record, place);
  const ByteSpan content(place, opened.bytes);
  if (opened.kind != TlsRecords::Kind::kData || content.empty()) return OnNoData(opened, content);
  own_messages_.AddData(content.size());
  to->Advance(content.size());
}

void TlsRecordStream::OnNoData(TlsRecords::Opened opened, ByteSpan content) {
  switch (opened.kind) {
    case TlsRecords::Kind::kData:
      return CountOwnMessage();
    case TlsRecords::Kind::kAlert:
    case TlsRecords::Kind::kHandshake:
      return OnSaid(records_->Take(opened.kind, content));
    case TlsRecords::Kind::kWrong:
      return FailRecord();
  }
}

void TlsRecordStream::GiveOpened(IovecCursor* to) {
  while (!opened_.empty() && to->left() > 0) {
    const MutableByteSpan place = to->piece();
    const size_t bytes = std::min(place.size(), opened_.size());
    std::memcpy(place.data(), opened_.data(), bytes);
    opened_ = opened_.subspan(bytes);
    own_messages_.AddData(bytes);
    to->Advance(bytes);
  }
}

// Whole, or so wrong that the next Read() says so.
bool TlsRecordStream::HoldsRecord() const {
  size_t bytes = 0;
  return !records_->Measure(input_, &bytes) || (bytes > 0 && bytes <= input_.size());
}

void TlsRecordStream::KeepInput() {
  // What is opened lies before what is not.
  const MutableByteSpan left =
      opened_.empty() ? input_ : MutableByteSpan(opened_.data(), input_.data() + input_.size());
  if (left.empty()) {
    // A stream whose socket is empty too may be still for long; one that goes on needs the room
    // again.
    if (!socket_has_more_ && kept_.capacity() > kMaxIdleBytes) std::vector<std::byte>().swap(kept_);
    return;
  }
  const bool is_kept =
      !kept_.empty() && left.data() >= kept_.data() && left.data() < kept_.data() + kept_.size();
  if (is_kept) return;
  const size_t opened = opened_.size();
  const size_t sealed = input_.size();
  kept_.assign(left.begin(), left.end());
  opened_ = MutableByteSpan(kept_).first(opened);
  input_ = MutableByteSpan(kept_).last(sealed);
}

void TlsRecordStream::OnSaid(TlsRecords::Message said) {
  switch (said) {
    case TlsRecords::Message::kEnd:
      at_end_ = true;
      return;
    case TlsRecords::Message::kIgnored:
      return CountOwnMessage();
    case TlsRecords::Message::kKeyUpdateRequested:
      CountOwnMessage();
      return AddKeyUpdate(/*requests_update=*/false);
    case TlsRecords::Message::kFatalAlert:
      return Fail(TlsAlertError(records_->fatal_alert()));
    case TlsRecords::Message::kWrong:
      return FailRecord();
  }
}

void TlsRecordStream::CountOwnMessage() {
  if (!own_messages_.Count()) Fail(TlsOwnMessages::TooMany());
}

// --- out -----------------------------------------------------------------------------------------

ssize_t TlsRecordStream::Write(const iovec* iovecs, int count) {
  if (ended_) Fail(absl::InternalError("TLS: a write behind the end"));
  if (failed()) {
    errno = EPROTO;
    return -1;
  }
  IovecCursor from(iovecs, count);
  const MutableByteSpan room = scratch_->sealed();
  size_t taken = 0;
  size_t sealed = 0;
  while (from.left() > 0 && taken < kMaxWriteBytes) {
    const size_t bytes = std::min(from.left(), kRecordBytes);
    sealed += records_->Seal(TlsRecords::Kind::kData, &from, bytes, room.data() + sealed);
    taken += bytes;
  }
  output_->SendNow(room.first(sealed));
  return static_cast<ssize_t>(taken);
}

void TlsRecordStream::End() {
  if (failed() || std::exchange(ended_, true)) return;
  AddAlert(TlsRecords::Alert::kCloseNotify);
  Send();
}

void TlsRecordStream::AddAlert(TlsRecords::Alert alert) {
  std::byte record[TlsRecords::kAlertBytes + TlsRecords::kKeyUpdateBytes];
  output_->Add(ByteSpan(record, records_->SealAlert(alert, record)));
}

// Behind the end nobody listens any more.
void TlsRecordStream::AddKeyUpdate(bool requests_update) {
  if (ended_ || failed()) return;
  std::byte record[TlsRecords::kKeyUpdateBytes];
  output_->Add(ByteSpan(record, records_->SealKeyUpdate(requests_update, record)));
}

void TlsRecordStream::Send() {
  if (failed() || output_->Send()) return;
  Fail(absl::ResourceExhaustedError("TLS: the peer asks for more than it reads"));
}

// --- the end -------------------------------------------------------------------------------------

void TlsRecordStream::FailRecord() {
  const TlsRecords::Fault& fault = records_->fault();
  if (!ended_) AddAlert(fault.alert);
  Fail(absl::DataLossError(StrCat("TLS: a record is wrong: ", fault.what)));
}

void TlsRecordStream::Fail(absl::Status why) {
  if (failed()) return;
  (void)output_->Send();  // an alert tells the peer, if there is room for it
  error_ = std::move(why);
  input_ = {};
  opened_ = {};
}

}  // namespace weft
