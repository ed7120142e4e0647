// A key of etcd that is there as long as this process is, and no longer: under a lease that is kept
// alive. Server::Register() is for programs.
//
//   state     what there is                               what ends it
//   paused    a timer, after an error                     the timer -> granting; keeping, if the
//                                                         key's lease may still live
//   granting  a lease is asked for                        it is granted -> putting; error -> paused
//   putting   the key is put under it                     it is there -> held; error -> paused
//   held      a timer of a third of the lease's time      the timer -> keeping
//   keeping   the lease is asked to live on               it does -> held; it is gone -> granting;
//                                                         error -> paused
//   leaving   Withdraw() was called: the lease is revoked etcd has answered, or no member has in
//                                                         its part of kWithdrawUs -> ended
//   ended     nothing                                     destroyed
//
// A lease that is gone, for etcd was not reached in its time or has lost its data, is followed by a
// new one. Whoever is killed leaves a key that goes with its lease.
//
// A member has a third of the lease's time to answer, and kAnswerTimeoutUs at most: so the next one
// is asked while the lease lives. What a request has done that got no answer is not known: the
// number of a lease is kept until there is another one, and Withdraw() revokes it.
//
// Threads: the engine's, but for construction; `held` is read by any. On an engine of the real
//   clock, which somebody has to drive more often than the lease lasts.
// Lifetime: the owner's, on whose engine it runs; not destroyed inside what Withdraw() was given.
// Errors: EtcdClient's. They are in the log (the first of several in a row), and each attempt is at
//   the next member, after a pause.
// Invariants: *held counts this one while its key is there as far as this side knows: from when
//   etcd has said so until the time of the lease is over without another word.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/function.h"
#include "core/timer_wheel.h"
#include "rpc/client/backoff.h"
#include "rpc/naming/etcd_client.h"
#include "rpc/operation/member_timer.h"
#include "transport/engine.h"

namespace weft {

class EtcdLease final : private EtcdClient::Host, private Timer {
 public:
  static constexpr uint64_t kMinPauseUs = 100'000;  // a member that restarts takes a second
  static constexpr uint64_t kMaxPauseUs = 5'000'000;
  // How long a shutdown waits for etcd. Longer: a server whose etcd is down ends later. Shorter: a
  // key of one that is slow stays until the lease is over.
  static constexpr uint64_t kWithdrawUs = 1'000'000;
  static constexpr int64_t kMaxLeaseS = 24 * 3600;  // whatever etcd says that it has granted

  // REQUIRES: LoadCurlLibrary() was OK. `engine` and `held` outlive it.
  EtcdLease(EngineCore& engine, const EtcdTarget& target, const EtcdOptions& options,
            std::string key, std::string value, int64_t lease_s, std::atomic<uint32_t>* held);
  ~EtcdLease() override;

  void Start() { engine_.timers().Schedule(this, 0); }
  // The key goes, and `done` is called when it has, or etcd does not answer; perhaps inside. Once.
  void Withdraw(Function<void()> done);

 private:
  enum class State : uint8_t {
    kPaused = 1,
    kGranting = 2,
    kPutting = 3,
    kHeld = 4,
    kKeeping = 5,
    kLeaving = 6,
    kEnded = 7,
  };

  void OnEtcdMessage(std::string_view json) override { answer_ = json; }
  void OnEtcdEnd(const absl::Status& status) override;
  void OnTimer() override;

  void Grant();
  void Put();
  void KeepAlive();
  void Revoke();
  void Hold(int64_t granted_s);
  void SetHeld(bool held);
  void Fail(const absl::Status& why);
  void OnExpiry();
  void End();
  absl::Status TakeGrant();
  absl::Status TakeKeepAlive(int64_t* granted_s) const;

  EngineCore& engine_;
  const std::string key_;
  const std::string value_;
  const int64_t lease_s_;
  const size_t members_;
  std::atomic<uint32_t>& all_held_;

  EtcdClient client_;
  Backoff backoff_;
  State state_ = State::kPaused;
  std::string answer_;  // to what was asked last
  int64_t lease_ = 0;   // the number of the last one; 0: there was none
  int64_t granted_s_ = 0;
  uint64_t asked_ns_ = 0;        // when the lease was asked to live (on)
  uint64_t lives_until_ns_ = 0;  // the key's lease, as far as this side knows; 0: it has none
  bool held_ = false;
  bool told_ = false;   // in the log, of the error that is
  size_t revokes_ = 0;  // that were asked for
  uint64_t withdrawn_until_ns_ = 0;
  Function<void()> done_;  // Withdraw()'s
  // The lease is over by this side's clock. Armed as long as it is held.
  MemberTimer<&EtcdLease::OnExpiry> expiry_{*this};
};

}  // namespace weft
