// What two sides agree on, as pure functions of what they told each other.
//
// The server decides, and tells its decisions in its hello; the client checks them. So both sides
// know every candidate path, in the same order, and the reason for each that was ruled out.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/control/hello.h"
#include "transport/path.h"

namespace weft {

// The protocol after the hellos that this release speaks. A change that an older peer would
// misunderstand raises kMax; kMin follows when support for old peers ends.
inline constexpr VersionRange kProtocolVersions = {1, 1};

// The highest version in both ranges. FAILED_PRECONDITION names both ranges.
absl::StatusOr<uint32_t> NegotiateVersion(const VersionRange& client, const VersionRange& server);

// The names in both lists, in the client's order.
std::vector<std::string> NegotiateFeatures(const std::vector<std::string>& client,
                                           const std::vector<std::string>& server);

// Every path that either side named, in the client's order of preference, those of the server alone
// at the end: kNotTried where both offer it and nothing that is known speaks against it, else
// kRejected with the reason.
std::vector<PathCandidate> NegotiatePaths(const ClientHello& client, const ServerHello& server);

// "shm: different hosts (...); tcp: ..."
std::string Summary(const std::vector<PathCandidate>& candidates);

bool HasViable(const std::vector<PathCandidate>& candidates);

// FAILED_PRECONDITION with all reasons, for when no candidate is left to try.
absl::Status NoCommonPath(const std::vector<PathCandidate>& candidates);

// OK when a server's hello answers `client`'s: a version from its range, features that it offered,
// candidates that both offer. DATA_LOSS names what does not fit.
absl::Status CheckServerHello(const ClientHello& client, const ServerHello& server);

// Why a path was chosen, for both sides' candidates: "same host (kernel 5f3c..., pid 4711, uid 0),
// libfabric 1.17 on both sides". `peer_process_id` is what the kernel vouched for.
std::string ChosenReason(PathKind kind, const HostFacts& self, const HostFacts& peer,
                         const PathOffer& own_offer, const PathOffer& peer_offer);

// "1.17", from major << 16 | minor.
std::string FabricVersionName(uint32_t version);

const PathOffer* FindOffer(const std::vector<PathOffer>& offers, PathKind kind);

}  // namespace weft
