#include "rpc/client/balanced_server.h"

#include <utility>

#include "core/intrusive_list.h"
#include "core/strings.h"
#include "rpc/client/client_streams.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

// Whether an end says that something is wrong with the server (EjectionOptions).
bool CountsAsFailure(const ClientCall& call, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:  // one that says that it did not run it: it shuts down
      return call.answered && DeliveryOf(status) != Delivery::kNotSent;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return call.answered;
    case absl::StatusCode::kDeadlineExceeded:
      return DeliveryOf(status) == Delivery::kMayHaveRun;
    default:
      return false;
  }
}

// Whether the server refused it for want of room: by a limit, or because its executor is full.
bool IsOverload(const ClientCall& call, const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted && call.answered &&
         DeliveryOf(status) == Delivery::kNotSent;
}

}  // namespace

BalancedServer::BalancedServer(Host& host, EngineCore& engine, const ListedServer& server,
                               const ChannelOptions& options, const EjectionOptions& ejection,
                               ClientCalls* front)
    : host_(host),
      engine_(engine),
      ejection_(ejection),
      server_(server),
      connection_(new ClientConnection(engine, server.address, options, nullptr, front)),
      calls_(connection_->calls()) {
  connection_->Watch(this);
  calls_.SetWatcher(this);
}

BalancedServer::~BalancedServer() {
  calls_.SetWatcher(nullptr);
  IntrusiveList<ConnectionWatcher, ConnectionWatcherTag>::Remove(this);
  connection_->Shutdown();
}

void BalancedServer::Enter(State state) {
  state_ = state;
  host_.OnServerState(*this);
}

// --- its life -----------------------------------------------------------------------------------

void BalancedServer::Connect() {
  if (state_ != State::kNew) return;
  state_ = State::kConnecting;
  connection_->WantConnection();
}

void BalancedServer::Drain(uint64_t drain_us) {
  draining_ = true;
  ejected_ = false;
  engine_.timers().Cancel(this);
  if (state_ != State::kReady && state_ != State::kLeaving) return Enter(State::kDrained);
  engine_.timers().Schedule(this, engine_.clock().NowNs() + drain_us * kNsPerUs);
  if (state_ == State::kReady) connection_->Leave();
}

void BalancedServer::Eject(uint64_t until_ns) {
  ejected_ = true;
  on_trial_ = false;
  ++ejections_;
  in_a_row_ = 0;
  engine_.timers().Schedule(this, until_ns);
  host_.OnServerState(*this);
}

void BalancedServer::OnTimer() {
  if (draining_) {
    const std::string_view why = "it has left the list of servers, and its time to drain is over";
    return connection_->EndConnection(absl::UnavailableError(ToAbsl(why)), why);
  }
  ejected_ = false;
  on_trial_ = true;
  successes_before_ = successes();
  host_.OnServerState(*this);
}

void BalancedServer::OnConnected(Connection&) {
  last_failure_ = absl::OkStatus();
  Enter(State::kReady);
}

void BalancedServer::OnConnectionLeaving(const absl::Status& why) {
  last_failure_ = why;
  Enter(State::kLeaving);
}

void BalancedServer::OnConnectionLost() {
  if (draining_) return Enter(State::kDrained);
  const bool expected = state_ == State::kLeaving;
  if (!expected) {
    last_failure_ = connection_->path().status();
    Fail();
  }
  Enter(State::kDown);
  connection_->WantConnection();
}

void BalancedServer::OnNoConnection(const absl::Status& why) {
  if (draining_) return;
  last_failure_ = why;
  Enter(State::kDown);
  connection_->WantConnection();  // after a pause
}

// --- how its calls end --------------------------------------------------------------------------

void BalancedServer::OnEnd(const ClientCall& call, const absl::Status& status) {
  if (status.ok()) {
    const bool is_attempt = call.kind == ClientCall::Kind::kAttempt;
    if (is_attempt && !call.one_way) ++attempts_ok_;
    if (!is_attempt && call.one_way) ++not_answered_;
    return;
  }
  if (IsOverload(call, status)) spared_until_ns_ = engine_.clock().NowNs() + kSpareNs;
  if (CountsAsFailure(call, status)) Fail();
}

void BalancedServer::Fail() {
  ++failures_;
  const uint64_t now = successes();
  if (now != std::exchange(successes_before_, now)) {
    in_a_row_ = 0;
    on_trial_ = false;
  }
  ++in_a_row_;
  const uint32_t most = on_trial_ ? 1 : ejection_.consecutive_failures;
  if (ejected_ || draining_ || ejection_.consecutive_failures == 0 || in_a_row_ < most) return;
  host_.OnServerFailing(*this);
}

uint64_t BalancedServer::successes() const {
  return calls_.calls_ok() + attempts_ok_ - not_answered_ - calls_.streams().ended_ok();
}

SuccessCount BalancedServer::TakeCount() {
  const SuccessCount before = std::exchange(counted_, {successes(), failures_});
  return {counted_.ok - before.ok, counted_.failed - before.failed};
}

ServerFacts BalancedServer::facts() {
  return {.server = server_,
          .state = connection_->state(),
          .ejected = ejected_,
          .draining = draining_ || state_ == State::kLeaving,
          .ejections = ejections_,
          .under_way = calls_.load(),
          .answers_ok = successes(),
          .failures = failures_};
}

}  // namespace weft
