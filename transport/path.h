// A Path is a provider, a device and an address that can carry a connection; this file names
// paths, says what a program may ask of them, and records why one was chosen.
//
// Threads: plain values, no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/identity.h"

namespace weft {

// What the bytes travel over. The order is the default preference among paths that both sides
// have. The numbers stand in the handshake: never reuse one.
enum class PathKind : uint8_t {
  // Shared memory on one host (rings, no libfabric). It was 1 while peers handed over eventfds,
  // which could stop each other: both releases take the other's for a path that they do not know.
  kShm = 11,
  kVerbs = 2,  // RDMA over InfiniBand, RoCE or iWARP (libfabric "verbs", MSG endpoints)
  kTcp = 10,   // kernel TCP, by sockets of our own
  // Kernel TCP as libfabric has it ("tcp", MSG endpoints). For trusted networks only: what a
  // connected peer writes is not checked by the provider, and can end this process. So it is
  // offered only where both sides name it (LinkOptions::paths, WEFT_PATHS).
  kOfiTcp = 5,
  kSim = 9,  // the simulated network; never offered to another process
};

// "shm", "verbs", "tcp", "ofi_tcp", "sim".
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
  std::string provider;  // "verbs (libfabric 1.17)"; "sockets", "rings"
  std::string device;    // the provider's domain, with the port on verbs: "lo", "shm", "mlx5_0:1"
  std::string local;     // address as a person reads it; verbs, ofi_tcp: of the port in use
  // Where the kernel says that the peer's control connection comes from, on every path, and never
  // what the peer says of itself: "10.0.0.7:35100", "unix:(process 77 of user 1000)".
  std::string peer;
  PeerIdentity identity;  // who that is, as far as it has proved it
  // Where this side was dialed: which of the listener's clients the peer is, a number that has no
  // other meaning. It is told before a path is up, and is of who TLS has proved the peer to be;
  // else of a user of a Unix socket; else of an address, where all of this host are one, and of
  // IPv6 the first 64 bits count. 0: this side has dialed.
  uint64_t client = 0;
  // All bytes of the connection that leave this host are encrypted, and cannot be changed on the
  // way unnoticed: with SecurityOptions over tcp; over verbs and ofi_tcp where either side has
  // `require_encryption` (without, messages and payloads are, and one-sided operations are not).
  // False over shared memory, whose bytes do not leave it.
  bool is_encrypted = false;
  // Over tcp with SecurityOptions::kernel_tls on this side: what has come of that for this side's
  // link, in words: "records by the kernel", or "records by Weft: " and why. Empty without.
  std::string kernel_tls = {};
  // Which of the server's engines has the connection, from 0, and how many share its address; both
  // sides are told. 0 of 0: the server is of an older release, which does not say.
  uint32_t server_engine = 0;
  uint32_t server_engines = 0;
};

// One line, for people, without its end: who the peer of an open connection is and whether TLS says
// so, and what becomes of the bytes.
//   peer: certificate "CN=store-7", names store-7.example; TLS 1.3, all bytes are encrypted
//   peer: process 77 of user 1000, by the kernel's word; no TLS, the bytes stay on this host
std::string SecurityText(const PathInfo& path);

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

// What LinkOptions::peer_timeout_ns may be, besides 0. Lower would take a scheduler's hiccup for a
// death; higher is no better than 0, for an hour is beyond what any caller waits.
inline constexpr uint64_t kMinPeerTimeoutNs = 100'000'000;
inline constexpr uint64_t kMaxPeerTimeoutNs = 3'600'000'000'000;

// What LinkOptions::transfer_timeout_ns may be, besides 0: for the same reasons.
inline constexpr uint64_t kMinTransferTimeoutNs = kMinPeerTimeoutNs;
inline constexpr uint64_t kMaxTransferTimeoutNs = kMaxPeerTimeoutNs;

// Each further so many bytes of a transfer have LinkOptions::transfer_timeout_ns once more. With
// its default that is a wire of 1.6 MB/s, a tenth of what the slowest network has that Weft is for.
inline constexpr uint64_t kBytesPerTransferTimeout = uint64_t{16} << 20;

