#include "rpc/peer/peer_connection.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/strings.h"
#include "rpc/peer/peer_session.h"
#include "rpc/wire/peer_frame.h"

namespace weft {

PeerConnection::PeerConnection(PeerSession& session, bool dialed, uint64_t incarnation)
    : session_(session),
      dialed_(dialed),
      mine_(dialed ? Calls::kOpen : Calls::kNone),
      theirs_(dialed ? Calls::kNone : Calls::kOpen),
      incarnation_(incarnation) {}

void PeerConnection::Start(Connection& connection, ConnectionHandler* serving) {
  connection_ = &connection;
  serving_ = serving;
}

void PeerConnection::OnOpen(Connection& connection) {
  if (closing_) return;
  is_open_ = true;
  if (serving_ != nullptr) serving_->OnOpen(connection);
  // Whose hello is refused takes nobody's place.
  if (connection.state() != Connection::State::kOpen) return;
  session_.OnOpen(*this);
}

void PeerConnection::OnClosed(Connection& connection, const absl::Status& why) {
  closing_ = true;
  if (serving_ != nullptr) serving_->OnClosed(connection, why);
  // For who calls, a connection that the session has closed, or the half that serves, is lost.
  session_.OnClosed(*this, calling_,
                    absl::IsCancelled(why) ? absl::UnavailableError(why.message()) : why);
  delete this;
}

// --- the calls of this side ---------------------------------------------------------------------

void PeerConnection::BeginCalls() {
  if (begun_ || !is_open_ || calling_ == nullptr || closing_ || mine_ == Calls::kOver) return;
  begin_owed_ = !dialed_ && !TrySendBegin();
  if (begin_owed_) return;
  mine_ = Calls::kOpen;
  begun_ = true;
  calling_->OnOpen(*connection_);
}

bool PeerConnection::TrySendBegin() {
  const std::string hello = session_.CallerHello();
  WEFT_CHECK(hello.size() <= kMaxBeginBytes);
  const absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes + hello.size());
  if (!frame.ok()) return false;
  EncodePeerFrame(PeerFrameKind::kBegin, *frame);
  std::memcpy(*frame + kCallHeaderBytes, hello.data(), hello.size());
  connection_->Commit(kCallHeaderBytes + hello.size());
  connection_->Flush();
  return true;
}

void PeerConnection::EndCalls(bool deaf) {
  deaf_ = deaf_ || deaf;
  begin_owed_ = false;
  const Calls before = std::exchange(mine_, Calls::kOver);
  if (theirs_ != Calls::kOpen) return Close("neither side calls the other any more");
  if (before == Calls::kOpen) end_owed_ = !TrySendEnd();
}

bool PeerConnection::TrySendEnd() {
  const absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes);
  if (!frame.ok()) return false;
  EncodePeerFrame(PeerFrameKind::kEnd, *frame);
  connection_->Commit(kCallHeaderBytes);
  connection_->Flush();
  return true;
}

void PeerConnection::GiveUp(std::string_view why) {
  // But for a channel that is gone for the program: it stays until it hears the end.
  if (!deaf_) calling_ = nullptr;
  Close(why);
}

void PeerConnection::Close(std::string_view why) {
  if (std::exchange(closing_, true)) return;
  connection_->Close(why);
}

// --- frames -------------------------------------------------------------------------------------

void PeerConnection::OnMessage(Connection&, ByteSpan message) {
  switch (PeerHalfOf(CallFrameKindOf(message))) {
    case PeerHalf::kServing:
      return OnServingFrame(message);
    case PeerHalf::kCalling:
      return OnCallingFrame(message);
    case PeerHalf::kSession:
      return OnSessionFrame(message);
    case PeerHalf::kNone:
      return ProtocolError("of no kind that peers send");
  }
}

void PeerConnection::OnServingFrame(ByteSpan frame) {
  if (theirs_ == Calls::kNone) return ProtocolError("a call of a side that does not call");
  // A large request may be overtaken by the end. Nobody waits for it.
  if (theirs_ == Calls::kOver) return;
  serving_->OnMessage(*connection_, frame);
}

void PeerConnection::OnCallingFrame(ByteSpan frame) {
  if (!begun_) return ProtocolError("a reply to a side that does not call");
  if (!deaf_) calling_->OnMessage(*connection_, frame);
}

void PeerConnection::OnSessionFrame(ByteSpan frame) {
  ByteSpan hello;
  if (DecodeBegin(frame, &hello)) {
    if (theirs_ != Calls::kNone) return ProtocolError("a second begin");
    theirs_ = Calls::kOpen;
    serving_ = session_.Serve(*connection_, AsStringView(hello));
    return;
  }
  if (!DecodePeerEnd(frame)) return ProtocolError("a begin or an end whose fields disagree");
  if (theirs_ != Calls::kOpen) return ProtocolError("an end of calls that have not begun");
  theirs_ = Calls::kOver;
  session_.EndServing(*serving_);
  if (mine_ != Calls::kOpen && !begin_owed_) Close("neither side calls the other any more");
}

void PeerConnection::OnWritable(Connection& connection) {
  if (begin_owed_) BeginCalls();
  if (end_owed_) end_owed_ = !TrySendEnd();
  ConnectionHandler* const calling = begun_ && !deaf_ ? calling_ : nullptr;
  calling_first_ = !calling_first_;
  if (calling_first_ && calling != nullptr) calling->OnWritable(connection);
  if (serving_ != nullptr) serving_->OnWritable(connection);
  if (!calling_first_ && calling != nullptr && !deaf_) calling->OnWritable(connection);
}

void PeerConnection::ProtocolError(std::string_view what) {
  WEFT_LOG(kWarning, "closing the session with peer ", session_.id(), ": malformed frame: ", what);
  session_.OnProtocolError();
  Close(StrCat("malformed frame: ", what));
}

}  // namespace weft
