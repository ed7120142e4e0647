// Bounds of OfiOptions.
//
// Threads: any.
#pragma once

#include "absl/status/status.h"
#include "transport/ofi/ofi.h"

namespace weft {

// INVALID_ARGUMENT names the option, its value and its bounds.
absl::Status CheckOptions(const OfiOptions& options);

}  // namespace weft
