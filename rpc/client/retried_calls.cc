#include "rpc/client/retried_calls.h"

#include <functional>
#include <string_view>

#include "absl/strings/cord.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "rpc/client/call_context.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/method_table.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

// What an attempt carries besides: the caller's metadata, how many went before, and the call's
// name. Null: nothing.
std::shared_ptr<CallContext> ContextOfAttempt(const CallContext* of_call, uint32_t attempts_before,
                                              const ClientSessions::Name& name) {
  if (of_call == nullptr && attempts_before == 0 && !name.given()) return nullptr;
  auto context = std::make_shared<CallContext>();
  const OnceAttempt once = name.given() ? name.Attempt() : OnceAttempt();
  context->SealForAttempt(of_call, attempts_before, name.given() ? &once : nullptr);
  return context;
}

// Without the words at its end that say that nothing has run: they are those of one attempt.
std::string_view WithoutEnding(std::string_view text) {
  const size_t at = text.rfind(" (not ");
  return at != std::string_view::npos && text.ends_with(')') ? text.substr(0, at) : text;
}

}  // namespace

// --- attempts -----------------------------------------------------------------------------------

RetriedCall::Attempt::Attempt(RetriedCall& its_owner, std::shared_ptr<CallContext> its_context)
    : ClientCall(*its_owner.call_.client, Kind::kAttempt),
      owner(its_owner),
      own_context(std::move(its_context)) {
  const ClientCall& of = owner.call_;
  reply = of.reply;
  layouts = of.layouts;
  deadline_ns = of.deadline_ns;
  timeout_us = of.timeout_us;
  context = own_context.get();
  is_plain = false;
  method = of.method;
  loan = of.loan;
  request = of.request;
  encoded = of.encoded;
  wait_for_server = of.wait_for_server;
  one_way = of.one_way;
  priority = of.priority;
  server_key = of.server_key;
  met = &owner.met_;
  state = State::kQueued;  // its time left is computed when it is sent, as after a wait
}

RetriedCall::Attempt& RetriedCall::MakeAttempt() {
  std::optional<Attempt>& place = attempts_[attempts_[0] ? 1 : 0];
  WEFT_CHECK(!place);  // Ours: two attempts at most are under way
  place.emplace(*this, ContextOfAttempt(call_.context, made_, name_));
  ++made_;
  return *place;
}

void RetriedCall::DropAttempt(Attempt& attempt) {
  attempts_[&attempt == &*attempts_[0] ? 0 : 1].reset();
}

RetriedCall::Attempt* RetriedCall::AnyAttempt() {
  for (std::optional<Attempt>& attempt : attempts_) {
    if (attempt) return &*attempt;
  }
  return nullptr;
}

// --- the life of a call -------------------------------------------------------------------------

RetriedCall::RetriedCall(RetriedCalls& all, ClientCall& call)
    : all_(all),
      call_(call),
      may_run_twice_(call.loan == nullptr && all.methods_.IsIdempotent(call.method)),
      runs_once_(all.sessions_ && !may_run_twice_ && call.loan == nullptr && !call.one_way),
      backoff_(all.options_.initial_backoff_us, all.options_.max_backoff_us, all.jitter_.Next64()) {
  call.state = ClientCall::State::kRetried;
  call.retried = this;
  call.KeepRequest();
  all_.live_.PushBack(this);
  ++all_.count_;
}

RetriedCall::~RetriedCall() { --all_.count_; }

void RetriedCall::Start(RetriedCalls& all, ClientCall& call) {
  // Owns itself: Complete() destroys it.
  (new RetriedCall(all, call))->StartAttempt();
}

void RetriedCall::StartAttempt() {
  if (runs_once_ && !name_.given() && !TakeName()) return;
  Attempt& attempt = MakeAttempt();
  ScheduleHedge();
  all_.calls_.StartAttempt(attempt);  // this may be gone
}

bool RetriedCall::TakeName() {
  switch (all_.sessions_->Take(&name_)) {
    case ClientSessions::Taken::kYes:
      return true;
    case ClientSessions::Taken::kNoSessions:
      runs_once_ = false;
      return true;
    case ClientSessions::Taken::kNotYet:
      break;
  }
  if (last_failure_.empty()) last_failure_ = "it waited for its session with the server";
  all_.unnamed_.PushBack(this);
  all_.sessions_->Want(call_.wait_for_server);  // this may be gone
  return false;
}

