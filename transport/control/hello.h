// What both sides tell each other when a connection begins, as plain values: encoded to, and
// checked when decoded from, the messages of hello.proto.
//
// Decoding believes nothing: texts are cut and made printable, lists are bounded, numbers are in
// their ranges when Decode...() returns OK. A hello with more fields, or more beside the
// application's part, than any release sends is refused before it is parsed: so parsing costs no
// more memory than a small multiple of 48 KiB, and that part. (A path of unknown kind keeps its
// place and is unavailable, so that a newer peer can offer what this side has never heard of.)
//
// Threads: pure functions and plain values. Errors: DATA_LOSS says which message and field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/link.h"
#include "transport/path.h"
#include "transport/transport.h"

namespace weft {

inline constexpr size_t kMaxFeatures = 64;
inline constexpr size_t kMaxFeatureBytes = 64;
inline constexpr size_t kMaxOfferedPaths = 16;
inline constexpr size_t kMaxPathAddressBytes = 256;  // LinkDomain::address()
inline constexpr size_t kMaxTextBytes = 1024;        // of a reason: three lines on a screen
// In a hello, which has room for the reasons of all offers and candidates.
inline constexpr size_t kMaxHelloReasonBytes = 512;
// Candidates: each client's offer alone, or with a partner, or two; the server's alone at the end.
inline constexpr size_t kMaxCandidates = 40;
// Of a hello's message itself: features, offers, candidates, and twice the dozen that stand alone,
// with as many again for what newer releases may add.
inline constexpr size_t kMaxHelloFields = 168;
// That a server may say it has: more than any host has processors. (A server of this release has
// kMaxEngines; what clients open for each of them has a bound by this.)
inline constexpr uint32_t kMaxToldEngines = 4096;

struct ControlLimits {
  uint32_t window_slots = 64;
  uint64_t max_message_bytes = kMaxMessageBytes;
  uint32_t max_outstanding_operations = 128;
  uint64_t peer_timeout_ns = 0;     // 0: not watching; else kMinPeerTimeoutNs..kMaxPeerTimeoutNs
  bool heartbeats = false;          // the promise to send them (peer_watch.h)
  Nonce128 engine_key = {};         // whose heartbeats they are (peer_groups.h); 0: only this one's
  bool require_encryption = false;  // SecurityOptions'; either side's word is enough
};

// What one side has: a provider over one device and address. verbs is one offer for each address of
// each port, every other path is one.
struct PathOffer {
  PathKind kind = PathKind::kTcp;
  std::string provider;
  uint32_t fabric_version = 0;  // major << 16 | minor; shm: 0, it does without libfabric
  std::string device;           // verbs: "mlx5_0:1"
  std::string unavailable;      // why this side does not offer it; empty: it does
  LinkKind link = LinkKind::kUnknown;
  // Numeric, or empty. verbs: the port's. ofi_tcp at the server: that of the control connection.
  std::string host = {};
  uint32_t prefix_bits = 0;
};

// A candidate as the server decides it: an offer of each side, by its place in that side's `paths`,
// or of one side alone.
struct PathPair {
  static constexpr int kNone = -1;
  int client_offer = kNone;
  int server_offer = kNone;
  std::string rejected;  // why it is not worth trying; empty: it is
};

// In a decoded hello the boot id is this side's own, kOtherBootId, or, where the peer cannot read
// its own, empty; the numbers are the peer's if it is this side's, else 0.
struct HostFacts {
  static constexpr char kOtherBootId[] = "another";
  std::string boot_id;
  uint32_t user_id = 0;
  int32_t process_id = 0;
};

struct VersionRange {
  uint32_t min = 0;
  uint32_t max = 0;
};

struct ClientHello {
  VersionRange versions;
  std::vector<std::string> features;
  ControlLimits limits;
  uint32_t connection_index = 0;
  uint32_t connection_token = 0;
  uint32_t first_sequence = 0;
  Nonce128 batch_proof;
  std::vector<PathOffer> paths;  // in order of preference
  HostFacts host;
  std::string hello;
  bool allow_routed = false;
  uint32_t wanted_engine = kAnyEngine;  // else any number: the server takes it modulo its engines
  uint32_t first_port = 0;              // LinkOptions::first_port
};

struct ServerHello {
  uint32_t version = 0;
  std::vector<std::string> features;
  ControlLimits limits;
  uint32_t connection_index = 0;
  uint32_t connection_token = 0;
  uint32_t first_sequence = 0;
  Nonce128 batch_proof;
  std::vector<PathOffer> paths;
  std::vector<PathPair> candidates;  // in the order to try
  HostFacts host;
  std::string local_socket;
  Nonce128 local_nonce;
  std::string hello;
  uint32_t engine = 0;
  uint32_t engines = 0;  // 0: it did not say; else > engine, <= kMaxToldEngines
};

// What follows names a candidate by its place in ServerHello::candidates, < kMaxCandidates.
struct PathTry {
  uint32_t candidate = 0;
  std::string address;
  uint32_t batch_bytes = 0;  // 256..1 MiB
};

struct PathReady {
  uint32_t candidate = 0;
  std::string address;
  Nonce128 nonce;
  uint32_t batch_bytes = 0;  // 256..1 MiB
};

struct PathFailed {
  uint32_t candidate = 0;
  std::string reason;
};

// The host's facts are hidden from who is not on it (hello.proto): no two encodings are alike.
// REQUIRES: hello.size() <= kMaxHelloBytes; the bounds above.
std::string Encode(const ClientHello& hello);
std::string Encode(const ServerHello& hello);
std::string Encode(const PathTry& message);
std::string Encode(const PathReady& message);
std::string Encode(const PathFailed& message);
std::string EncodePathUp(uint32_t candidate);
std::string EncodeOpen(uint32_t candidate);
std::string EncodeRefusal(const absl::Status& why);
std::string EncodeBye(std::string_view reason);

// `boot_id`: of this side's host, by which facts of the peer's are found out.
absl::StatusOr<ClientHello> DecodeClientHello(ByteSpan body, std::string_view boot_id = "");
absl::StatusOr<ServerHello> DecodeServerHello(ByteSpan body, std::string_view boot_id = "");
absl::StatusOr<PathTry> DecodePathTry(ByteSpan body);
absl::StatusOr<PathReady> DecodePathReady(ByteSpan body);
absl::StatusOr<PathFailed> DecodePathFailed(ByteSpan body);
absl::StatusOr<uint32_t> DecodePathUp(ByteSpan body);
absl::StatusOr<uint32_t> DecodeOpen(ByteSpan body);
// The status that the peer refused with, never OK; malformed ones are DATA_LOSS.
absl::Status DecodeRefusal(ByteSpan body);
absl::StatusOr<std::string> DecodeBye(ByteSpan body);

// What a peer sent, fit for an error text or a terminal: valid UTF-8; a control character, or a
// byte that belongs to no character, becomes "?"; what is longer than `max_bytes` ends in "...".
std::string Printable(std::string_view text, size_t max_bytes = kMaxTextBytes);

}  // namespace weft
