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
      if (lease_ != 0 && engine_.clock().NowNs() < lives_until_ns_) return KeepAlive();
      return Grant();
    case State::kHeld:
      return KeepAlive();
    case State::kLeaving:
      WEFT_LOG(kWarning, "etcd does not answer: the key ", key_, " stays until its lease of ",
               granted_s_, " s is over");
      return End();
    default:
      WEFT_CHECK(false);  // Ours: the other states have no timer
  }
}

void EtcdLease::Grant() {
  state_ = State::kGranting;
  SetHeld(false);
  lease_ = 0;
  asked_ns_ = engine_.clock().NowNs();
  rpc::EtcdGrantRequest request;
  request.set_ttl(lease_s_);
  client_.Ask("/v3/lease/grant", request);
}

void EtcdLease::Put() {
  state_ = State::kPutting;
  rpc::EtcdPutRequest request;
  request.set_key(key_);
  request.set_value(value_);
  request.set_lease(lease_);
  client_.Ask("/v3/kv/put", request);
}

void EtcdLease::KeepAlive() {
  state_ = State::kKeeping;
  asked_ns_ = engine_.clock().NowNs();
  rpc::EtcdLeaseRequest request;
  request.set_id(lease_);
  client_.Ask("/v3/lease/keepalive", request);
}

void EtcdLease::Revoke() {
  ++revokes_;
  rpc::EtcdLeaseRequest request;
  request.set_id(lease_);
  client_.Ask("/v3/lease/revoke", request);
}

void EtcdLease::OnEtcdEnd(const absl::Status& status) {
  if (state_ == State::kLeaving) {
    // Each member is asked once. One that knows no such lease has the key no more.
    if (status.ok() || absl::IsNotFound(status) || revokes_ >= members_) return End();
    return Revoke();
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
  SetHeld(true);
  ScheduleIn(engine_, *this, granted_us / 3);
}

void EtcdLease::SetHeld(bool held) {
  if (held == std::exchange(held_, held)) return;
  if (held) {
    all_held_.fetch_add(1);
    WEFT_LOG(kInfo, "etcd has the key ", key_, ", for ", granted_s_, " s at a time");
  } else {
    all_held_.fetch_sub(1);
  }
}

void EtcdLease::Fail(const absl::Status& why) {
  // A request that was under way when the time was over has been in vain.
  if (engine_.clock().NowNs() >= lives_until_ns_) SetHeld(false);
  // What was granted, and has no key, ends by itself.
  if (state_ != State::kKeeping) lease_ = 0;
  state_ = State::kPaused;
  backoff_.OnFailure();
  uint64_t pause_us = backoff_.NextPauseUs();
  if (lease_ != 0) pause_us = std::min(pause_us, static_cast<uint64_t>(granted_s_) * 1'000'000 / 3);
  ScheduleIn(engine_, *this, pause_us);
  if (std::exchange(told_, true)) return;
  WEFT_LOG(kWarning, "the key ", key_, " cannot be ", held_ ? "kept" : "put", " in etcd, which is ",
           "tried again: ", ToStd(why.message()));
}

void EtcdLease::Withdraw(Function<void()> done) {
  done_ = std::move(done);
  state_ = State::kLeaving;
  client_.Cancel();
  // One that is asked for has no key, or one that goes with it.
  if (lease_ == 0) return End();
  ScheduleIn(engine_, *this, kWithdrawUs);
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
