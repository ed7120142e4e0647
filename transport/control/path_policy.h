// Which paths a side allows, and in what order: its options, else the environment, else all.
//
// Threads: ReadPathPolicy() reads the environment; the rest are pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/control/hello.h"
#include "transport/path.h"
#include "transport/transport.h"

namespace weft {

// The environment's word: a comma-separated list of paths in order of preference.
inline constexpr char kPathsVariable[] = "WEFT_PATHS";

struct PathPolicy {
  std::vector<PathKind> allowed;  // in order of preference
  std::string denial;             // why the others are not: "denied by WEFT_PATHS=tcp"
};

// INVALID_ARGUMENT: WEFT_PATHS or `options.paths` names what is no path of a real network.
absl::StatusOr<PathPolicy> ReadPathPolicy(const LinkOptions& options);

// `all` (in default order) as the policy has it: what is allowed first and in its order, then what
// is denied, with the reason. An allowed path that `all` lacks is "not part of this program".
std::vector<PathOffer> ApplyPolicy(const PathPolicy& policy, const std::vector<PathOffer>& all);

// INVALID_ARGUMENT names the option, its value and its bounds.
absl::Status CheckLinkOptions(const LinkOptions& options, const std::string& hello);

}  // namespace weft
