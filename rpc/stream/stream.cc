#include "rpc/stream/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/strings.h"
#include "rpc/stream/stream_connection.h"

namespace weft {
namespace {

// `a` comes before `b`, of numbers that wrap around.
bool IsBefore(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

// Whether as many bytes of credit as are left suffice for a message of `bytes`.
bool Suffices(int64_t left, size_t bytes, uint32_t window_bytes) {
  return left >= static_cast<int64_t>(bytes) || left >= window_bytes / 2;
}

WEFT_COLD void FailTooLarge(StreamOwner& owner, size_t bytes, uint64_t most) {
  owner.Fail(absl::ResourceExhaustedError(
      StrCat("a message has ", bytes, " bytes; the peer takes at most ", most)));
}

WEFT_COLD void FailIncomplete(StreamOwner& owner, const google::protobuf::MessageLite& message) {
  owner.Fail(absl::InvalidArgumentError(StrCat("a message lacks required fields of ",
                                               std::string(message.GetTypeName()), ": ",
                                               message.InitializationErrorString())));
}

WEFT_COLD void FailUndecoded(StreamOwner& owner, size_t bytes,
                             const google::protobuf::MessageLite& to) {
  owner.Fail(absl::DataLossError(StrCat("a message of ", bytes, " bytes cannot be decoded as ",
                                        std::string(to.GetTypeName()))));
}

}  // namespace

// --- for its owner ------------------------------------------------------------------------------

void Stream::Reset() {
  WEFT_DCHECK(quiet());  // Ours: callers have looked
  id_ = {};
  send_ = Send::kOpening;
  receive_ = Receive::kKept;
  owes_ = credit_owed_ = last_owed_ = total_known_ = tell_quiet_ = false;
  may_send_ = may_receive_ = unreturned_ = {};
  sent_ = received_ = total_ = 0;
  write_bytes_ = read_bytes_ = 0;
  ready_.Clear();
  ahead_.Clear();
  ready_.Trim(kKeepBytes);
  ahead_.Trim(0);
}

void Stream::Open(StreamConnection& connection, CallId id, bool is_client, bool waits,
                  Priority priority) {
  connection_ = &connection;
  id_ = id;
  priority_ = priority;
  is_client_ = is_client;
  const auto all_of = [](StreamWindow window) { return Credit{window.messages, window.bytes}; };
  may_send_ = waits && is_client ? Credit() : all_of(connection.peers());
  may_receive_ = waits && !is_client ? Credit() : all_of(connection.mine());
  if (send_ == Send::kOpening) send_ = Send::kOpen;
}

void Stream::GrantAll() {
  unreturned_ = {connection_->mine().messages, connection_->mine().bytes};
  credit_owed_ = true;
  TrySend();
}

void Stream::CloseWrites() {
  send_ = Send::kDone;
  last_owed_ = false;
  if (write_ == Waiting::kWaits) EndWrite(false);
}

void Stream::StopReads(Receive how) {
  if (receive_ == Receive::kKept) {
    while (!ready_.empty()) {
      const size_t bytes = ready_.front().size();
      ready_.PopFront();
      LetGo(bytes);
      if (how == Receive::kDropped) Return(1, bytes);
    }
    // Of those ahead the numbers stay.
    for (size_t left = ahead_.count(); left > 0; --left) {
      const size_t bytes = ahead_.front().size();
      ahead_.PushBack(ahead_.front_number(), {});
      ahead_.PopFront();
      LetGo(bytes);
      if (how == Receive::kDropped) Return(0, bytes);
    }
    if (read_ == Waiting::kWaits) EndRead(false);
  }
  receive_ = std::max(receive_, how);
}

void Stream::EndReads() {
  total_ = received_;
  total_known_ = true;
  if (read_ == Waiting::kWaits && ready_.empty()) EndRead(false);
}

void Stream::Disconnect() {
  if (connection_ == nullptr) return;
  connection_->LetGo(held_bytes_);
  held_bytes_ = 0;
  ahead_.Clear();
  ahead_.Trim(0);
  ready_.Trim(kKeepBytes);
  connection_->StopWaiting(*this);
  connection_ = nullptr;
  owes_ = credit_owed_ = last_owed_ = false;
}

bool Stream::quiet() {
  const bool quiet = !busy_ && !posted() && read_ != Waiting::kDue && write_ != Waiting::kDue &&
                     !IntrusiveList<Stream>::IsLinked(this);
  tell_quiet_ = !quiet;
  return quiet;
}

void Stream::EndPosted() {
  posted_.fetch_sub(1, std::memory_order_relaxed);
  if (tell_quiet_ && quiet()) owner_.OnQuiet();
}

void Stream::Flush() {
  if (connection_ != nullptr && connection_->connection() != nullptr) {
    connection_->connection()->Flush();
  }
}

// It may read again.
WEFT_INLINE void Stream::RunOnRead() {
  Function<void(bool)>& done = *on_read_;
  std::swap(on_read_, other_on_read_);
  read_ = Waiting::kNobody;
  done(read_ok_);
  done = nullptr;
}

void Stream::RunDue() {
  for (int rounds = kMostInARow; read_ == Waiting::kDue || write_ == Waiting::kDue; --rounds) {
    if (rounds == 0) [[unlikely]] {
      busy_ = false;
      return RunCallbacksLater();
    }
    if (read_ == Waiting::kDue) RunOnRead();
    if (write_ == Waiting::kDue) {
      write_ = Waiting::kNobody;
      Function<void(bool)> done = std::move(on_write_);
      if (done) done(write_ok_);
    }
  }
  busy_ = false;
  if (tell_quiet_ && quiet()) owner_.OnQuiet();
}

void Stream::EndBusy(bool outermost) {
  if (outermost) RunDue();
}

void Stream::RunCallbacks() { EndBusy(SetBusy()); }

void Stream::RunCallbacksLater() {
  if (busy_ || (read_ != Waiting::kDue && write_ != Waiting::kDue)) return;
  if (!IntrusiveList<Stream>::IsLinked(this)) early_ends_.Add(*this);
}

WEFT_COLD void Stream::FailBlocked() {
  owner_.Fail(absl::FailedPreconditionError(
      "a blocking read or write inside a callback of its own engine would wait for itself: use "
      "the form with a callback, or run the handler on an executor"));
}

// --- sending ------------------------------------------------------------------------------------

WEFT_INLINE bool Stream::MaySend(size_t bytes) const {
  return may_send_.messages > 0 && Suffices(may_send_.bytes, bytes, connection_->peers().bytes);
}

// Nobody waits for room who must not be overtaken.
WEFT_INLINE bool Stream::HasRoom() const {
  return connection_->is_clear() || connection_->MayPass(*this);
}

// Room for a message, which is counted as sent. Null: the connection has none.
WEFT_INLINE std::byte* Stream::AppendData(size_t bytes, bool last) {
  const MessageSpace frame = connection_->connection()->Append(kCallHeaderBytes + bytes);
  if (frame.data == nullptr) [[unlikely]]
    return nullptr;
  // What says that a server's was the last is its end.
  const uint16_t flags = last && is_client_ ? kLastMessage : 0;
  EncodeData(id_, flags, sent_++, /*to_opener=*/!is_client_, frame.data);
  --may_send_.messages;
  may_send_.bytes -= static_cast<int64_t>(bytes);
  if (last) send_ = Send::kDone;
  return frame.data + kCallHeaderBytes;
}

StreamResult Stream::TryWrite(const google::protobuf::MessageLite& message, bool last) {
  WEFT_CHECK(write_ != Waiting::kWaits);  // User: one at a time
  if (send_ == Send::kDone || last_owed_) return StreamResult::kOver;
  if (!message.IsInitialized()) [[unlikely]] {
    FailIncomplete(owner_, message);
    return StreamResult::kOver;
  }
  const size_t bytes = message.ByteSizeLong();
  write_bytes_ = bytes;
  if (send_ == Send::kOpening) [[unlikely]]
    return StreamResult::kNotYet;
  if (bytes > connection_->max_message_bytes()) [[unlikely]] {
    FailTooLarge(owner_, bytes, connection_->max_message_bytes());
    return StreamResult::kOver;
  }
  if (!MaySend(bytes) || !HasRoom()) return StreamResult::kNotYet;
  std::byte* const to = AppendData(bytes, last);
  if (to == nullptr) [[unlikely]]
    return StreamResult::kNotYet;
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to));
  return StreamResult::kDone;
}

