// Attacks by who was let in: clients that keep all rules of the connection, or did for a while.
//
// Threads: one, the caller's.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "bench/hostile/attack.h"

namespace weft::bench {

// Offers as many large messages as it may, and never lets one be read.
absl::StatusOr<AttackReport> RunOffers(const AttackOptions& options);
// Asks for very much, and at some moment takes nothing any more.
absl::StatusOr<AttackReport> RunReaders(const AttackOptions& options);
// Lends memory for bulk, and stops in the middle of transfers.
absl::StatusOr<AttackReport> RunBulk(const AttackOptions& options);
// Opens streams, fills them, and reads none.
absl::StatusOr<AttackReport> RunStreams(const AttackOptions& options);
// Sends frames of calls and streams with random fields.
absl::StatusOr<AttackReport> RunFrames(const AttackOptions& options);
// Works through a wire that changes bytes.
absl::StatusOr<AttackReport> RunTampered(const AttackOptions& options);

// Everything that a client can do. `joined` is called when it is about to begin.
absl::StatusOr<AttackReport> RunEverything(const AttackOptions& options,
                                           const std::function<void()>& joined);

}  // namespace weft::bench
