// The calls of a channel that may be sent again (ChannelOptions::retry). Each is one ClientCall,
// the caller's, which waits while attempts are made for it: other ClientCalls, with the same
// request and reply.
//
// What is sent again, after a pause, while attempts, tokens and the call's deadline permit it:
//   - of every method, what no handler has seen (DeliveryOf() is kNotSent): UNAVAILABLE; and
//     RESOURCE_EXHAUSTED if it is the server that says so, for its limits are of a moment. The
//     channel's own limits (a full queue) are not met by waiting in it twice.
//   - of other methods, with RetryOptions::exactly_once, UNAVAILABLE that is not the server's
//     answer: all attempts have one name there (client_sessions.h), by which it knows that the
//     handler has run, and answers again what that has answered.
//   - of methods that may run twice (`idempotency_level` in the .proto file): UNAVAILABLE whatever
//     has run, also where the handler itself has answered it.
// All other errors would come again, or are answers. A call with CallOptions::bulk goes by the
// first rule alone: the memory of an attempt that may still run cannot be lent again. Streams are
// not sent again.
//
// A hedge is a second attempt while the first one is still under way, hedge_after_us later: of
// methods that may run twice, on the same connection, and only if it can be sent at once. The first
// answer counts, and the other attempt is cancelled.
//
// All attempts are one call: to its caller, to Cancel(), to its deadline, to interceptors and to
// ChannelStats::calls_started. Servers see the number of attempts that went before as the metadata
// "grpc-previous-rpc-attempts" where there was one. The error is that of the last attempt; what
// DeliveryOf() says of it is true of all. With this, each call takes the way of one with a
// ClientContext, and some memory while it lasts: at most max_outstanding_calls + max_queued_calls
// calls of a channel may be sent again, further ones have one attempt.
//
// The rules, and the budget, are those of gRPC (gRFC A6, "gRPC Retry Design"), but that gRPC's
// service config says which methods are safe, and which codes.
//
// If a server does not know the name any more (it was restarted, or the client was away for too
// long), and an attempt may have run, such a call ends with ABORTED. If none may have run it gets
// another name, and goes on. A server without sessions is called as without the option. Cancel()
// reaches a handler that may still run: by the attempt that is under way, or by the call's name.
//
//   A RetriedCall   what there is                             what ends it
//     unnamed       no attempt: it has to run exactly once,   it has a name, or needs none ->
//                   and waits for a session that is open      trying; no session can be opened ->
//                   and has room                              as a failed attempt; the deadline,
//                                                             Cancel() -> over
//     trying        one attempt, or two (the later is a       its last attempt fails, and may be
//                   hedge); the timer: until a hedge          repeated -> pausing; else -> over
//     pausing       no attempt; the timer: until the next     the timer -> trying; the deadline,
//                                                             Cancel(), the channel's end -> over
//     over          destroyed; the call has been completed
//
// Where a channel has many servers, an attempt avoids those that the call has met.
//
// Both attempts decode into the caller's reply, and only one does so well: both run on the engine's
// thread, and the first good reply drops the other attempt before anything else is received.
//
// Threads: the engine's.
// Lifetime: RetriedCalls is a part of the channel's ClientCalls. A RetriedCall owns its attempts,
//   and destroys itself before it completes the call.
// Invariants: a call is completed once. At most max_attempts attempts are made, of which at most
//   two are under way; of one that may not run twice, none is made after one that may have run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/intrusive_list.h"
#include "core/random.h"
#include "core/timer_wheel.h"
#include "rpc/client/backoff.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_call.h"
#include "rpc/client/client_sessions.h"
#include "transport/engine.h"

namespace weft {

class CallContext;
class ClientCalls;
class MethodTable;
class RetriedCalls;

// Of one call: gRPC's own bound.
inline constexpr uint32_t kMaxAttempts = 4;

// Tokens for attempts beyond the first: gRFC A6, "Throttling Retry Attempts and Hedged RPCs".
class RetryBudget {
 public:
  RetryBudget(uint32_t tokens, uint32_t refill_millitokens)
      : most_(uint64_t{tokens} * kMillitokens), refill_(refill_millitokens), left_(most_) {}

  bool permits() const { return left_ > most_ / 2; }
  void Take() { left_ -= std::min(left_, kMillitokens); }
  void Refill() { left_ = std::min(left_ + refill_, most_); }