void Stream::BeginWrite(size_t bytes, bool last, Function<void(bool)>&& done) {
  WEFT_CHECK(write_ == Waiting::kNobody);  // User: one at a time
  write_ = Waiting::kWaits;
  write_bytes_ = bytes;
  write_last_ = last;
  on_write_.TakeFrom(done);
}

void Stream::EndWrite(bool ok) {
  write_message_ = nullptr;
  write_encoded_ = nullptr;
  write_ok_ = ok;
  write_ = Waiting::kDue;
}

void Stream::Write(const google::protobuf::MessageLite& message, bool last,
                   Function<void(bool)>&& done) {
  const bool outermost = SetBusy();
  const StreamResult result = TryWrite(message, last);
  BeginWrite(write_bytes_, last, std::move(done));
  if (result == StreamResult::kNotYet) {
    write_message_ = &message;
    TrySend();
  } else {
    EndWrite(result == StreamResult::kDone);
  }
  if (outermost) EndBusyLater();
}

void Stream::WriteEncoded(std::string_view message, bool last) {
  if (send_ == Send::kDone) return;
  BeginWrite(message.size(), last, nullptr);
  write_encoded_ = message.data();
  TrySend();
}

void Stream::WhenWritable(Function<void(bool)> done) {
  BeginWrite(write_bytes_, false, std::move(done));
  if (send_ == Send::kDone || last_owed_) {
    EndWrite(false);
    return RunCallbacksLater();
  }
  TrySend();
}

