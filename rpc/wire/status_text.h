// What callers read when a call could not be carried out. Every text names the address, and the
// UNAVAILABLE ones say whether the request may have run, in words and by DeliveryOf().
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/strings.h"
#include "weft/status.h"

namespace weft {

// The first kMaxStatusText bytes of a status text, not cutting a UTF-8 character in two.
std::string_view CutStatusText(std::string_view text);

// No connection came up. Codes that tell the caller to change something are kept; all others
// become UNAVAILABLE.
absl::Status NoServerError(std::string_view address, const absl::Status& why);

// The connection ended under a call.
absl::Status NotSentError(std::string_view address, const absl::Status& why);
absl::Status MayHaveRunError(std::string_view address, const absl::Status& why);
// The same for a request that left, and that the server had surely not taken when it began to go
// away: it takes none since.
absl::Status NotTakenError(std::string_view address, const absl::Status& why);

// The server has said that it goes away; the connection is still there.
absl::Status LeavingError(std::string_view address);

// Of a server: nothing of the call has run, and the reply says so. IsNotRun() is what a server's
// own errors alone answer with true: a handler that passes on the error of a call of its own, which
// was not sent, has run.
absl::Status NotRunError(absl::StatusCode code, std::string_view text);
absl::Status NotRunError(absl::Status status);  // the same, with its details
bool IsNotRun(const absl::Status& status);

// Of a server: an attempt of a call that runs exactly once was not run, because there is no record
// of the call, and can be none any more: an earlier attempt may have run. `why`: "its session has
// expired".
absl::Status OutcomeUnknownError(std::string_view why);
bool IsOutcomeUnknown(const absl::Status& status);

// Of a client: whether Weft's own errors of a request that was sent have this code. A handler's
// errors of the other codes are its answer.
bool MayBeWeftsOwn(absl::StatusCode code);

// "12 s", "5 ms", "250 us": the largest unit that keeps the number whole.
std::string DurationText(uint64_t us);

}  // namespace weft
