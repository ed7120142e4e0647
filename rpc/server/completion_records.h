// What a server remembers of calls that run exactly once: which of them run, and how those ended
// whose clients may not have the answer. After RIFL (C. Lee et al., SOSP 2015).
//
// A client numbers its calls in a session. The first attempt of a call runs its handler and has a
// record. Others, which come when the client has lost the connection, wait for the handler, or are
// answered from the record; on a server with interceptors only if these let them pass. A record
// goes when the client says that it has the answer, and with its session: which the client ends, or
// whose lease ends when nothing was heard of the client for a while.
//
//   A record      of an attempt that comes                      what moves it
//   (none)        runs its handler -> running                   Begin(). Not below what the client
//                                                               has answers to: that is refused
//   running       waits                                         OnEnd() -> done; -> none, if the
//                                                               handler has not run after all
//   done          is answered from it                           the client has the answer, or the
//                                                               session's end -> none
//
// What a store has kept of a call is the answer to its attempts after a restart, and needs no
// record.
//
// The loss of its connection does not cancel the handler of such a call: the client comes back for
// the outcome. Its deadline, the client's Cancel() (by any attempt, or without one: GiveUp()), the
// end of its session or of a peer's calls and the server's end do; and a lease's time without a
// word from the client.
//
// Threads: the engine's, but for `CompletionRecord::id`, which is constant.
// Lifetime: a member of the ServerCore; calls leave it before they end.
// Errors: attempts that cannot be run are answered as "not run": ABORTED where the outcome of an
//   earlier one cannot be known any more.
// Invariants: one call at most is running for a record. Of a session, records are kMaxSessionCalls
//   at most, and of the server as many as ServerOptions::max_record_bytes allows: before a handler
//   runs, its record must have room; replies are added as they come. One session has at most half
//   of that, and so has one tenant where the server tells tenants apart; where it does not, one
//   client leaves an eighth to others (client_shares.h). Sessions are max_sessions at most, of a
//   tenant half of that, and kMaxConnectionSessions that one connection has opened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "core/client_shares.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "rpc/server/completion_store.h"
#include "rpc/server/server_call.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/metadata.h"
#include "weft/server.h"

namespace weft {

class ServerCore;
struct SessionRecords;

// Of one call. On the list of those whose connection is gone while they run.
struct CompletionRecord : public ListNode<> {
  CompletionId id;
  SessionRecords* session = nullptr;
  const MethodDescriptor* method = nullptr;
  ServerCall* running = nullptr;      // null: done
  IntrusiveList<ServerCall> waiting;  // while running: further attempts
  // Done:
  absl::Status status;
  std::string reply;      // encoded by protobuf
  absl::Cord attachment;  // of the reply
  Metadata metadata;
  uint64_t charged_bytes = 0;
};

// What the sessions of one tenant have.
struct TenantRecords {
  uint32_t sessions = 0;
  uint64_t bytes = 0;
};

// On the list of all, the one that was heard of longest ago first.
struct SessionRecords : public ListNode<> {
  CompletionStore::Session name;
  TenantRecords* tenant = nullptr;
  uint64_t heard_ns = 0;
  uint64_t first_unanswered = 1;
  uint32_t running = 0;
  uint32_t detached = 0;  // of these: their connections are gone
  uint64_t bytes = 0;     // of its records: at most half of all, before a handler runs
  uint64_t client = 0;    // that these count for: PathInfo::client of who began one when none was
  bool restored = false;  // from the store: that may know of calls that are not here
  bool ended = false;     // by its client: it goes with the last call that runs
  std::map<uint64_t, CompletionRecord> records;  // by sequence
};

class CompletionRecords final : private Timer {
 public:
  // What a record costs beside the reply: itself, and the call that runs.
  static constexpr uint64_t kRecordBytes = 1024;

  explicit CompletionRecords(ServerCore& core) : core_(core) {}
  ~CompletionRecords() override;

  // The server begins to listen, or has its first peer: takes over the store's sessions. Later
  // calls do nothing.
  void Restore();
  // An attempt of a call of the method of that number: its request is decoded. True: it goes on to
  // its handler, and OnEnd() follows; or, with ServerExtras::repeats, to its interceptors alone,
  // and then OnAllowed() follows. False: it waits, or has been answered.
  bool Begin(ServerCall& call, uint16_t method, const OnceAttempt& attempt);
  // The interceptors of a further attempt let it pass; or it has ended with `status`.
  void OnAllowed(ServerCall& call, absl::Status status);
  // An attempt has come that is cancelled already: so is the one that runs, if one does.
  void Cancel(const ServerCall& call, const CompletionId& id);
  // Its handler has finished, before it is answered. REQUIRES: it has a record.
  void OnEnd(ServerCall& call, const absl::Status& status);
  // The connection of a call that has a record is gone. False: it is to be cancelled.
  bool OnConnectionLost(ServerCall& call);

  // The server ends: cancels what runs without a connection.
  void CancelDetached();
  // It has ended.
  void Stop();

  // For the method: a new session, or the lease of one that there is.
  absl::StatusOr<SessionId> Renew(const SessionId& session, ServerConnection& connection);
  // The client of a session wants no outcome of these calls: cancels what runs of them. REQUIRES:
  // it has just been renewed.
  void GiveUp(const SessionId& session, std::span<const uint64_t> sequences);
  // The client of a session needs it no more: cancels what runs, and forgets it when nothing does.
  // REQUIRES: the same.
  void End(const SessionId& session);

  void CheckInvariants();

 private:
  void OnTimer() override;  // of the lease of the first one on by_age_
  void EndLeases();
  uint64_t lease_ns() const;

  SessionRecords* FindSession(const SessionId& id, uint32_t tenant);
  SessionRecords& AddSession(const CompletionStore::Session& name);
  absl::Status CheckNewSession(ServerConnection& connection);
  void CancelRunning(SessionRecords& session, uint64_t sequence);
  void Touch(SessionRecords& session);
  void Expire(SessionRecords& session);
  void CancelDetachedOf(SessionRecords& session);
  void Acknowledge(SessionRecords& session, uint64_t first_unanswered);
  void Erase(CompletionRecord& record);
  void Charge(CompletionRecord& record, uint64_t bytes);

  // What is known of a call: its record, while there is one, or what the store has.
  struct Known {
    CompletionRecord* record = nullptr;
    std::optional<CompletionStore::Outcome> stored;
    explicit operator bool() const { return record != nullptr || stored.has_value(); }
  };

  absl::Status CheckAttempt(const ServerCall& call, const SessionRecords* session,
                            const OnceAttempt& attempt) const;
  absl::Status CheckRoom(const SessionRecords& session, const OnceAttempt& attempt) const;
  // An error: the store does not say.
  absl::StatusOr<Known> Look(SessionRecords& session, const CompletionId& id) const;
  CompletionRecord& Add(SessionRecords& session, const CompletionId& id);
  // End a further attempt as the first one has ended, or will.
  void Repeat(ServerCall& call, Known known);
  void AnswerOrWait(ServerCall& call, CompletionRecord& record);
  static void Answer(ServerCall& call, absl::Status status, const std::string& reply);
  static void Refuse(ServerCall& call, absl::Status why);

  ServerCore& core_;
  bool restored_ = false;
  std::unordered_map<uint32_t, TenantRecords> tenants_;  // those that have sessions
  std::unordered_map<SessionId, SessionRecords, SessionIdHash> sessions_;
  ClientShares shares_;  // of ServerStats::record_bytes
  IntrusiveList<SessionRecords> by_age_;
  IntrusiveList<CompletionRecord> detached_;
};

}  // namespace weft