void Stream::WritesDone() {
  if (send_ == Send::kDone || last_owed_) return;
  last_owed_ = true;
  TrySend();
}

void Stream::OweUrgently() {
  if (connection_ != nullptr) connection_->StopWaiting(*this);
  priority_ = Priority::kControl;
  Owe();
}

void Stream::TrySend() {
  if (connection_ == nullptr || connection_->connection() == nullptr) return;
  const bool outermost = SetBusy();
  if (!HasRoom() || !SendWhatIsDue()) connection_->Wait(*this);
  if (outermost) EndBusyLater();
}

// In a function that the owner of a callback has called.
void Stream::EndBusyLater() {
  busy_ = false;
  RunCallbacksLater();
  if (tell_quiet_ && quiet()) owner_.OnQuiet();
}

bool Stream::SendWhatIsDue() {
  const bool outermost = SetBusy();
  const bool sent = [this] {
    if (credit_owed_ && !SendCredit()) return false;
    if (write_ == Waiting::kWaits && send_ == Send::kOpen && MaySend(write_bytes_) &&
        !SendWaiting()) {
      return false;
    }
    if (last_owed_ && send_ == Send::kOpen && write_ != Waiting::kWaits && !SendLast()) {
      return false;
    }
    if (owes_ && connection_ != nullptr) {
      if (!owner_.SendOwed()) return false;
      owes_ = false;
    }
    return true;
  }();
  EndBusy(outermost);
  return sent;
}

