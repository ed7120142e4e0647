// The sessions of a channel in which its calls run exactly once (RetryOptions::exactly_once), one
// after the other: they give each call its name at the server, whatever becomes of connections.
//
// One is opened for the first such call, and renewed while calls of it are without their answers. A
// session that was not used for a while expires at the server, and the next call opens another. So
// does one after a restart of the server, if that has forgotten the session. The channel's end ends
// its session.
//
//   state     what there is                        what ends it
//   kNone     no session                           Want() -> kOpening; the answer to a call from
//                                                  before kAbsent -> kOpen
//   kOpening  calls wait for one. A SessionCall    its answer -> kOpen; it failed, or it was for
//             is under way, perhaps still for the  another session -> kNone, and OnSession() says
//             session before                       so; the answer that there are none -> kAbsent
//   kOpen     the session in which calls begin     Lose(), half a lease without calls, or the
//                                                  server does not know it -> kNone
//   kAbsent   the server keeps none, as far as is  OnConnected() to one that does -> kNone
//             known
//   OnConnected() to a server that keeps none: from each of them -> kAbsent.
//
// Threads: the engine's, but for the constructor.
// Lifetime: a member of the channel's RetriedCalls, as is its host. A call's Name keeps what it
//   needs of a session that is not the present one any more.
// Invariants: a sequence is taken once. At most one call to the server is under way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/timer_wheel.h"
#include "rpc/client/client_call.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/sessions.pb.h"
#include "transport/engine.h"

namespace weft {

class MethodTable;

class ClientSessions final : private Timer {
 private:
  struct Session {
    SessionId id;
    uint64_t lease_ns = 0;
    uint64_t next_sequence = 1;
    std::set<uint64_t> unanswered;
    uint64_t used_ns = 0;  // when a call last began or ended

    uint64_t first_unanswered() const {
      return unanswered.empty() ? next_sequence : *unanswered.begin();
    }
  };

 public:
  // Of a call, at the server.
  class Name {
   public:
    bool given() const { return session_ != nullptr; }
    // For an attempt that is made now.
    OnceAttempt Attempt() const {
      return {{session_->id, sequence_}, session_->first_unanswered()};
    }

   private:
    friend class ClientSessions;
    std::shared_ptr<Session> session_;
    uint64_t sequence_ = 0;
  };

  class Host {
   public:
    // OK: calls that wait may Take() again, for a session is open, or one has ended that was full.
    // Else none could be opened: `answered`, if it is the server that says so.
    virtual void OnSession(const absl::Status& status, bool answered) = 0;

   protected:
    ~Host() = default;
  };

  ClientSessions(Host* host, ClientCalls& calls, MethodTable& methods, EngineCore& engine);
  ~ClientSessions() override;

  enum class Taken : uint8_t { kYes = 1, kNotYet = 2, kNoSessions = 3 };
  // A name for a call. kNotYet: Want() one, and OnSession() follows. kNoSessions: the server keeps
  // none, as far as it is known.
  Taken Take(Name* name);
  // Opens a session, unless that is under way or one is open that is full. It waits for a server
  // only if all who want it do: `patient`. OnSession() may come inside.
  void Want(bool patient);
  // The call has its answer, or wants none any more: attempts of it are not answered from now on.
  // True: calls that wait may Take() again.
  bool GiveBack(const Name& name);
  // Behind GiveBack(), of a call whose handler may still run: tells the server to cancel that, if
  // there is a connection, or one comes up at once. OnSession() may come inside.
  void GiveUp(const Name& name);
  // The channel ends: the server may forget the session at once. It hears of it if there is a
  // connection with room; else the lease ends. REQUIRES: no call begins any more.
  void End();
  // The server does not know the session.
  void Lose(const Name& name);

  // A connection has opened: what its server says. 0: it keeps no sessions.
  void OnConnected(uint64_t lease_us);
  // The server of the connection, if there is one, keeps sessions.
  bool server_has_sessions() const { return state_ != State::kAbsent; }

 private:
  enum class State : uint8_t { kNone = 1, kOpening = 2, kOpen = 3, kAbsent = 4 };

  // Calls that are given up, and of which the server was not told. A hundredth of that is a lot;
  // handlers of further ones run to their ends, or to that of the lease.
  static constexpr size_t kMaxGivenUp = 1024;

  // A call to the server that opens, renews or ends a session.
  class SessionCall final : public ClientCall {
   public:
    SessionCall(ClientSessions& its_owner, const SessionId& session, bool patient);
    void Complete(absl::Status status) override { owner.OnEnd(std::move(status)); }

    ClientSessions& owner;
    const bool opens;
    rpc::SessionRequest asked;
    rpc::SessionReply answer;
  };

  void OnTimer() override;
  void OnEnd(absl::Status status);
  void OnRenewed(const SessionId& id, const absl::Status& status);
  void Open(const rpc::SessionReply& reply);
  void Leave(State next);
  void Use();
  void SendGivenUp();

  Host& host_;
  ClientCalls& calls_;
  EngineCore& engine_;
  const uint32_t method_;
  State state_ = State::kNone;
  std::shared_ptr<Session> session_;  // while kOpen
  std::vector<uint64_t> given_up_;    // of it: the server is to be told
  std::optional<SessionCall> call_;   // while it is under way
};

}  // namespace weft
