// What two sides agree on, as pure functions of what they told each other.
//
// The server decides which paths are candidates, and sends its decisions in its hello; the client
// checks them. So both sides know every candidate, in the same order, and the reason for each that
// is rejected.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/control/hello.h"
#include "transport/framing/connection_owner.h"
#include "transport/path.h"

namespace weft {

// The protocol after the hellos that this release speaks. A change that an older peer would
// misunderstand raises `max`; `min` follows when support for old peers ends.
inline constexpr VersionRange kProtocolVersions = {1, 1};

// The highest version in both ranges. FAILED_PRECONDITION names both ranges.
absl::StatusOr<uint32_t> NegotiateVersion(const VersionRange& client, const VersionRange& server);

// What is used only where both sides have it, by names that stand in the handshake: never reuse
// one.
inline constexpr char kRequestsFeature[] = "requests";  // frames of kind 4 and 5
inline constexpr char kLeasesFeature[] = "leases";      // Grants
// Batches are numbered from first_sequence of their receiver's hello on, not from 0.
inline constexpr char kSequencesFeature[] = "sequences";
// Batches end in batch_proof of their receiver's hello where nothing else tells whose they are.
inline constexpr char kProofsFeature[] = "proofs";

// What this release has.
std::vector<std::string> OwnFeatures();

// The names in both lists, in the client's order.
std::vector<std::string> NegotiateFeatures(const std::vector<std::string>& client,
                                           const std::vector<std::string>& server);

// RDMA pairs that a client may try, and partners of one of its addresses: enough for several ports
// and both families, and few enough that trying them all ends within some seconds.
inline constexpr size_t kMaxViableRdmaPairs = 8;
inline constexpr size_t kMaxPartners = 2;

// The candidates, in the order to try: the client's order of preference holds, and among the
// partners of one of its RDMA addresses the server's. A pair of RDMA addresses is worth trying if
// both are of one link kind and family and have a common subnet; RoCE v2 and iWARP also without
// one, after those that have, if either side allows it. Every offer of either side that nothing
// came of has a row with the reason. At most kMaxCandidates.
std::vector<PathPair> NegotiatePaths(const ClientHello& client, const ServerHello& server,
                                     bool server_allows_routed = false);

// The same for people: kNotTried where there is no reason against it.
std::vector<PathCandidate> DescribePairs(const std::vector<PathPair>& pairs,
                                         const std::vector<PathOffer>& clients,
                                         const std::vector<PathOffer>& servers, bool as_client);

// "shm: different hosts (...); tcp: ..."
std::string Summary(const std::vector<PathCandidate>& candidates);

bool HasViable(const std::vector<PathCandidate>& candidates);

// FAILED_PRECONDITION with all reasons, for when no candidate is left to try.
absl::Status NoCommonPath(const std::vector<PathCandidate>& candidates);

// OK when a server's hello answers `client`'s: a version from its range, features that it offered,
// candidates made of offers that there are, and to be tried only where both are available and fit
// together. DATA_LOSS names what does not fit.
absl::Status CheckServerHello(const ClientHello& client, const ServerHello& server);

// What the hellos, and the PathTry and PathReady of a link, have settled, as one side sees it.
// `batch_bytes`: the smaller of what both can take.
LinkAgreement Agree(const ClientHello& client, const ServerHello& server, bool as_client,
                    uint32_t batch_bytes);

// Why a path was chosen, for both sides' candidates: "same host (kernel 5f3c..., pid 4711, uid 0),
// libfabric 1.17 on both sides".
std::string ChosenReason(const HostFacts& self, const HostFacts& peer, const PathOffer& own_offer,
                         const PathOffer& peer_offer);

// "1.17", from major << 16 | minor.
std::string FabricVersionName(uint32_t version);

}  // namespace weft
