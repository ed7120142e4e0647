// Which paths a side allows, in what order (path_kinds.h), and over which RDMA devices: its
// options, else the environment, else everything but ofi_tcp.
//
// Threads: ReadPathPolicy() reads the environment; the rest are pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/control/hello.h"
#include "transport/devices/rdma_choice.h"
#include "transport/path.h"
#include "transport/path_kinds.h"
#include "transport/transport.h"

namespace weft {

// The environment's words beside kPathsVariable, each for the option of LinkOptions that it stands
// in for.
inline constexpr char kDevicesVariable[] = "WEFT_DEVICES";     // mlx5_0,mlx5_1:1
inline constexpr char kGidIndexVariable[] = "WEFT_GID_INDEX";  // 3
inline constexpr char kSubnetsVariable[] = "WEFT_SUBNETS";     // 10.1.0.0/16,fd00::/8
inline constexpr char kRoutedVariable[] = "WEFT_ROUTED";       // 1

// Names in a list of devices or subnets; nobody has more RDMA ports.
inline constexpr size_t kMaxListed = 64;
// Of a GID; the kernel's tables have up to some thousand entries.
inline constexpr int kMaxGidIndex = 4095;

struct PathPolicy : PathKinds {
  RdmaFilter rdma;
  bool allow_routed = false;
};

// INVALID_ARGUMENT names the option or variable, its value, and what it may be.
absl::StatusOr<PathPolicy> ReadPathPolicy(const LinkOptions& options);

// `all` (in default order) as the policy has it: what is allowed first and in its order, then one
// offer for each kind that is denied, with the reason. An allowed path that `all` lacks is "not
// part of this program".
std::vector<PathOffer> ApplyPolicy(const PathPolicy& policy, const std::vector<PathOffer>& all);

// The variables that are set, and what holds where they are not: a line each.
std::string DescribeEnvironment();

// INVALID_ARGUMENT names the option, its value and its bounds.
absl::Status CheckLinkOptions(const LinkOptions& options, const std::string& hello);

}  // namespace weft
