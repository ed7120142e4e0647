// The session of a channel in which its calls run exactly once (RetryOptions::exactly_once): the
// name that each call has at the server, whatever becomes of connections.
//
// It is opened for the first such call, and renewed while calls of it are without their answers. A
// session that was not used for a while expires at the server, and the next call opens another. So
// does one after a restart of the server, if that has forgotten the session.
//
//   state     from                            to
//   none      construction, Lose(), idle      Want() -> opening
//   opening   Want()                          -> open, or none: it failed, and OnSession() says so
//   open      the server's answer             -> none
//   absent    the server keeps no sessions    OnConnected() -> none, if the next one does
//
// Threads: the engine's, but for the constructor.
// Lifetime: a member of the channel's RetriedCalls, as is its host. A call's Ticket keeps what it
//   needs of a session that is not the present one any more.
// Invariants: a sequence is taken once. At most one call to the server is under way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/timer_wheel.h"
#include "rpc/client/client_call.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/sessions.pb.h"
#include "transport/engine.h"

namespace weft {

class MethodTable;

class ClientSession final : private Timer {
 private:
  struct Opened {
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
  // A call's place in a session.
  class Ticket {
   public:
    bool taken() const { return opened_ != nullptr; }
    // For an attempt that is made now.
    OnceAttempt Attempt() const { return {{opened_->id, sequence_}, opened_->first_unanswered()}; }

   private:
    friend class ClientSession;
    std::shared_ptr<Opened> opened_;
    uint64_t sequence_ = 0;
  };

  class Host {
   public:
    // OK: calls that wait may Take() again, for a session is open, or one is lost that was full.
    // Else none could be opened: `answered`, if it is the server that says so.
    virtual void OnSession(const absl::Status& status, bool answered) = 0;

   protected:
    ~Host() = default;
  };

  ClientSession(Host* host, ClientCalls& calls, MethodTable& methods, EngineCore& engine);
  ~ClientSession() override;

  enum class Taken : uint8_t { kYes = 1, kNotYet = 2, kNoSessions = 3 };
  // A place for a call. kNotYet: Want() one, and OnSession() follows. kNoSessions: the server keeps
  // none, as far as it is known.
  Taken Take(Ticket* ticket);
  // Opens a session, unless that is under way or one is open that is full. It waits for a server
  // only if all who want it do: `patient`. OnSession() may come inside.
  void Want(bool patient);
  // The call has its answer, or wants none any more: attempts of it are not answered from now on.
  // True: there is room again.
  bool GiveBack(const Ticket& ticket);
  // The server does not know the session.
  void Lose(const Ticket& ticket);

  // A connection has opened: what its server says. 0: it keeps no sessions.
  void OnConnected(uint64_t lease_us);
  bool server_has_sessions() const { return server_has_sessions_; }

 private:
  // A call that opens or renews a session.
  class Renewal final : public ClientCall {
   public:
    Renewal(ClientSession& its_owner, uint32_t its_method, const SessionId& session, bool patient);
    void Complete(absl::Status status) override { owner.OnRenewed(std::move(status)); }

    ClientSession& owner;
    const bool opens;
    rpc::SessionRequest asked;
    rpc::SessionReply answer;
  };

  void OnTimer() override;
  void OnRenewed(absl::Status status);
  void Use();

  Host& host_;
  ClientCalls& calls_;
  EngineCore& engine_;
  const uint32_t method_;
  std::shared_ptr<Opened> opened_;  // null: none, or opening
  std::optional<Renewal> renewal_;  // while it is under way
  bool wanted_ = false;             // as soon as the renewal that is under way has ended
  bool absent_ = false;
  bool server_has_sessions_ = false;
};

}  // namespace weft
