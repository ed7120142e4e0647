// One server of a channel over many: its connection, and how its calls end.
//
//   state        from                      to
//   kNew         construction              Connect() -> kConnecting, Drain() -> kDrained
//   kConnecting  Connect()                 it is connected -> kReady; an attempt fails -> kDown
//   kReady       it is connected           it is lost -> kDown; it is about to shut down,
//                                          or Drain() -> kLeaving
//   kLeaving     what is under way goes    the connection is gone -> kDown,
//                on, nothing is new        or after Drain() -> kDrained
//   kDown        it is tried again and     it is connected -> kReady; Drain() -> kDrained
//                again
//   kDrained     it has no connection      destroyed
//
// Ejected is a mark beside the state, with an end (docs/balancing.md, "Ejection").
//
// Threads: the engine's.
// Lifetime: the Balancer's. The destructor ends what is under way; callbacks may run inside.
// Errors: none of its own; calls end as channel.h says.
// Invariants: after Connect(), until Drain(), it has a connection, an attempt, or a pause before
//   one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/timer_wheel.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/client_calls_host.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/connection_watcher.h"
#include "rpc/client/server_choice.h"
#include "transport/engine.h"

namespace weft {

class BalancedServer final : private ConnectionWatcher, private CallsWatcher, private Timer {
 public:
  enum class State : uint8_t {
    kNew = 1,
    kConnecting = 2,
    kReady = 3,
    kLeaving = 4,
    kDown = 5,
    kDrained = 6,
  };

  // None of these destroys a server, starts a call or ends one.
  class Host {
   public:
    // Its state or its mark has changed.
    virtual void OnServerState(BalancedServer& server) = 0;
    // It has failed so often in a row as EjectionOptions say.
    virtual void OnServerFailing(BalancedServer& server) = 0;
    // What WantRoom() was for.
    virtual void OnServerRoom() = 0;

   protected:
    ~Host() = default;
  };

  // All outlive it. `options`: of a channel to it alone.
  BalancedServer(Host& host, EngineCore& engine, const ListedServer& server,
                 const ChannelOptions& options, const EjectionOptions& ejection,
                 ClientCalls* front);
  ~BalancedServer() override;
  BalancedServer(const BalancedServer&) = delete;
  BalancedServer& operator=(const BalancedServer&) = delete;

  // --- every call -------------------------------------------------------------------------------

  ClientCalls& calls() { return calls_; }
  // Host::OnServerRoom() comes when a slot or credit is free again. REQUIRES: it had no room now.
  void WantRoom() {
    if (calls_.is_open()) calls_.WantRoom();
  }

  // It has just refused a call because it has too many, or too much, to do: others are better now.
  bool IsSpared(uint64_t now_ns) {
    if (now_ns < spared_until_ns_) return true;
    spared_until_ns_ = 0;
    return false;
  }
  // Whether that is worth a look at the clock.
  bool may_be_spared() const { return spared_until_ns_ != 0; }

  // --- its life ---------------------------------------------------------------------------------

  // It has a connection from now on.
  void Connect();
  // It takes nothing new; what is under way ends within `drain_us`, or with UNAVAILABLE.
  void Drain(uint64_t drain_us);
  // It gets no calls before that time.
  void Eject(uint64_t until_ns);

  // --- facts ------------------------------------------------------------------------------------

  const ListedServer& server() const { return server_; }
  void SetServer(const ListedServer& server) { server_ = server; }  // of the same address
  State state() const { return state_; }
  bool ready() const { return state_ == State::kReady; }
  bool ejected() const { return ejected_; }
  bool draining() const { return draining_; }
  // It has calls, or will soon, as far as is known.
  bool usable() const { return !ejected_ && state_ <= State::kReady; }
  // An attempt is under way.
  bool connecting() const { return connection_->state() == ChannelState::kConnecting; }
  const absl::Status& last_failure() const { return last_failure_; }
  ServerFacts facts();
  ClientConnection& connection() { return *connection_; }

  // Since the last time that this was asked.
  SuccessCount TakeCount();

  // The Balancer's notes.
  bool chosen = false;       // it stands among those that may be chosen
  uint32_t tier = 0;         // 0: is used first
  State seen = State::kNew;  // its state, and its mark, when who may be chosen was looked up last
  bool seen_ejected = false;
  uint32_t ejections_due = 0;  // the next one lasts so many times ejection_us, and one more

 private:
  // ConnectionWatcher.
  void OnConnected(Connection&) override;
  void OnConnectionLeaving(const absl::Status& why) override;
  bool IsBusy() const override { return false; }
  void OnConnectionLost() override;
  void OnNoConnection(const absl::Status& why) override;
  void OnRoom() override {}  // the calls' OnFreed() tells more

  // CallsWatcher.
  void OnEnd(const ClientCall& call, const absl::Status& status) override;
  void OnFreed() override { host_.OnServerRoom(); }

  // Timer: the ejection is over, or (draining) the time is.
  void OnTimer() override;

  // For so long after such a refusal. A server that is overloaded has room for a call whenever one
  // ends: every few milliseconds where calls take long, and then what comes in between is refused.
  // Longer: a server that has room is left idle, and the others have its calls; shorter: more
  // refusals, of which a client now meets 200 in a second.
  static constexpr uint64_t kSpareNs = 5 * kNsPerMs;

  void Enter(State state);
  void Fail();
  // Of calls: how streams end says nothing for or against a server.
  uint64_t successes() const;

  Host& host_;
  EngineCore& engine_;
  const EjectionOptions& ejection_;
  ListedServer server_;
  ClientConnection* const connection_;  // ends itself when it was shut down
  ClientCalls& calls_;                  // of connection_

  State state_ = State::kNew;
  bool ejected_ = false;
  bool on_trial_ = false;  // since the end of its ejection it has not answered well
  bool draining_ = false;
  absl::Status last_failure_;
  uint64_t spared_until_ns_ = 0;  // 0: it is not
  uint32_t ejections_ = 0;
  uint64_t attempts_ok_ = 0;   // which calls_ok() does not count
  uint64_t not_answered_ = 0;  // which it counts: one-way messages
  uint64_t failures_ = 0;
  uint32_t in_a_row_ = 0;          // failures
  uint64_t successes_before_ = 0;  // the last failure
  SuccessCount counted_;           // by TakeCount()
};

}  // namespace weft
