// Attacks by processes of their own, which are killed in the middle of everything.
//
// Threads: one, the caller's. Lifetime: the children end with this process, whatever ends it.
#pragma once

#include "absl/status/statusor.h"
#include "bench/hostile/attack.h"

namespace weft::bench {

// Clients that do everything, each killed by SIGKILL after some milliseconds.
absl::StatusOr<AttackReport> RunKilled(const AttackOptions& options);

// Over shared memory. Clients of the same user that join as they should, and then write over the
// rings, ready flags, doorbells and tables that they share with the server, seal and shrink their
// files, and close them. (What a peer may open by the user's right alone, the server's pools, is
// left alone: who can do that can write to all of the server's memory, by ptrace(2).)
absl::StatusOr<AttackReport> RunScribblers(const AttackOptions& options);

// The children.
absl::StatusOr<AttackReport> RunKilledChild(const AttackOptions& options);
absl::StatusOr<AttackReport> RunScribbler(const AttackOptions& options);

}  // namespace weft::bench