void RetriedCall::OnSession(const absl::Status& status, bool answered) {
  const bool waits_on = call_.wait_for_server && !answered &&
                        status.code() == absl::StatusCode::kUnavailable && !all_.calls_.ended();
  if (status.ok() || waits_on) return StartAttempt();
  ++made_;
  AfterAttempt(WithDelivery(absl::Status(status.code(),
                                         ToAbsl(StrCat("no session in which the call could run "
                                                       "exactly once: ",
                                                       WithoutEnding(ToStd(status.message())),
                                                       " (not sent)"))),
                            Delivery::kNotSent),
               answered, nullptr);
}

void RetriedCall::OnTimer() {
  if (AnyAttempt() != nullptr) return TryHedge();
  ++all_.stats_.retries;
  StartAttempt();
}

void RetriedCall::ScheduleHedge() {
  const uint64_t after_us = all_.options_.hedge_after_us;
  if (after_us == 0 || !may_run_twice_ || made_ >= all_.options_.max_attempts) return;
  all_.engine_.timers().Schedule(this, all_.engine_.clock().NowNs() + after_us * kNsPerUs);
}

// One attempt is under way. A second one of a call that was not even sent would only wait behind
// it: the time begins again.
void RetriedCall::TryHedge() {
  if (AnyAttempt()->state != ClientCall::State::kSent) return ScheduleHedge();
  if (!all_.budget_.permits()) {
    ++all_.stats_.retries_refused;
    return;
  }
  RetriedCalls& all = all_;
  met_.Add(AnyAttempt()->carrier);
  Attempt& hedge = MakeAttempt();
  if (all.calls_.SendAttempt(hedge) != ClientCalls::Sent::kNotNow) {  // this may be gone
    ++all.stats_.hedges;
    all.budget_.Take();
    return;
  }
  DropAttempt(hedge);
  --made_;
  ScheduleHedge();
}

void RetriedCall::OnEnd(Attempt& attempt, absl::Status status) {
  const std::shared_ptr<CallContext> context = attempt.own_context;
  const bool answered = attempt.answered;
  if (attempt.carrier != &all_.calls_) met_.Add(attempt.carrier);  // else it was not sent
  DropAttempt(attempt);
  if (DeliveryOf(status) != Delivery::kNotSent) {
    may_still_run_ = !answered && absl::IsUnavailable(status);
  }
  if (status.ok()) all_.budget_.Refill();
  if (context != nullptr && context->outcome_unknown()) [[unlikely]]
    return OnOutcomeUnknown(std::move(status), context.get());
  AfterAttempt(std::move(status), answered, context.get());
}

// The attempt was not run: the server does not know the call's session, or has forgotten the call.
void RetriedCall::OnOutcomeUnknown(absl::Status status, CallContext* reply) {
  all_.sessions_->Lose(std::exchange(name_, {}));
  RetriedCalls& all = all_;
  if (may_have_run_ || made_ >= all_.options_.max_attempts) {
    Complete(std::move(status), reply);
  } else {
    last_failure_ = ToStd(status.message());
    StartAttempt();  // this may be gone
  }
  all.TakeNamesAgain();
}

// One has ended so, or could not be made.
void RetriedCall::AfterAttempt(absl::Status status, bool answered, CallContext* reply) {
  if (!MayRepeat(status, answered)) return Complete(std::move(status), reply);
  all_.budget_.Take();
  if (AnyAttempt() == nullptr && !Pause()) return Complete(std::move(status), reply);
  may_have_run_ |= DeliveryOf(status) != Delivery::kNotSent;
  last_failure_ = ToStd(status.message());
}

bool RetriedCall::MayRepeat(const absl::Status& status, bool answered) const {
  const bool not_sent = DeliveryOf(status) == Delivery::kNotSent;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      // The server's own answer is the outcome: it would be the same again.
      return not_sent || may_run_twice_ || (name_.given() && !answered);
    case absl::StatusCode::kResourceExhausted:
      return not_sent && answered;
    default:
      return false;
  }
}

bool RetriedCall::Pause() {
  if (made_ >= all_.options_.max_attempts) return false;
  if (!all_.budget_.permits()) {
    ++all_.stats_.retries_refused;
    return false;
  }
  backoff_.OnFailure();
  const uint64_t until_ns = all_.engine_.clock().NowNs() + backoff_.NextPauseUs() * kNsPerUs;
  if (until_ns >= call_.deadline_ns) return false;
  all_.engine_.timers().Schedule(this, until_ns);
  return true;
}

void RetriedCall::Expire() {
  if (Attempt* const attempt = AnyAttempt()) return all_.calls_.Expire(*attempt);
  ++all_.stats_.deadlines_exceeded;
  End(absl::DeadlineExceededError(StrCat("no reply from ", all_.address_, " within ",
                                         DurationText(call_.timeout_us), ": ", last_failure_)));
}

