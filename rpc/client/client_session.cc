#include "rpc/client/client_session.h"

#include <utility>

#include "core/check.h"
#include "core/strings.h"
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

ClientSession::Renewal::Renewal(ClientSession& its_owner, uint32_t its_method,
                                const SessionId& session, bool patient)
    : ClientCall(its_owner.calls_, Kind::kAttempt),
      owner(its_owner),
      opens(session == SessionId()) {
  asked.set_high(session.high);
  asked.set_low(session.low);
  reply.message = &answer;
  request = &asked;
  method = its_method;
  is_plain = false;  // nor does it count as one of the program's calls
  wait_for_server = patient;
  priority = Priority::kControl;  // calls that are urgent wait for it
}

ClientSession::ClientSession(Host* host, ClientCalls& calls, MethodTable& methods,
                             EngineCore& engine)
    : host_(*host), calls_(calls), engine_(engine), method_(methods.Bind(kSessions)) {}

ClientSession::~ClientSession() = default;

void ClientSession::OnConnected(uint64_t lease_us) {
  server_has_sessions_ = lease_us != 0;
  absent_ = !server_has_sessions_;
}

// --- calls --------------------------------------------------------------------------------------

ClientSession::Taken ClientSession::Take(Ticket* ticket) {
  // After half a lease without calls it may have expired: then the first attempt was for nothing.
  if (opened_ != nullptr && opened_->unanswered.empty() &&
      engine_.clock().NowNs() - opened_->used_ns > opened_->lease_ns / 2) {
    opened_ = nullptr;
  }
  if (opened_ == nullptr) return absent_ ? Taken::kNoSessions : Taken::kNotYet;
  if (opened_->next_sequence - opened_->first_unanswered() >= kMaxSessionCalls) {
    return Taken::kNotYet;
  }
  ticket->opened_ = opened_;
  ticket->sequence_ = opened_->next_sequence++;
  opened_->unanswered.insert(ticket->sequence_);
  Use();
  return Taken::kYes;
}

void ClientSession::Use() {
  opened_->used_ns = engine_.clock().NowNs();
  if (!armed()) engine_.timers().Schedule(this, opened_->used_ns + opened_->lease_ns / 3);
}

bool ClientSession::GiveBack(const Ticket& ticket) {
  Opened& opened = *ticket.opened_;
  const bool was_first = opened.first_unanswered() == ticket.sequence_;
  opened.unanswered.erase(ticket.sequence_);
  if (ticket.opened_ == opened_) opened.used_ns = engine_.clock().NowNs();
  return was_first && ticket.opened_ == opened_;
}

void ClientSession::Lose(const Ticket& ticket) {
  ticket.opened_->unanswered.erase(ticket.sequence_);
  if (ticket.opened_ == opened_) opened_ = nullptr;
}

// --- the server ---------------------------------------------------------------------------------

void ClientSession::Want(bool patient) {
  if (opened_ != nullptr) return;  // it is full
  if (renewal_ && !renewal_->opens) {
    wanted_ = true;
    return;
  }
  if (renewal_) {
    renewal_->wait_for_server &= patient;
    return;
  }
  renewal_.emplace(*this, method_, SessionId(), patient);
  calls_.StartAttempt(*renewal_);  // it may have ended
}

// Calls of the session are without their answers, perhaps: the server is to hear of this client in
// time, also where it waits between attempts.
void ClientSession::OnTimer() {
  if (opened_ == nullptr || opened_->unanswered.empty()) return;
  engine_.timers().Schedule(this, engine_.clock().NowNs() + opened_->lease_ns / 3);
  if (renewal_) return;
  renewal_.emplace(*this, method_, opened_->id, /*patient=*/false);
  if (!calls_.SendAttempt(*renewal_)) renewal_.reset();  // the next time, then
}

void ClientSession::OnRenewed(absl::Status status) {
  const bool opened = renewal_->opens;
  const bool answered = renewal_->answered || status.ok();
  const rpc::SessionReply reply = std::move(renewal_->answer);
  const SessionId asked = {renewal_->asked.high(), renewal_->asked.low()};
  renewal_.reset();
  if (!opened) {
    // ABORTED: it does not know the session. Its calls learn that, each when it is sent again.
    if (status.code() == absl::StatusCode::kAborted && opened_ != nullptr && opened_->id == asked) {
      opened_ = nullptr;
      wanted_ = true;
    }
    if (std::exchange(wanted_, false)) host_.OnSession(absl::OkStatus(), answered);
    return;
  }
  if (status.ok() && !MakesSense(reply)) {
    status = absl::DataLossError("the server's answer names no session, or no lease");
  }
  if (status.code() == absl::StatusCode::kUnimplemented) {
    absent_ = true;
    status = absl::OkStatus();  // calls go on without
  } else if (status.ok()) {
    opened_ = std::make_shared<Opened>();
    opened_->id = {reply.high(), reply.low()};
    opened_->lease_ns = reply.lease_us() * kNsPerUs;
    opened_->used_ns = engine_.clock().NowNs();
  }
  host_.OnSession(status, answered);
}

}  // namespace weft
