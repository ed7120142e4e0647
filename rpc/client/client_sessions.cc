#include "rpc/client/client_sessions.h"

#include <utility>

#include "core/check.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/method_table.h"
#include "rpc/wire/service.h"

namespace weft {
namespace {

// What the server says in its hello has this name (MethodTable::Learn()).
constexpr MethodDescriptor kMethods[] = {
    {"Renew", "weft.rpc.SessionRequest", "weft.rpc.SessionReply", nullptr, nullptr}};
constexpr ServiceDescriptor kSessions = {kSessionServiceName, kMethods};

bool MakesSense(const rpc::SessionReply& reply) {
  return (reply.high() != 0 || reply.low() != 0) && reply.lease_us() >= kShortestSessionLeaseUs &&
         reply.lease_us() <= kLongestSessionLeaseUs;
}

}  // namespace

ClientSessions::SessionCall::SessionCall(ClientSessions& its_owner, const SessionId& session,
                                         bool patient)
    : ClientCall(its_owner.calls_, Kind::kAttempt),
      owner(its_owner),
      opens(session == SessionId()) {
  asked.set_high(session.high);
  asked.set_low(session.low);
  reply.message = &answer;
  request = &asked;
  method = its_owner.method_;
  is_plain = false;  // nor does it count as one of the program's calls
  wait_for_server = patient;
  priority = Priority::kControl;  // calls that are urgent wait for it
}

ClientSessions::ClientSessions(Host* host, ClientCalls& calls, MethodTable& methods,
                               EngineCore& engine)
    : host_(*host), calls_(calls), engine_(engine), method_(methods.Bind(kSessions)) {}

ClientSessions::~ClientSessions() = default;

void ClientSessions::OnConnected(uint64_t lease_us) {
  if (lease_us == 0) {
    Leave(State::kAbsent);
  } else if (state_ == State::kAbsent) {
    state_ = State::kNone;
  }
}

// There is no present session any more.
void ClientSessions::Leave(State next) {
  session_ = nullptr;
  given_up_.clear();
  state_ = next;
}

// --- calls --------------------------------------------------------------------------------------

ClientSessions::Taken ClientSessions::Take(Name* name) {
  // After half a lease without calls it may have expired: then the first attempt was for nothing.
  if (state_ == State::kOpen && session_->unanswered.empty() &&
      engine_.clock().NowNs() - session_->used_ns > session_->lease_ns / 2) {
    Leave(State::kNone);
  }
  if (state_ == State::kAbsent) return Taken::kNoSessions;
  if (state_ != State::kOpen) return Taken::kNotYet;
  if (session_->next_sequence - session_->first_unanswered() >= kMaxSessionCalls) {
    return Taken::kNotYet;
  }
  name->session_ = session_;
  name->sequence_ = session_->next_sequence++;
  session_->unanswered.insert(name->sequence_);
  Use();
  return Taken::kYes;
}

void ClientSessions::Use() {
  session_->used_ns = engine_.clock().NowNs();
  if (!armed()) engine_.timers().Schedule(this, session_->used_ns + session_->lease_ns / 3);
}

bool ClientSessions::GiveBack(const Name& name) {
  Session& session = *name.session_;
  const bool was_first = session.first_unanswered() == name.sequence_;
  session.unanswered.erase(name.sequence_);
  // Calls may have waited for room in a session that is no more.
  if (name.session_ != session_) return true;
  session.used_ns = engine_.clock().NowNs();
  return was_first;
}

void ClientSessions::Lose(const Name& name) {
  name.session_->unanswered.erase(name.sequence_);
  if (name.session_ == session_) Leave(State::kNone);
}

// --- the server ---------------------------------------------------------------------------------

void ClientSessions::Want(bool patient) {
  if (state_ == State::kOpen) return;  // it is full
  state_ = State::kOpening;
  if (call_) {
    if (call_->opens) call_->wait_for_server &= patient;
    return;
  }
  call_.emplace(*this, SessionId(), patient);
  calls_.StartAttempt(*call_);  // it may have ended
}

// Calls of the session are without their answers, perhaps: the server is to hear of this client in
// time, also where it waits between attempts.
void ClientSessions::OnTimer() {
  if (state_ != State::kOpen || session_->unanswered.empty()) return;
  engine_.timers().Schedule(this, engine_.clock().NowNs() + session_->lease_ns / 3);
  if (call_) return;
  call_.emplace(*this, session_->id, /*patient=*/false);
  if (calls_.SendAttempt(*call_) == ClientCalls::Sent::kNotNow)
    call_.reset();  // the next time, then
}

void ClientSessions::GiveUp(const Name& name) {
  // Of a session that is not the present one the server knows nothing.
  if (name.session_ != session_ || given_up_.size() >= kMaxGivenUp) return;
  given_up_.push_back(name.sequence_);
  if (!call_) SendGivenUp();
}

void ClientSessions::SendGivenUp() {
  call_.emplace(*this, session_->id, /*patient=*/false);
  for (const uint64_t sequence : given_up_) call_->asked.add_given_up(sequence);
  given_up_.clear();
  calls_.StartAttempt(*call_);  // it may have ended
}

// Its call ends with the channel, whether it is answered or not.
void ClientSessions::End() {
  if (state_ != State::kOpen) return;
  if (call_) {
    // One that waits says that there is no room.
    if (call_->state != ClientCall::State::kSent) return;
    calls_.Drop(*call_);
    call_.reset();
  }
  call_.emplace(*this, session_->id, /*patient=*/false);
  call_->asked.set_end(true);
  if (calls_.SendAttempt(*call_) != ClientCalls::Sent::kNotNow) return calls_.Flush();
  call_.reset();
}

void ClientSessions::OnEnd(absl::Status status) {
  if (call_->asked.end()) return call_.reset();
  const bool opens = call_->opens;
  const bool answered = call_->answered || status.ok();
  const rpc::SessionReply reply = std::move(call_->answer);
  const SessionId asked = {call_->asked.high(), call_->asked.low()};
  call_.reset();
  if (!opens) return OnRenewed(asked, status);
  if (status.ok() && !MakesSense(reply)) {
    status = absl::DataLossError("the server's answer names no session, or no lease");
  }
  const bool has_none = status.code() == absl::StatusCode::kUnimplemented;
  if (has_none || (status.ok() && state_ == State::kAbsent)) {
    state_ = State::kAbsent;
    status = absl::OkStatus();  // calls go on without
  } else if (status.ok()) {
    Open(reply);
  } else if (state_ == State::kOpening) {
    state_ = State::kNone;
  }
  host_.OnSession(status, answered);
}

void ClientSessions::Open(const rpc::SessionReply& reply) {
  session_ = std::make_shared<Session>();
  session_->id = {reply.high(), reply.low()};
  session_->lease_ns = reply.lease_us() * kNsPerUs;
  session_->used_ns = engine_.clock().NowNs();
  state_ = State::kOpen;
}

void ClientSessions::OnRenewed(const SessionId& id, const absl::Status& status) {
  // ABORTED: the server does not know it. Its calls learn that, each when it is sent again.
  if (absl::IsAborted(status) && session_ != nullptr && session_->id == id) Leave(State::kNone);
  if (state_ == State::kOpen) {
    if (!given_up_.empty()) SendGivenUp();
    return;
  }
  if (state_ == State::kOpening) state_ = State::kNone;
  // Who waits wants another.
  host_.OnSession(absl::OkStatus(), /*answered=*/true);
}

}  // namespace weft
