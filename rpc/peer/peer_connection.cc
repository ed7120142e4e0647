#include "rpc/peer/peer_connection.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/strings.h"
#include "rpc/peer/peer_session.h"

namespace weft {
namespace {

constexpr std::string_view kNobodyCalls = "neither side calls the other any more";
constexpr std::string_view kChannelClosed = "the channel was closed";

}  // namespace

PeerConnection::PeerConnection(PeerSession& session, bool dialed, uint64_t incarnation)
    : session_(session),
      dialed_(dialed),
      mine_(dialed ? Calls::kOpen : Calls::kNone),
      theirs_(dialed ? Calls::kNone : Calls::kOpen),
      peer_(std::make_shared<ServedPeer>(this, session.id(), incarnation)) {}

PeerConnection::~PeerConnection() { peer_->ForgetConnection(); }

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
  if (!WantsToCall() || !is_open_ || closing_ || mine_ == Calls::kEnding) return;
  begin_owed_ = mine_ == Calls::kNone && !TrySendBegin();
  if (begin_owed_) return;
  mine_ = Calls::kOpen;
  begun_ = true;
  calling_->OnOpen(*connection_);
}

bool PeerConnection::TrySendBegin() {
  const std::string hello = session_.CallerHello();
  // Ours: a few numbers (ClientConnection::EncodeHello)
  WEFT_CHECK(hello.size() <= kMaxBeginBytes);
  const absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes + hello.size());
  if (!frame.ok()) return false;
  EncodePeerFrame(PeerFrameKind::kBegin, *frame);
  std::memcpy(*frame + kCallHeaderBytes, hello.data(), hello.size());
  connection_->Commit(kCallHeaderBytes + hello.size());
  connection_->Flush();
  return true;
}

void PeerConnection::EndCalls() {
  begin_owed_ = false;
  if (mine_ == Calls::kOpen) {
    mine_ = Calls::kEnding;
    end_owed_ = !TrySendBehindAll(PeerFrameKind::kEnd);
  } else {
    CloseIfUnused();
  }
}

// An end of the other side that is not answered yet needs no answer then.
void PeerConnection::CloseIfUnused() {
  if (mine_ == Calls::kNone && theirs_ != Calls::kOpen && !WantsToCall()) Close(kNobodyCalls);
}

void PeerConnection::LeaveByClosing() {
  leaves_by_closing_ = true;
  Close(kChannelClosed);
}

void PeerConnection::Leave() {
  calling_ = nullptr;
  begun_ = false;
  if (dialed_ && !is_open_) return Close(kChannelClosed);
  EndCalls();
}

// Large messages overtake nothing: neither small ones nor each other.
bool PeerConnection::TrySendBehindAll(PeerFrameKind kind) {
  const size_t bytes = connection_->eager_bytes() + 1;
  const absl::StatusOr<std::byte*> frame = connection_->Reserve(bytes);
  if (!frame.ok()) return false;
  std::memset(*frame, 0, bytes);
  EncodePeerFrame(kind, *frame);
  connection_->Commit(bytes);
  connection_->Flush();
  return true;
}

void PeerConnection::GiveUp(std::string_view why) {
  if (!leaves_by_closing_) calling_ = nullptr;
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
  if (theirs_ != Calls::kOpen) return ProtocolError("a call of a side that does not call");
  serving_->OnMessage(*connection_, frame);
}

void PeerConnection::OnCallingFrame(ByteSpan frame) {
  if (begun_) return calling_->OnMessage(*connection_, frame);
  // Of calls that are over: the other side has not heard of the end, perhaps.
  if (mine_ != Calls::kEnding) ProtocolError("a reply to a side that does not call");
}

void PeerConnection::OnSessionFrame(ByteSpan frame) {
  ByteSpan hello;
  if (DecodeBegin(frame, &hello)) {
    if (theirs_ != Calls::kNone) return ProtocolError("a begin of calls that have not ended");
    theirs_ = Calls::kOpen;
    serving_ = session_.Serve(*this, AsStringView(hello));
    return;
  }
  if (DecodePeerFrame(PeerFrameKind::kEnd, frame)) {
    if (theirs_ != Calls::kOpen) return ProtocolError("an end of calls that have not begun");
    return OnEnd();
  }
  if (!DecodePeerFrame(PeerFrameKind::kEnded, frame)) {
    return ProtocolError("a begin or an end whose fields disagree");
  }
  if (mine_ != Calls::kEnding || end_owed_) return ProtocolError("an answer to no end");
  mine_ = Calls::kNone;
  BeginCalls();
  CloseIfUnused();
}

// What runs for the other side is cancelled, and its answers go nowhere.
void PeerConnection::OnEnd() {
  peer_->OnHalfEnding();
  session_.EndServing(*this, *std::exchange(serving_, nullptr));
  theirs_ = Calls::kEnding;
  if (closing_) return;
  if (mine_ != Calls::kOpen && !WantsToCall()) return Close(kNobodyCalls);
  AnswerEnd();
}

// The end of their calls, if one is to be answered and can be.
void PeerConnection::AnswerEnd() {
  if (theirs_ != Calls::kEnding || closing_ || !peer_->may_begin_again()) return;
  if (TrySendBehindAll(PeerFrameKind::kEnded)) theirs_ = Calls::kNone;
}

void ServedPeer::OnHalfQuiet() {
  moving_ = false;
  if (connection_ != nullptr) connection_->OnServedLess();
}

void ServedPeer::OnHalfGone() {
  --halves_;
  if (connection_ != nullptr) connection_->OnServedLess();
}

void PeerConnection::OnWritable(Connection& connection) {
  if (begin_owed_) BeginCalls();
  if (end_owed_) end_owed_ = !TrySendBehindAll(PeerFrameKind::kEnd);
  AnswerEnd();
  // Behind an end, this side sends nothing for calls: not even cancels that it owes.
  ConnectionHandler* const calling = begun_ && mine_ == Calls::kOpen ? calling_ : nullptr;
  calling_first_ = !calling_first_;
  if (calling_first_ && calling != nullptr) calling->OnWritable(connection);
  if (serving_ != nullptr) serving_->OnWritable(connection);
  if (!calling_first_ && calling != nullptr && mine_ == Calls::kOpen) {
    calling->OnWritable(connection);
  }
}

void PeerConnection::ProtocolError(std::string_view what) {
  WEFT_LOG_EVERY_N_SEC(kWarning, 1, "closing the session with peer ", session_.id(),
                       ": malformed frame: ", what);
  session_.OnProtocolError();
  Close(StrCat("malformed frame: ", what));
}

}  // namespace weft
