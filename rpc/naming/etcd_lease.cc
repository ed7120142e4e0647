#include "rpc/naming/etcd_lease.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/naming/etcd.pb.h"
#include "rpc/operation/on_engine.h"

namespace weft {
namespace {

// How long a member has for its answer: one that hangs is left while the lease lives.
uint64_t TimeoutUs(int64_t lease_s) {
  return std::min(EtcdClient::kAnswerTimeoutUs, static_cast<uint64_t>(lease_s) * 1'000'000 / 3);
}

}  // namespace

EtcdLease::EtcdLease(EngineCore& engine, const EtcdTarget& target, const EtcdOptions& options,
                     std::string key, std::string value, int64_t lease_s,
                     std::atomic<uint32_t>* held)
    : engine_(engine),
      key_(std::move(key)),
      value_(std::move(value)),
      lease_s_(lease_s),
      members_(target.endpoints.size()),
      all_held_(*held),
      client_(engine, target.endpoints, options, *this),
      backoff_(kMinPauseUs, kMaxPauseUs, SecureRandom64()) {}

EtcdLease::~EtcdLease() { SetHeld(false); }

void EtcdLease::OnTimer() {
  switch (state_) {
    case State::kPaused:
      if (engine_.clock().NowNs() < lives_until_ns_) return KeepAlive();
      return Grant();
    case State::kHeld:
      return KeepAlive();
    default:
      WEFT_CHECK(false);  // Ours: the other states have no timer
  }
}

void EtcdLease::Grant() {
  state_ = State::kGranting;
  SetHeld(false);
  lives_until_ns_ = 0;
  asked_ns_ = engine_.clock().NowNs();
  rpc::EtcdGrantRequest request;
  request.set_ttl(lease_s_);
  client_.Ask("/v3/lease/grant", request, TimeoutUs(lease_s_));
}

void EtcdLease::Put() {
  state_ = State::kPutting;
  rpc::EtcdPutRequest request;
  request.set_key(key_);
  request.set_value(value_);
  request.set_lease(lease_);
  client_.Ask("/v3/kv/put", request, TimeoutUs(granted_s_));
}

void EtcdLease::KeepAlive() {
  state_ = State::kKeeping;
  asked_ns_ = engine_.clock().NowNs();
  rpc::EtcdLeaseRequest request;
  request.set_id(lease_);
  client_.Ask("/v3/lease/keepalive", request, TimeoutUs(granted_s_));
}

// Each member has an equal part of the time that is left.
void EtcdLease::Revoke() {
  const uint64_t now_ns = engine_.clock().NowNs();
  const uint64_t left_ns = now_ns < withdrawn_until_ns_ ? withdrawn_until_ns_ - now_ns : 0;
  const uint64_t timeout_us = left_ns / (members_ - revokes_) / kNsPerUs;
  ++revokes_;
  rpc::EtcdLeaseRequest request;
  request.set_id(lease_);
  client_.Ask("/v3/lease/revoke", request, timeout_us);
}

void EtcdLease::OnEtcdEnd(const absl::Status& status) {
  if (state_ == State::kLeaving) {
    // Each member is asked once. One that knows no such lease has the key no more.
    if (status.ok() || absl::IsNotFound(status)) return End();
    if (revokes_ < members_) return Revoke();
    WEFT_LOG(kWarning, "the key ", key_, " stays in etcd until its lease of ", granted_s_,
             " s is over: ", ToStd(status.message()));
    return End();
  }
  if (!status.ok()) return Fail(status);
  int64_t granted_s = granted_s_;
  absl::Status taken;
  switch (state_) {
    case State::kGranting:
      taken = TakeGrant();
      return taken.ok() ? Put() : Fail(taken);
    case State::kKeeping:
      taken = TakeKeepAlive(&granted_s);
      if (!taken.ok()) return Fail(taken);
      if (granted_s > 0) return Hold(granted_s);
      WEFT_LOG(kWarning, "etcd has no lease of the key ", key_, " any more: it is put anew");
      return Grant();
    default:  // kPutting
      return Hold(granted_s);
  }
}

absl::Status EtcdLease::TakeGrant() {
  rpc::EtcdGrantReply reply;
  WEFT_RETURN_IF_ERROR(ParseEtcdJson(answer_, &reply));
  if (reply.id() == 0 || reply.ttl() <= 0) {
    return absl::UnavailableError(StrCat("etcd has granted no lease: its number is ", reply.id(),
                                         ", its time ", reply.ttl(), " s"));
  }
  lease_ = reply.id();
  granted_s_ = std::min(reply.ttl(), kMaxLeaseS);
  return absl::OkStatus();
}

// 0: there is no such lease.
absl::Status EtcdLease::TakeKeepAlive(int64_t* granted_s) const {
  rpc::EtcdKeepAliveReply reply;
  WEFT_RETURN_IF_ERROR(ParseEtcdJson(answer_, &reply));
  if (reply.has_error() || !reply.has_result()) {
    return absl::UnavailableError(
        StrCat("etcd does not keep a lease alive: ", reply.error().message()));
  }
  *granted_s = std::clamp<int64_t>(reply.result().ttl(), 0, kMaxLeaseS);
  return absl::OkStatus();
}

void EtcdLease::Hold(int64_t granted_s) {
  state_ = State::kHeld;
  granted_s_ = granted_s;
  const uint64_t granted_us = static_cast<uint64_t>(granted_s) * 1'000'000;
  lives_until_ns_ = asked_ns_ + granted_us * kNsPerUs;
  backoff_.OnAnswer();
  told_ = false;
  // Who has not driven the engine for so long learns of an answer when it is worth nothing.
  SetHeld(engine_.clock().NowNs() < lives_until_ns_);
  // The lease has lived since it was asked for, not since the answer is here.
  engine_.timers().Schedule(this, asked_ns_ + granted_us * kNsPerUs / 3);
}

// With `held`, until lives_until_ns_.
void EtcdLease::SetHeld(bool held) {
  if (held) {
    engine_.timers().Schedule(&expiry_, lives_until_ns_);
  } else {
    engine_.timers().Cancel(&expiry_);
  }
  if (held == std::exchange(held_, held)) return;
  if (held) {
    all_held_.fetch_add(1);
    WEFT_LOG(kInfo, "etcd has the key ", key_, ", for ", granted_s_, " s at a time");
  } else {
    all_held_.fetch_sub(1);
  }
}

// A request that is under way goes on: perhaps etcd has another clock, and still has the lease.
void EtcdLease::OnExpiry() {
  WEFT_LOG(kWarning, "the key ", key_, " has gone from etcd, as far as is known: nobody has kept ",
           "its lease of ", granted_s_, " s alive");
  SetHeld(false);
}

void EtcdLease::Fail(const absl::Status& why) {
  state_ = State::kPaused;
  backoff_.OnFailure();
  uint64_t pause_us = backoff_.NextPauseUs();
  if (engine_.clock().NowNs() < lives_until_ns_) {
    pause_us = std::min(pause_us, static_cast<uint64_t>(granted_s_) * 1'000'000 / 3);
  }
  ScheduleIn(engine_, *this, pause_us);
  if (std::exchange(told_, true)) return;
  WEFT_LOG(kWarning, "the key ", key_, " cannot be ", held_ ? "kept" : "put", " in etcd, which is ",
           "tried again: ", ToStd(why.message()));
}

void EtcdLease::Withdraw(Function<void()> done) {
  done_ = std::move(done);
  state_ = State::kLeaving;
  client_.Cancel();
  engine_.timers().Cancel(this);
  // One that is asked for has no key yet.
  if (lease_ == 0) return End();
  withdrawn_until_ns_ = engine_.clock().NowNs() + kWithdrawUs * kNsPerUs;
  Revoke();
}

void EtcdLease::End() {
  state_ = State::kEnded;
  SetHeld(false);
  client_.Cancel();
  engine_.timers().Cancel(this);
  std::exchange(done_, nullptr)();
}

}  // namespace weft
