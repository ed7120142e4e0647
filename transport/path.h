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
  kShm = 1,    // shared memory on one host (rings, no libfabric)
  kVerbs = 2,  // RDMA over InfiniBand, RoCE or iWARP (libfabric "verbs", MSG endpoints)
  kTcp = 5,    // kernel TCP (libfabric "tcp", MSG endpoints)
  kSim = 9,    // the simulated network; never offered to another process
};

// "shm", "verbs", "tcp", "sim".
std::string_view PathKindName(PathKind kind);

// What a path's bytes travel on. Of the four that verbs drives, the order is the default
// preference: both ends of a path are of one kind. The numbers stand in the handshake.
enum class LinkKind : uint8_t {
  kUnknown = 0,
  kSharedMemory = 1,
  kInfiniBand = 2,
  kRoceV2 = 3,  // RDMA in UDP, routable
  kRoceV1 = 4,  // RDMA in Ethernet frames: one broadcast domain
  kIwarp = 5,   // RDMA over TCP, by the card
  kIp = 6,      // the kernel's TCP, over whatever it routes
  kSimulated = 7,
};

// "shared memory", "InfiniBand", "RoCE v2", "RoCE v1", "iWARP", "TCP/IP", "simulated", "unknown".
std::string_view LinkKindName(LinkKind kind);

// The kind that `name` means; INVALID_ARGUMENT lists the known names.
absl::StatusOr<PathKind> ParsePathKind(std::string_view name);

// Comma-separated kinds in order of preference, as in WEFT_PATHS=verbs,tcp. Empty, unknown and
// repeated names are INVALID_ARGUMENT.
absl::StatusOr<std::vector<PathKind>> ParsePathList(std::string_view text);

// The path that carries a connection.
struct PathInfo {
  PathKind kind = PathKind::kTcp;
  LinkKind link = LinkKind::kUnknown;
  std::string provider;  // libfabric's name and version: "tcp (libfabric 1.17)"; "rings"
  std::string device;    // the provider's domain, with the port on verbs: "lo", "shm", "mlx5_0:1"
  std::string local;     // addresses as a person reads them
  std::string peer;
};

// One path that was considered while connecting, in the order tried: an offer of this side paired
// with one of the peer's. A path that only one side named has no names for the other.
struct PathCandidate {
  enum class Outcome : uint8_t { kChosen = 1, kRejected = 2, kNotTried = 3 };
  PathKind kind = PathKind::kTcp;
  Outcome outcome = Outcome::kNotTried;
  std::string reason;                  // words a person can act on
  LinkKind link = LinkKind::kUnknown;  // of this side's offer; of the peer's where there is none
  // Where a host has several of a kind (verbs): the device with its port, "mlx5_0:1", and the
  // numeric address of the port. Empty elsewhere.
  std::string device = {};
  std::string address = {};
  std::string peer_device = {};
  std::string peer_address = {};
};

std::string_view OutcomeName(PathCandidate::Outcome outcome);  // "chosen", "rejected", "not tried"

// "tcp"; "verbs mlx5_0:1 (RoCE v2, 10.0.0.7) to mlx5_1:1 (10.0.0.9)".
std::string CandidateName(const PathCandidate& candidate);

// One line for each candidate: "shm  chosen    same host: ...". Ends with a newline.
std::string ExplainPaths(const std::vector<PathCandidate>& candidates);

}  // namespace weft
