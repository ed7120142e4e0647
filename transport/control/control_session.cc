#include "transport/control/control_session.h"

#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/control/socket.h"

namespace weft {
namespace {

static_assert(kMaxGrantBodyBytes == kMaxGrantBytes);

uint32_t RandomToken() { return static_cast<uint32_t>(SecureRandom64()); }

}  // namespace

ControlSession::ControlSession(ControlContext* context)
    : context_(context), alarm_(this), watch_(static_cast<PeerWatch::Host*>(this)) {
  context->members.PushBack(this);
}

ControlSession::~ControlSession() { WEFT_CHECK(connection_ == nullptr); }

absl::Status ControlSession::CreateConnection(ConnectionHandler* handler,
                                              const LinkOptions& options) {
  link_options_ = options;
  const FramedConnection::Options framed{RandomToken(), options.max_outstanding_operations};
  WEFT_ASSIGN_OR_RETURN(
      connection_, FramedConnection::Create(context_->table, static_cast<ConnectionOwner*>(this),
                                            handler, framed));
  return absl::OkStatus();
}

absl::Status ControlSession::TakeSocket(Descriptor descriptor, bool dialing) {
  socket_ = std::make_unique<ControlSocket>(std::move(descriptor), context_->engine.poller,
                                            static_cast<ControlSocketHandler*>(this));
  absl::Status status = socket_->Start(dialing);
  if (!status.ok()) socket_.reset();
  return status;
}

// --- what wakes a session ------------------------------------------------------------------------

void ControlSession::Wake() {
  if (stage_ != Stage::kRetired && !context_->ready.IsLinked(this)) context_->ready.PushBack(this);
}

void ControlSession::SetAlarm(uint64_t deadline_ns) {
  alarm_rang_ = false;
  context_->engine.timers->Schedule(&alarm_, deadline_ns);
}

void ControlSession::Alarm::OnTimer() {
  session->alarm_rang_ = true;
  session->Wake();
}

void ControlSession::OnControlActivity() {
  if (stage_ == Stage::kHandshake) OnActivity();
  if (stage_ == Stage::kOpen || stage_ == Stage::kBroken) {
    if (std::exchange(heard_bytes_, socket_->received_bytes()) != socket_->received_bytes()) {
      watch_.OnHeard();
    }
    HearLifeline();
  }
  if (lifeline_gone() && !bye_heard_ && connection_ != nullptr) connection_->AbandonLink();
  Wake();
}

// Frames of an open connection, without any callback to its user.
void ControlSession::HearLifeline() {
  ControlFrame frame;
  while (!bye_heard_ && socket_->Receive(&frame)) {
    if (frame.type == ControlType::kGrant) {
      flooded_ = flooded_ || !grants_.Push(frame.body);
      continue;
    }
    flooded_ = flooded_ || !watch_.OnFrame();
    if (frame.type == ControlType::kPathTry || frame.type == ControlType::kPathFailed) {
      crossed_ = true;
    }
    if (frame.type != ControlType::kBye) continue;
    bye_heard_ = true;
    absl::StatusOr<std::string> reason = DecodeBye(frame.body);
    bye_reason_ = reason.ok() ? *std::move(reason) : "(no reason)";
  }
}

// What users are told may close the connection, which ends it later.
void ControlSession::DeliverGrants() {
  for (int count = 0; count < GrantQueue::kPerTurn && !grants_.empty(); ++count) {
    connection_->OnGrant(grants_.Pop());
  }
  if (!grants_.empty()) Wake();
}

void ControlSession::SendGrant(FramedConnection&, ByteSpan grant) {
  if (stage_ == Stage::kOpen) socket_->Send(ControlType::kGrant, grant);
}

// --- running -------------------------------------------------------------------------------------

void ControlSession::Run() {
  switch (stage_) {
    case Stage::kHandshake:
      return RunHandshake();
    case Stage::kOpen:
    case Stage::kBroken:
      return RunOpen();
    case Stage::kEnding:
      return RunEnding();
    case Stage::kRetired:
      return;
  }
}

void ControlSession::RunHandshake() {
  if (std::exchange(alarm_rang_, false)) OnHandshakeAlarm();
  if (stage_ == Stage::kHandshake) Advance();
  ControlFrame frame;
  while (stage_ == Stage::kHandshake && connected() && socket_->Receive(&frame)) {
    if (frame.type == ControlType::kBye) {
      const absl::StatusOr<std::string> reason = DecodeBye(frame.body);
      return Finish(absl::UnavailableError(StrCat(
                        "peer closed: ", reason.ok() ? *reason : std::string("(no reason)"))),
                    /*peer_dead=*/false, std::nullopt);
    }
    const absl::Status status = OnFrame(frame);
    if (!status.ok()) return Fail(status);
  }
  if (stage_ == Stage::kOpen) return RunOpen();
  if (stage_ != Stage::kHandshake || !connected() || socket_->ended().ok()) return;
  const absl::Status why = Annotate(socket_->ended(), "during the handshake");
  if (socket_->gone()) return Finish(why, /*peer_dead=*/true, std::nullopt);
  OnProtocolError(why);
}

void ControlSession::RunOpen() {
  HearLifeline();
  DeliverGrants();
  if (bye_heard_) {
    return Finish(absl::UnavailableError(StrCat("peer closed: ", bye_reason_)),
                  /*peer_dead=*/false, std::nullopt);
  }
  const absl::Status& ended = socket_->ended();
  if (socket_->gone()) {
    return Finish(absl::UnavailableError(StrCat("peer process ended or its host is unreachable (",
                                                ToStd(ended.message()), ")")),
                  /*peer_dead=*/true, std::nullopt);
  }
  if (!ended.ok()) return Fail(ended);
  if (silent_) return FailSilentPeer();
  if (flooded_) return Fail(absl::DataLossError("the peer floods its control connection"));
  if (crossed_) {
    return Fail(absl::UnavailableError("the peer gave this path up at the moment it came up"));
  }
  if (stage_ == Stage::kBroken && std::exchange(alarm_rang_, false)) {
    Fail(Annotate(broken_, "the path broke"));
  }
}

void ControlSession::RunEnding() {
  if (std::exchange(alarm_rang_, false) || socket_ == nullptr || socket_->gone()) Retire();
}

void ControlSession::Shutdown() {
  Finish(absl::CancelledError("the engine ends"), /*peer_dead=*/false,
         LastWords{ControlType::kBye, EncodeBye("its engine ends")});
  if (stage_ != Stage::kRetired) Retire();
}

// --- paths ---------------------------------------------------------------------------------------

absl::Status ControlSession::StartLink(size_t candidate, FramingDomain* domain,
                                       const LinkPeer& peer, bool active,
                                       const LinkAgreement& agreement) {
  WEFT_RETURN_IF_ERROR(connection_->StartLink(domain, peer, active, agreement));
  PathInfo& path = connection_->facts().path;
  path = domain->links().path();
  path.link = Candidate(candidate)->link;
  path.peer = Printable(peer.address);
  return absl::OkStatus();
}

PathCandidate* ControlSession::Candidate(size_t index) {
  if (connection_ == nullptr || index >= connection_->facts().candidates.size()) return nullptr;
  return &connection_->facts().candidates[index];
}

void ControlSession::Reject(PathCandidate* candidate, std::string reason) {
  WEFT_LOG(kInfo, "path ", CandidateName(*candidate), " rejected: ", reason);
  candidate->outcome = PathCandidate::Outcome::kRejected;
  candidate->reason = std::move(reason);
}

void ControlSession::Opened(size_t index, const std::string& chosen_reason,
                            const ControlLimits& peer) {
  PathCandidate& chosen = *Candidate(index);
  chosen.outcome = PathCandidate::Outcome::kChosen;
  chosen.reason = chosen_reason;
  const std::string name = CandidateName(chosen);
  for (PathCandidate& candidate : connection_->facts().candidates) {
    if (candidate.outcome == PathCandidate::Outcome::kNotTried) {
      candidate.reason = StrCat(name, " comes before it and works");
    }
  }
  WEFT_LOG(kInfo, "path ", name, " chosen: ", chosen_reason);
  context_->paths->Count(connection_->facts().candidates);
  context_->engine.timers->Cancel(&alarm_);
  alarm_rang_ = false;
  stage_ = Stage::kOpen;
  neighbour_.CloseDescriptors();
  StartWatch(peer);
  connection_->Open();
}

void ControlSession::OnLinkUp(FramedConnection&) { OnPathUp(); }

void ControlSession::OnBroken(FramedConnection&, const absl::Status& why) {
  if (stage_ == Stage::kHandshake) return OnPathBroken(why);
  if (!absl::IsUnavailable(why)) return Fail(why);
  stage_ = Stage::kBroken;
  broken_ = why;
  SetAlarm(context_->now_ns() + kReasonNs);
  Wake();
}

void ControlSession::OnCloseRequested(FramedConnection&, std::string_view why) {
  const LastWords bye{ControlType::kBye, EncodeBye(why)};
  Finish(absl::CancelledError(StrCat("closed by this side: ", why)), /*peer_dead=*/false, bye);
}

// --- the peer's life -----------------------------------------------------------------------------

ControlLimits ControlSession::OwnLimits() const {
  ControlLimits limits;
  limits.window_slots = link_options_.window_slots;
  limits.max_outstanding_operations = link_options_.max_outstanding_operations;
  limits.peer_timeout_ns = link_options_.peer_timeout_ns;
  limits.heartbeats = context_->engine.drives_itself;
  return limits;
}

void ControlSession::StartWatch(const ControlLimits& peer) {
  if (link_options_.peer_timeout_ns != 0) SetSilence(socket_->fd(), link_options_.peer_timeout_ns);
  heard_bytes_ = socket_->received_bytes();
  watch_.Start(context_->engine.timers, context_->engine.clock,
               {link_options_.peer_timeout_ns, peer.peer_timeout_ns, peer.heartbeats});
}

void ControlSession::SendHeartbeat() { socket_->SendIgnorable(ControlType::kHeartbeat); }

bool ControlSession::HasUnread() { return socket_->HasUnread(); }

void ControlSession::OnPeerSilent() {
  silent_ = true;
  connection_->AbandonLink();
  Wake();
}

void ControlSession::FailSilentPeer() {
  const std::string limit =
      StrCat(link_options_.peer_timeout_ns / kNsPerMs, " ms (LinkOptions::peer_timeout_ns)");
  WEFT_LOG(kWarning, "a peer is given up: nothing heard for ", limit);
  // If it wakes up it should know what has happened.
  Finish(
      absl::UnavailableError(StrCat("peer is silent: nothing heard for ", limit,
                                    "; its process is stopped, or its host out of reach")),
      /*peer_dead=*/true,
      LastWords{ControlType::kBye, EncodeBye(StrCat("it heard nothing of this side for ", limit))});
}

// --- the end -------------------------------------------------------------------------------------

void ControlSession::Fail(const absl::Status& why) {
  Finish(why, /*peer_dead=*/false, LastWords{ControlType::kBye, EncodeBye(ToStd(why.message()))});
}

void ControlSession::Finish(const absl::Status& why, bool peer_dead,
                            const std::optional<LastWords>& last_words) {
  if (stage_ == Stage::kEnding || stage_ == Stage::kRetired) return;
  if (stage_ == Stage::kHandshake && connection_ != nullptr) {
    context_->paths->Count(connection_->facts().candidates);
  }
  stage_ = Stage::kEnding;
  context_->engine.timers->Cancel(&alarm_);
  alarm_rang_ = false;
  watch_.Stop();
  OnFinish();
  if (connection_ != nullptr) {
    // The link ends before the last words are sent: what it still carries comes first.
    connection_->End(why, peer_dead || silent_ || (lifeline_gone() && !bye_heard_));
    connection_.reset();
  }
  neighbour_.doorbell.reset();
  neighbour_.CloseDescriptors();
  if (socket_ != nullptr && last_words.has_value()) {
    socket_->Send(last_words->type, last_words->body);
  }
  Linger();
}

void ControlSession::Linger() {
  if (socket_ == nullptr || socket_->gone() || !connected() ||
      context_->lingering >= kMaxLingering) {
    return Retire();
  }
  counted_lingering_ = true;
  ++context_->lingering;
  SetAlarm(context_->now_ns() + kLingerNs);
  socket_->Linger();
}

void ControlSession::Retire() {
  if (std::exchange(counted_lingering_, false)) --context_->lingering;
  stage_ = Stage::kRetired;
  context_->engine.timers->Cancel(&alarm_);
  socket_.reset();
  context_->ready.Remove(this);
  context_->members.Remove(this);
  context_->retired.PushBack(this);
}

}  // namespace weft
