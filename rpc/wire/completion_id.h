// The names of calls that run exactly once (docs/wire_format.md, "Calls that run exactly once").
//
// A client opens a session at a server, and numbers its calls in it: so each attempt of a call,
// over whichever connection, names the same call.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

// 128 random bits of the server's: no session's is used again, and nobody else's can be guessed.
struct SessionId {
  uint64_t high = 0;
  uint64_t low = 0;

  friend constexpr bool operator==(const SessionId&, const SessionId&) = default;
};

// For hash tables: all bits are random.
struct SessionIdHash {
  size_t operator()(const SessionId& id) const { return static_cast<size_t>(id.low); }
};

// One call of a session's client.
struct CompletionId {
  SessionId session;
  uint64_t sequence = 0;  // 1, 2, 3, ... in the session

  friend constexpr bool operator==(const CompletionId&, const CompletionId&) = default;
};

// One attempt of it, as it stands in a request's extras.
struct OnceAttempt {
  CompletionId id;
  // The lowest sequence whose outcome the client does not have: the server forgets those below.
  uint64_t first_unanswered = 1;
};

// Calls of one session that may be without their answers, counted from the oldest of them: as many
// as a connection has slots at most (kMaxOutstandingCalls). Higher: a server may have to keep more
// for each session; lower: a call that takes long holds up those behind it sooner.
inline constexpr uint64_t kMaxSessionCalls = 4096;

// Sessions that one connection has opened at a server, and that there still are. A channel needs
// one at a time, and has a second one while the lease of that before lasts; more only where a
// handler of an earlier one does not end. Higher: one client takes more of
// ServerOptions::max_sessions from the others; lower: such a channel has to wait.
inline constexpr uint32_t kMaxConnectionSessions = 8;

// The number of the server's own method, which opens and renews sessions: behind all that services
// can have.
inline constexpr uint16_t kSessionMethod = 0xFFFE;
inline constexpr std::string_view kSessionServiceName = "weft.rpc.Sessions";

// Of a session, after its client was heard of last.
inline constexpr uint64_t kShortestSessionLeaseUs = 1'000'000;  // 1 s: more than round trips vary
inline constexpr uint64_t kLongestSessionLeaseUs = 3'600'000'000;  // 1 h: more is a mistake

}  // namespace weft