// The write that waits, which has the credit. False: there is no room.
bool Stream::SendWaiting() {
  if (write_message_ != nullptr || write_encoded_ != nullptr) {
    if (write_bytes_ > connection_->max_message_bytes()) {
      FailTooLarge(owner_, write_bytes_, connection_->max_message_bytes());
      return true;
    }
    std::byte* const to = AppendData(write_bytes_, write_last_);
    if (to == nullptr) return false;
    if (write_message_ != nullptr) {
      write_message_->SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to));
    } else if (write_bytes_ > 0) {
      std::memcpy(to, write_encoded_, write_bytes_);
    }
  } else {
    // One that is refused makes OnWritable() come.
    if (!connection_->connection()->Reserve(kCallHeaderBytes + write_bytes_).ok()) return false;
    connection_->connection()->Abandon();
    connection_->GiveTurn(*this);  // for one message, whoever else waits
  }
  EndWrite(true);
  return true;
}

bool Stream::SendLast() {
  const MessageSpace frame = connection_->connection()->Append(kCallHeaderBytes);
  if (frame.data == nullptr) return false;
  EncodeData(id_, kLastMessage | kNoMessage, sent_, /*to_opener=*/!is_client_, frame.data);
  send_ = Send::kDone;
  last_owed_ = false;
  return true;
}

bool Stream::SendCredit() {
  const MessageSpace frame = connection_->connection()->Append(kCallHeaderBytes);
  if (frame.data == nullptr) return false;
  EncodeCredit(
      {id_, static_cast<uint16_t>(unreturned_.messages), static_cast<uint32_t>(unreturned_.bytes)},
      /*to_opener=*/!is_client_, frame.data);
  may_receive_.messages += unreturned_.messages;
  may_receive_.bytes += unreturned_.bytes;
  unreturned_ = {};
  credit_owed_ = false;
  return true;
}

const char* Stream::OnCredit(const CreditHeader& header) {
  const StreamWindow most = connection_->peers();
  if (header.messages > most.messages - may_send_.messages ||
      header.bytes > int64_t{most.bytes} - may_send_.bytes) {
    return "more credit than the stream's window";
  }
  may_send_.messages += header.messages;
  may_send_.bytes += header.bytes;
  if (write_ == Waiting::kWaits) {
    const bool outermost = SetBusy();
    TrySend();
    EndBusy(outermost);
  }
  return nullptr;
}

// --- receiving ----------------------------------------------------------------------------------

WEFT_INLINE void Stream::Hold(size_t bytes) {
  connection_->Hold(bytes);
  held_bytes_ += bytes;
}

WEFT_INLINE void Stream::LetGo(size_t bytes) {
  if (connection_ == nullptr) return;  // Disconnect() has done it
  connection_->LetGo(bytes);
  held_bytes_ -= bytes;
}

// The peer's credit suffices for a message of so many bytes, with `missing` others that it has sent
// before and that have not come.
WEFT_INLINE bool Stream::IsCovered(size_t bytes, uint32_t missing) const {
  return missing < may_receive_.messages &&
         Suffices(may_receive_.bytes, bytes, connection_->mine().bytes);
}

WEFT_INLINE void Stream::TakeCredit(size_t bytes) {
  --may_receive_.messages;
  may_receive_.bytes -= static_cast<int64_t>(bytes);
}

const char* Stream::SetTotal(uint32_t messages) {
  const uint32_t missing = messages - received_ - static_cast<uint32_t>(ahead_.count());
  if (total_known_ || IsBefore(messages, received_) || missing > may_receive_.messages ||
      (!ahead_.empty() && IsBefore(messages, behind_ahead_))) {
    return "a number of messages that cannot be";
  }
  total_ = messages;
  total_known_ = true;
  return nullptr;
}

