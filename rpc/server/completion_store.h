// Where an application keeps the outcomes of calls that run exactly once, so that this holds across
// a restart of the server, too (ServerOptions::completion_store).
//
// Without a store a server remembers outcomes as long as it runs. With one:
//   - The handler writes the outcome of its call with its effects, in one transaction of the
//     application's storage, before it finishes the call: the name of the call
//     (ServerContext::completion_id()), the status, and the encoded reply. What must be atomic is
//     that one transaction: effects without the outcome would be repeated after a restart, and an
//     outcome without the effects would hide that they are missing.
//   - A handler that has changed nothing need not write: its call runs again if the server is
//     restarted before the client has the answer.
//   - In a session from before a restart, Weft asks for the outcome with every attempt of a call
//     that it has no record of, before it runs it: so Find() must be quick. It keeps none of these
//     outcomes itself. In other sessions it never asks.
//   - Sessions live across restarts: the store keeps their names. A session begins a whole lease
//     anew when the server starts.
//
// One server at a time uses a store. A second one, or an earlier one that still runs, would not see
// which calls run in the other.
//
// Threads: Weft calls it on the server's engine: what takes long there holds up all calls. Handlers
//   write on their own threads, while Weft may be inside.
// Lifetime: outlives the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/wire/completion_id.h"

namespace weft {

class CompletionStore {
 public:
  virtual ~CompletionStore() = default;

  struct Session {
    SessionId id;
    uint32_t tenant = 0;  // ServerOptions::tenant_of
  };
  // How a call has ended. REQUIRES: the handler finishes it with the same. Metadata and attachments
  // of the reply are not kept.
  struct Outcome {
    absl::Status status;
    std::string reply;  // encoded by protobuf (of a struct of fixed layout: its message); if OK
  };

  // All that were added and not removed. Once, when the server begins to listen or has its first
  // peer.
  virtual std::vector<Session> Sessions() = 0;
  // Durable when this returns OK. An error: the client gets no session, and reads the words.
  virtual absl::Status AddSession(const Session& session) = 0;
  // Its client was not heard of for a lease: the session is over, and so are all of its outcomes.
  // Need not be durable at once: an expired session that is there after a restart expires again.
  virtual void RemoveSession(const SessionId& session) = 0;

  // What a handler has written for this call; nullopt: nothing, so it has changed nothing. An
  // error: the call is not run, and the client tries again (UNAVAILABLE).
  virtual absl::StatusOr<std::optional<Outcome>> Find(const CompletionId& call) = 0;
  // The client has the answers to its calls with smaller sequences, and asks for them no more. Need
  // not be durable: what is left goes with a later Forget(), or with the session.
  virtual void Forget(const SessionId& session, uint64_t first_unanswered) = 0;
};

}  // namespace weft