void RetriedCall::Cancel() {
  RetriedCalls& all = all_;
  const ClientSessions::Name name = name_;
  Attempt* const attempt = AnyAttempt();
  // Of an attempt that was sent the server is told as of any call.
  const bool sent = attempt != nullptr && attempt->state == ClientCall::State::kSent;
  const bool gives_up = name.given() && may_still_run_ && !sent;
  if (attempt != nullptr) {
    all.calls_.Cancel(*attempt);  // this is gone
  } else {
    End(absl::CancelledError(StrCat("cancelled by the caller, after: ", last_failure_)));
  }
  if (gives_up) all.sessions_->GiveUp(name);
}

void RetriedCall::End(absl::Status why) {
  Complete(WithDelivery(std::move(why), Delivery::kNotSent), nullptr);
}

void RetriedCall::Complete(absl::Status status, CallContext* reply) {
  RetriedCalls& all = all_;
  ClientCall& call = call_;
  const ClientSessions::Name name = std::move(name_);
  while (Attempt* const attempt = AnyAttempt()) {
    may_have_run_ = true;
    all.calls_.Drop(*attempt);
    DropAttempt(*attempt);
  }
  if (reply != nullptr && call.context != nullptr) call.context->TakeReplyOf(*reply);
  status = OfAllAttempts(status);
  delete this;
  const bool others_may = name.given() && all.sessions_->GiveBack(name);
  all.calls_.End(call, std::move(status));
  if (others_may) all.TakeNamesAgain();
}

// What the caller gets: the Delivery is true of all attempts. An answer of the handler stays as it
// is.
absl::Status RetriedCall::OfAllAttempts(const absl::Status& last) const {
  if (last.ok() || DeliveryOf(last) == Delivery::kUnknown) return last;
  if (made_ == 1 && !may_have_run_) return last;
  const std::string_view what = ToStd(last.message());
  const std::string text = StrCat(may_have_run_ ? WithoutEnding(what) : what, " [", made_,
                                  made_ == 1 ? " attempt" : " attempts",
                                  may_have_run_ ? ", one of which may have run]" : "]");
  absl::Status all(last.code(), ToAbsl(text));
  last.ForEachPayload(
      [&all](absl::string_view type, const absl::Cord& payload) { all.SetPayload(type, payload); });
  return may_have_run_ ? WithDelivery(std::move(all), Delivery::kMayHaveRun) : all;
}

// --- all of them --------------------------------------------------------------------------------

RetriedCalls::RetriedCalls(ClientCalls& calls, MethodTable& methods, EngineCore& engine,
                           const std::string& address, const RetryOptions& options, uint32_t most,
                           ChannelStats& stats)
    : calls_(calls),
      methods_(methods),
      engine_(engine),
      address_(address),
      options_(options),
      most_(most),
      stats_(stats),
      budget_(options.budget_tokens, options.refill_millitokens),
      jitter_(engine.clock().NowNs() ^ std::hash<std::string>()(address)) {
  if (options.exactly_once) sessions_.emplace(static_cast<Host*>(this), calls, methods, engine);
}

// Those that get no name wait again.
void RetriedCalls::OnSession(const absl::Status& status, bool answered) {
  IntrusiveList<RetriedCall, UnnamedTag> unnamed;
  unnamed.SpliceBack(unnamed_);
  while (RetriedCall* const call = unnamed.PopFront()) call->OnSession(status, answered);
}

void RetriedCalls::TakeNamesAgain() {
  if (!unnamed_.empty() && !calls_.ended()) OnSession(absl::OkStatus(), /*answered=*/true);
}

bool RetriedCalls::Start(ClientCall& call) {
  if (count_ < most_) {
    RetriedCall::Start(*this, call);
    return true;
  }
  // One attempt alone does without RetriedCall; but not without a name, if it is to have one.
  const bool runs_once =
      sessions_ && call.loan == nullptr && !call.one_way && !methods_.IsIdempotent(call.method);
  if (!runs_once) return false;
  const std::string text =
      StrCat(count_, " calls that may be sent again have begun already to ", address_,
             ", as many as ChannelOptions::max_outstanding_calls and max_queued_calls allow; "
             "retry.exactly_once permits none beside them (not sent)");
  calls_.End(call, WithDelivery(absl::ResourceExhaustedError(text), Delivery::kNotSent));
  return true;
}

void RetriedCalls::Shutdown(const absl::Status& gone) {
  while (RetriedCall* const call = live_.Front()) call->End(gone);
}

}  // namespace weft