 private:
  static constexpr uint64_t kMillitokens = 1000;  // in a token

  const uint64_t most_;
  const uint64_t refill_;
  uint64_t left_;
};

struct UnnamedTag;

class RetriedCall final : public ListNode<>, public ListNode<UnnamedTag>, private Timer {
 public:
  // Makes the first attempt, which may end the call inside.
  static void Start(RetriedCalls& all, ClientCall& call);

  // End it: with DEADLINE_EXCEEDED, with CANCELLED, or, while it pauses, with `why`.
  void Expire();
  void Cancel();
  void End(absl::Status why);

 private:
  friend class RetriedCalls;

  class Attempt final : public ClientCall {
   public:
    Attempt(RetriedCall& its_owner, std::shared_ptr<CallContext> its_context);
    void Complete(absl::Status status) override { owner.OnEnd(*this, std::move(status)); }

    RetriedCall& owner;
    const std::shared_ptr<CallContext> own_context;  // null: it needs none
  };

  RetriedCall(RetriedCalls& all, ClientCall& call);
  ~RetriedCall() override;

  void OnTimer() override;
  void StartAttempt();
  // It has its name at the server, or goes without. False: it waits, or is gone.
  bool TakeName();
  void OnSession(const absl::Status& status, bool answered);
  void OnOutcomeUnknown(absl::Status status, CallContext* reply);
  void AfterAttempt(absl::Status status, bool answered, CallContext* reply);
  void TryHedge();
  Attempt& MakeAttempt();
  void DropAttempt(Attempt& attempt);
  // One that is under way; null: none is.
  Attempt* AnyAttempt();
  void ScheduleHedge();

  void OnEnd(Attempt& attempt, absl::Status status);
  bool MayRepeat(const absl::Status& status, bool answered) const;
  // False: there will be no other attempt.
  bool Pause();
  // Completes the call. `reply`: the context of the attempt that has ended with `status`; null: it
  // had none. This is gone afterwards.
  void Complete(absl::Status status, CallContext* reply);
  absl::Status OfAllAttempts(const absl::Status& last) const;

  RetriedCalls& all_;
  ClientCall& call_;
  const bool may_run_twice_;
  bool runs_once_;  // exactly, by its name
  ClientSessions::Name name_;
  bool may_have_run_ = false;   // an attempt that has ended
  bool may_still_run_ = false;  // one that has lost its connection, and has had no answer since
  uint32_t made_ = 0;           // attempts
  Backoff backoff_;
  std::string last_failure_;  // of the attempt before the pause
  MetServers met_;
  std::array<std::optional<Attempt>, 2> attempts_;
};

class RetriedCalls final : private ClientSessions::Host {
 public:
  // All outlive it. `most`: calls at one time.
  RetriedCalls(ClientCalls& calls, MethodTable& methods, EngineCore& engine,
               const std::string& address, const RetryOptions& options, uint32_t most,
               ChannelStats& stats);

  // Takes a call that starts, and completes it. False: there are too many; it is the caller's.
  bool Start(ClientCall& call);
  // The channel is about to end: the server is told, if it can be.
  void EndSession() {
    if (sessions_) sessions_->End();
  }
  // The channel ends, and all attempts have: completes what is left. Others may start meanwhile.
  void Shutdown(const absl::Status& gone);

  uint32_t count() const { return count_; }

  // A connection has opened; what its server's hello says of sessions.
  void OnConnected(uint64_t session_lease_us) {
    if (sessions_) sessions_->OnConnected(session_lease_us);
  }
  // The server there knows what calls that run exactly once are.
  bool ServerHasSessions() const { return sessions_ && sessions_->server_has_sessions(); }

 private:
  friend class RetriedCall;

  // ClientSessions::Host.
  void OnSession(const absl::Status& status, bool answered) override;
  // The session has room, or has ended.
  void TakeNamesAgain();

  ClientCalls& calls_;
  MethodTable& methods_;
  EngineCore& engine_;
  const std::string& address_;
  const RetryOptions& options_;
  const uint32_t most_;
  ChannelStats& stats_;
  RetryBudget budget_;
  Random jitter_;
  uint32_t count_ = 0;  // <= most_
  IntrusiveList<RetriedCall> live_;
  IntrusiveList<RetriedCall, UnnamedTag> unnamed_;
  std::optional<ClientSessions> sessions_;  // none: RetryOptions::exactly_once is not set
};

}  // namespace weft