// How long a transfer of so many bytes may take; kNever: as long as it likes.
constexpr uint64_t TransferTimeNs(uint64_t transfer_timeout_ns, uint64_t bytes) {
  if (transfer_timeout_ns == 0) return ~uint64_t{0};
  const uint64_t times = (bytes > 0 ? bytes - 1 : 0) / kBytesPerTransferTimeout + 1;
  return times > ~uint64_t{0} / transfer_timeout_ns ? ~uint64_t{0} : transfer_timeout_ns * times;
}

// LinkOptions::server_engine, besides a number.
inline constexpr uint32_t kAnyEngine = ~uint32_t{0};       // the one with the fewest connections
inline constexpr uint32_t kSameEngine = ~uint32_t{0} - 1;  // that of the channel's engine's number

// Behaviour and resources of connections; both sides' limits are agreed in the handshake.
struct LinkOptions {
  // Behaviour.
  // Which path (docs/paths.md). What is empty here is taken from the environment's variable.
  std::vector<PathKind> paths = {};         // allowed, in order; WEFT_PATHS, else all but
                                            // ofi_tcp, in the default order
  std::vector<PathKind> denied_paths = {};  // of those, not these
  std::vector<std::string> devices = {};    // RDMA: "mlx5_0" (all its ports), "mlx5_0:1";
                                            // WEFT_DEVICES
  int gid_index = -1;                       // RDMA: addresses with this GID only; WEFT_GID_INDEX
  std::vector<std::string> subnets = {};    // RDMA: addresses in these only, "10.1.0.0/16";
                                            // WEFT_SUBNETS
  bool allow_routed = false;                // RDMA: also between subnets, where the network has
                                            // routers (RoCE v2, iWARP); WEFT_ROUTED=1. One side's
                                            // word is enough
  // Which engine of a server with several a client's connection goes to, each time that it
  // connects: kAnyEngine; 0 to 63, modulo the server's engines (PathInfo::server_engines);
  // kSameEngine: of a channel on several engines, from each to that of the same number (of one: 0).
  // The server does not even it out by moving it. Servers of older releases choose by themselves.
  uint32_t server_engine = kAnyEngine;
  // RDMA, of who connects: of several ports that are alike, both sides begin with that of this
  // number, modulo how many there are; the others follow. Connections with different numbers so
  // use different cards. A channel of several engines counts on from here.
  uint32_t first_port = 0;
  uint64_t connect_timeout_ns = 5'000'000'000;  // for the whole of Connect()
  uint64_t path_timeout_ns = 1'000'000'000;     // for one candidate path, then the next
  // Silence of an open connection's peer after which this side ends it with UNAVAILABLE: 100 ms to
  // 1 h; 0: never. Each side has its own. Peers whose engine has its own thread send two heartbeats
  // in this time, and are noticed when they are stopped, paused, cut off, or busy in one callback:
  // no handler that runs on an engine may take half as long, or its clients take it for dead.
  // Peers that somebody has to drive (kCaller, kExternal) send none while nobody drives: of them
  // only a vanished host is noticed, by the kernel, in about this time but not below 2 s. A side
  // that nobody drives keeps its connections. Lower: dead peers are noticed sooner; on a busy
  // machine or a bad wire, living ones are lost. Debugging a peer: 0. (The simulated network has a
  // timeout of its own: SimOptions.)
  uint64_t peer_timeout_ns = 3'000'000'000;
  // What the peer of an open connection may take until it has answered a transfer of up to 16 MiB
  // that this side has begun (the fetch of a large message that the peer has offered; at a server,
  // of a weft.Bulk), and once more for each further 16 MiB: 100 ms to 1 h; 0: for ever. A large
  // message that this side has offered may wait six times as long for the peer to take it. Then
  // this side ends the connection with UNAVAILABLE: such a transfer holds memory that others wait
  // for. It ends, so, also those of peers that nobody drives meanwhile. Higher: slower wires will
  // do; a peer that does not answer keeps others waiting for longer.
  uint64_t transfer_timeout_ns = 10'000'000'000;
  // Performance. For each connection, window_slots receive slots (their size belongs to the
  // engine's network) are held posted.
  uint32_t window_slots = 64;                 // 4..1024; batches the peer may have in flight
  uint32_t max_outstanding_operations = 128;  // 1..1024; one-sided, per connection
};

}  // namespace weft
