// Which kinds of path a side allows, and in what order: its options, else WEFT_PATHS, else all but
// ofi_tcp. Which RDMA devices besides: control/path_policy.h.
//
// Threads: ReadPathKinds() reads the environment: not on the way of a call.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/path.h"

namespace weft {

inline constexpr char kPathsVariable[] = "WEFT_PATHS";  // verbs,tcp  or  ^tcp: all but tcp

struct PathKinds {
  struct Denial {
    PathKind kind;
    std::string why;  // "denied by WEFT_PATHS=tcp"
  };

  std::vector<PathKind> allowed;  // in order of preference; not empty
  std::vector<Denial> denied;     // all others, without ofi_tcp where nobody has named it

  bool Allows(PathKind kind) const;
};

// INVALID_ARGUMENT names the option or variable, its value, and what it may be.
absl::StatusOr<PathKinds> ReadPathKinds(const LinkOptions& options);

}  // namespace weft