const char* Stream::OnData(uint32_t number, bool last, ByteSpan message) {
  if (number != received_) [[unlikely]]
    return OnAhead(number, last, message);
  if (all_received()) [[unlikely]]
    return "a message behind the last";
  if (!IsCovered(message.size(), 0)) [[unlikely]]
    return "a message without credit";
  if (last) [[unlikely]] {
    if (const char* wrong = SetTotal(number + 1)) return wrong;
  }
  TakeCredit(message.size());
  ++received_;
  const bool outermost = SetBusy();
  Deliver(message);
  if (!ahead_.empty() || total_known_) [[unlikely]]
    AfterReceive();
  if (!outermost) [[unlikely]]
    return nullptr;
  if (read_ == Waiting::kDue) [[likely]]
    RunOnRead();
  if (read_ == Waiting::kDue || write_ == Waiting::kDue || tell_quiet_) [[unlikely]] {
    RunDue();
  } else {
    busy_ = false;
  }
  return nullptr;
}

const char* Stream::OnHalfClose(uint32_t messages) {
  if (const char* wrong = SetTotal(messages)) return wrong;
  const bool outermost = SetBusy();
  AfterReceive();
  EndBusy(outermost);
  return nullptr;
}

// One that has overtaken others. Those come in order among themselves.
WEFT_COLD const char* Stream::OnAhead(uint32_t number, bool last, ByteSpan message) {
  if (IsBefore(number, received_) || (!ahead_.empty() && IsBefore(number, behind_ahead_)) ||
      (total_known_ && !IsBefore(number, total_))) {
    return "a message out of order";
  }
  const uint32_t missing = number - received_ - static_cast<uint32_t>(ahead_.count());
  if (!IsCovered(message.size(), missing)) return "a message without credit";
  if (last) {
    if (const char* wrong = SetTotal(number + 1)) return wrong;
  }
  TakeCredit(message.size());
  const bool outermost = SetBusy();
  if (receive_ == Receive::kKept && !MayKeep(message.size())) FailForBytes(message.size());
  if (receive_ == Receive::kKept) {
    Hold(message.size());
  } else {
    // The credit of a message itself is returned when those before it have come: it bounds how
    // many numbers are kept.
    if (receive_ == Receive::kDropped) Return(0, message.size());
    message = {};
  }
  if (connection_ != nullptr) {
    ahead_.PushBack(number, message);
    behind_ahead_ = number + 1;
  }
  EndBusy(outermost);
  return nullptr;
}

bool Stream::MayKeep(size_t bytes) const {
  return bytes <= connection_->most_message_bytes() && connection_->MayHold(bytes);
}

// REQUIRES: !MayKeep(bytes).
WEFT_COLD void Stream::FailForBytes(size_t bytes) {
  const uint64_t most = connection_->most_message_bytes();
  if (bytes <= most) {
    return owner_.Fail(absl::ResourceExhaustedError(
        "too many bytes of messages and requests wait at the receiver"));
  }
  owner_.Fail(absl::ResourceExhaustedError(
      StrCat("a message has ", bytes, " bytes; the receiver takes at most ", most)));
}

WEFT_INLINE bool Stream::IsParsed(ByteSpan message, google::protobuf::MessageLite* to) {
  if (to->ParsePartialFromArray(message.data(), static_cast<int>(message.size())) &&
      to->IsInitialized()) [[likely]] {
    return true;
  }
  FailUndecoded(owner_, message.size(), *to);
  return false;
}

// The reader is done with so much, or it was dropped.
WEFT_INLINE void Stream::Return(uint32_t messages, size_t bytes) {
  unreturned_.messages += messages;
  unreturned_.bytes += static_cast<int64_t>(bytes);
  if (connection_ == nullptr) [[unlikely]]
    return;
  const StreamWindow enough = connection_->return_at();
  if (unreturned_.messages >= enough.messages || unreturned_.bytes >= enough.bytes) [[unlikely]]
    ReturnNow();
}

WEFT_COLD void Stream::ReturnNow() {
  // The peer needs none, or is to send no more.
  if (total_known_ || receive_ == Receive::kIgnored) return;
  credit_owed_ = true;
  TrySend();
}

