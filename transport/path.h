// A Path is a provider, a device and an address that can carry a connection; this file names
// paths and records why one was chosen.
//
// Threads: plain values, no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// What the bytes travel over. The order is the default preference among paths that both sides
// have. The numbers stand in the handshake: never reuse one.
enum class PathKind : uint8_t {
  kShm = 1,  // shared memory on one host (libfabric "shm", RDM endpoints)
  kTcp = 5,  // kernel TCP (libfabric "tcp", MSG endpoints)
  kSim = 9,  // the simulated network; never offered to another process
};

// "shm", "tcp", "sim".
std::string_view PathKindName(PathKind kind);

// The kind that `name` means; INVALID_ARGUMENT lists the known names.
absl::StatusOr<PathKind> ParsePathKind(std::string_view name);

// Comma-separated kinds in order of preference, as in WEFT_PATHS=shm,tcp. Empty, unknown and
// repeated names are INVALID_ARGUMENT.
absl::StatusOr<std::vector<PathKind>> ParsePathList(std::string_view text);

// The path that carries a connection.
struct PathInfo {
  PathKind kind = PathKind::kTcp;
  std::string provider;  // libfabric's name and version: "tcp (libfabric 1.17)"
  std::string device;    // the provider's domain: "lo", "eth0", "shm"
  std::string local;     // addresses as a person reads them
  std::string peer;
};

// One path that was considered while connecting, in the order tried.
struct PathCandidate {
  enum class Outcome : uint8_t { kChosen = 1, kRejected = 2, kNotTried = 3 };
  PathKind kind = PathKind::kTcp;
  Outcome outcome = Outcome::kNotTried;
  std::string reason;  // words a person can act on
};

// One line for each candidate: "shm  chosen    same host: ...". Ends with a newline.
std::string ExplainPaths(const std::vector<PathCandidate>& candidates);

}  // namespace weft
