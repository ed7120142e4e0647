// Attacks by who is no client: connections that say nothing, little, slowly, nonsense, or what
// another client has said before.
//
// Threads: one, the caller's.
#pragma once

#include "absl/status/statusor.h"
#include "bench/hostile/attack.h"

namespace weft::bench {

// Connects and hangs up, 10,000 times a second at the most.
absl::StatusOr<AttackReport> RunStrangers(const AttackOptions& options);
// Nothing, a part of a hello, and a byte of it each second.
absl::StatusOr<AttackReport> RunHalfOpen(const AttackOptions& options);
// Random bytes, and recordings with random changes.
absl::StatusOr<AttackReport> RunGarbage(const AttackOptions& options);
// Whole handshakes and joins as another client has said them.
absl::StatusOr<AttackReport> RunReplay(const AttackOptions& options);
// The first words alone, as many as it can: a server answers each with its own hello, and under TLS
// with a key exchange and a signature.
absl::StatusOr<AttackReport> RunHellos(const AttackOptions& options);

}  // namespace weft::bench