// A message that is the next in order.
WEFT_INLINE void Stream::Deliver(ByteSpan message) {
  if (read_ != Waiting::kWaits || message.size() > connection_->most_message_bytes()) [[unlikely]]
    return Keep(message);
  read_ = Waiting::kDue;  // if it fails, too
  read_bytes_ = message.size();
  read_ok_ = IsParsed(message, read_to_);
  Return(1, message.size());
}

// The same, for a reader who comes later, if one may come.
void Stream::Keep(ByteSpan message) {
  if (receive_ != Receive::kKept) {
    if (receive_ == Receive::kDropped) Return(1, message.size());
    return;
  }
  if (!MayKeep(message.size())) return FailForBytes(message.size());
  Hold(message.size());
  ready_.PushBack(0, message);
}

void Stream::EndRead(bool ok) {
  read_ok_ = ok;
  read_ = Waiting::kDue;
}

// Behind a message: those that had overtaken it, and the end.
void Stream::AfterReceive() {
  while (!ahead_.empty() && ahead_.front_number() == received_) {
    ++received_;
    const ByteSpan message = ahead_.front();  // there until the next PushBack()
    ahead_.PopFront();
    if (receive_ == Receive::kKept) {
      LetGo(message.size());
      if (read_ == Waiting::kWaits) {
        Deliver(message);
      } else {  // in the room that it has had, whatever others have taken since
        Hold(message.size());
        ready_.PushBack(0, message);
      }
    } else if (receive_ == Receive::kDropped) {
      Return(1, 0);
    }
  }
  if (!all_received()) [[likely]]
    return;
  if (read_ == Waiting::kWaits && ready_.empty()) EndRead(false);
  owner_.OnAllReceived();
}

StreamResult Stream::TryRead(google::protobuf::MessageLite* to) {
  WEFT_CHECK(read_ != Waiting::kWaits);  // User: one at a time
  if (!ready_.empty()) {
    const bool outermost = SetBusy();
    const size_t bytes = ready_.front().size();
    const bool parsed = IsParsed(ready_.front(), to);
    // What has failed has dropped the queue.
    if (!ready_.empty()) {
      ready_.PopFront();
      LetGo(bytes);
      Return(1, bytes);
    }
    // Twice the window is what it grows to by doubling; more was for one large message.
    if (connection_ != nullptr) ready_.Trim(2 * size_t{connection_->mine().bytes});
    read_bytes_ = bytes;
    if (outermost) EndBusyLater();
    return parsed ? StreamResult::kDone : StreamResult::kOver;
  }
  return MayCome() ? StreamResult::kNotYet : StreamResult::kOver;
}

// The read that waits need not: there is a message, or there will be none.
void Stream::ReadAtOnce() {
  const bool outermost = SetBusy();
  read_ = Waiting::kNobody;
  EndRead(TryRead(read_to_) == StreamResult::kDone);
  if (outermost) EndBusyLater();
}

void Stream::CheckInvariants() const {
  if (connection_ == nullptr || send_ == Send::kOpening) return;
  const StreamWindow mine = connection_->mine();
  const StreamWindow peers = connection_->peers();
  const StreamWindow enough = connection_->return_at();
  // Ours: invariants, which tests ask for
  WEFT_CHECK(may_send_.messages <= peers.messages && may_send_.bytes <= int64_t{peers.bytes});
  WEFT_CHECK(may_receive_.messages <= mine.messages && may_receive_.bytes <= int64_t{mine.bytes});
  // Each message of the window is to be sent, or waits here, or is to be returned.
  if (receive_ == Receive::kKept && !total_known_) {
    // Ours: invariants, which tests ask for
    WEFT_CHECK(may_receive_.messages + unreturned_.messages + ready_.count() + ahead_.count() ==
               mine.messages);
    WEFT_CHECK(credit_owed_ ||
               (unreturned_.messages < enough.messages && unreturned_.bytes < enough.bytes));
  }
  // Ours: invariants, which tests ask for
  WEFT_CHECK(ahead_.empty() || IsBefore(received_, behind_ahead_));
}

}  // namespace weft
