#include "transport/control/hello.h"

#include <google/protobuf/io/coded_stream.h>
#include <sys/un.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.pb.h"
#include "transport/control/wanted_engine.h"
#include "transport/framing/credit_window.h"
#include "transport/framing/framed_connection.h"
#include "transport/hmac.h"

namespace weft {
namespace {

constexpr size_t kMaxNameBytes = 128;     // providers and devices: theirs have 64 at most
constexpr size_t kMaxHostBytes = 64;      // a numeric address of either family, with a scope
constexpr uint32_t kMaxPrefixBits = 128;  // of IPv6
constexpr size_t kMaxLocalSocketBytes = sizeof(sockaddr_un::sun_path) - 1;  // its final zero
// 16 times what any of our paths asks for: what larger batches would save no longer shows.
constexpr uint32_t kMaxBatchBytes = 1u << 20;
static_assert(control::ClientHello::kWantedEngineFieldNumber == kWantedEngineField);

absl::Status Malformed(const char* what, std::string_view why) {
  return absl::DataLossError(StrCat("the peer's ", what, " is malformed: ", why));
}

template <class Proto>
absl::StatusOr<Proto> Parse(ByteSpan body, const char* what) {
  Proto proto;
  if (proto.ParseFromArray(body.data(), static_cast<int>(body.size()))) return proto;
  return Malformed(what, "not the protobuf message that it should be");
}

// Goes over one field behind its tag. False: it is malformed, or of a kind that proto3 has not.
bool SkipField(uint32_t tag, google::protobuf::io::CodedInputStream* in) {
  uint64_t number = 0;
  switch (tag & 7) {
    case 0:
      return in->ReadVarint64(&number);
    case 1:
      return in->Skip(8);
    case 2:
      return in->ReadVarint64(&number) && number <= kMaxHelloBodyBytes &&
             in->Skip(static_cast<int>(number));
    case 5:
      return in->Skip(4);
    default:
      return false;
  }
}

// Before a hello is parsed: a field of two bytes becomes an object of a hundred.
// `application_field`: the number of the application's part.
absl::Status CheckShape(ByteSpan body, int application_field, const char* what) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(body.data()),
                                            static_cast<int>(body.size()));
  size_t fields = 0;
  size_t other_bytes = 0;
  for (uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    const int begin = in.CurrentPosition();
    if (!SkipField(tag, &in)) return Malformed(what, "not the protobuf message that it should be");
    const bool is_application = tag >> 3 == static_cast<uint32_t>(application_field);
    if (!is_application) other_bytes += static_cast<size_t>(in.CurrentPosition() - begin);
    if (++fields > kMaxHelloFields) {
      return Malformed(what, StrCat("more than ", kMaxHelloFields, " fields"));
    }
    if (other_bytes > kMaxHelloBodyBytes - kMaxHelloBytes) {
      return Malformed(what, StrCat("more than ", kMaxHelloBodyBytes - kMaxHelloBytes,
                                    " bytes beside the application's hello"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> CheckCandidate(uint32_t candidate, const char* what) {
  if (candidate < kMaxCandidates) return candidate;
  return Malformed(what, StrCat("candidate ", candidate, "; the limit is ", kMaxCandidates));
}

// Of messages that only name a candidate.
template <class Proto>
std::string EncodeCandidate(uint32_t candidate) {
  Proto proto;
  proto.set_candidate(candidate);
  return proto.SerializeAsString();
}

template <class Proto>
absl::StatusOr<uint32_t> DecodeCandidate(ByteSpan body, const char* what) {
  WEFT_ASSIGN_OR_RETURN(const Proto proto, Parse<Proto>(body, what));
  return CheckCandidate(proto.candidate(), what);
}

// kUnknownPath for what this release has never heard of.
constexpr PathKind kUnknownPath{0};
constexpr uint32_t kOlderShm = 1;  // path.h

PathKind KindOf(uint32_t number) {
  const auto kind = static_cast<PathKind>(number & 0xff);
  return number > 255 || PathKindName(kind) == "unknown" ? kUnknownPath : kind;
}

LinkKind LinkOf(uint32_t number) {
  const auto link = static_cast<LinkKind>(number & 0xff);
  return number > 255 || LinkKindName(link) == "unknown" ? LinkKind::kUnknown : link;
}

// --- limits -----------------------------------------------------------------------------------

void Fill(const ControlLimits& limits, control::Limits* proto) {
  proto->set_window_slots(limits.window_slots);
  proto->set_max_message_bytes(limits.max_message_bytes);
  proto->set_max_outstanding_operations(limits.max_outstanding_operations);
  proto->set_peer_timeout_ns(limits.peer_timeout_ns);
  proto->set_heartbeats(limits.heartbeats);
  proto->set_engine_key_high(limits.engine_key.high);
  proto->set_engine_key_low(limits.engine_key.low);
  proto->set_require_encryption(limits.require_encryption);
}

absl::StatusOr<ControlLimits> Check(const control::Limits& proto, const char* what) {
  if (proto.window_slots() < kMinWindowSlots || proto.window_slots() > kMaxWindowSlots) {
    return Malformed(what, StrCat("window_slots is ", proto.window_slots(), ", not ",
                                  kMinWindowSlots, "..", kMaxWindowSlots));
  }
  if (proto.peer_timeout_ns() != 0 && (proto.peer_timeout_ns() < kMinPeerTimeoutNs ||
                                       proto.peer_timeout_ns() > kMaxPeerTimeoutNs)) {
    return Malformed(what, StrCat("peer_timeout_ns is ", proto.peer_timeout_ns(), ", not 0 or ",
                                  kMinPeerTimeoutNs, "..", kMaxPeerTimeoutNs));
  }
  ControlLimits limits;
  limits.window_slots = proto.window_slots();
  limits.max_message_bytes = proto.max_message_bytes();
  limits.max_outstanding_operations = proto.max_outstanding_operations();
  limits.peer_timeout_ns = proto.peer_timeout_ns();
  limits.heartbeats = proto.heartbeats();
  limits.engine_key = {proto.engine_key_high(), proto.engine_key_low()};
  limits.require_encryption = proto.require_encryption();
  return limits;
}

// --- paths ------------------------------------------------------------------------------------

void Fill(const PathOffer& offer, control::PathOffer* proto) {
  proto->set_kind(static_cast<uint32_t>(offer.kind));
  proto->set_provider(offer.provider);
  proto->set_fabric_version(offer.fabric_version);
  proto->set_device(offer.device);
  proto->set_unavailable(Printable(offer.unavailable, kMaxHelloReasonBytes));
  proto->set_link(static_cast<uint32_t>(offer.link));
  proto->set_host(offer.host);
  proto->set_prefix_bits(offer.prefix_bits);
}

void Fill(const PathPair& pair, control::PathVerdict* proto) {
  proto->set_client_offer(static_cast<uint32_t>(pair.client_offer + 1));
  proto->set_server_offer(static_cast<uint32_t>(pair.server_offer + 1));
  proto->set_rejected(Printable(pair.rejected, kMaxHelloReasonBytes));
}

absl::StatusOr<PathOffer> Check(const control::PathOffer& proto, const char* what) {
  PathOffer offer;
  offer.kind = KindOf(proto.kind());
  offer.provider = Printable(proto.provider(), kMaxNameBytes);
  offer.fabric_version = proto.fabric_version();
  offer.device = Printable(proto.device(), kMaxNameBytes);
  offer.unavailable = Printable(proto.unavailable());
  if (proto.kind() == kOlderShm) {
    offer.unavailable = "shared memory as older releases have it: update the older side";
  } else if (offer.kind == kUnknownPath) {
    offer.unavailable = StrCat("paths of kind ", proto.kind(), " are newer than this release");
  }
  offer.link = LinkOf(proto.link());
  if (proto.host().size() > kMaxHostBytes) return Malformed(what, "a path's host is too long");
  offer.host = Printable(proto.host());
  if (proto.prefix_bits() > kMaxPrefixBits) {
    return Malformed(what, StrCat("a path's prefix has ", proto.prefix_bits(), " bits"));
  }
  offer.prefix_bits = proto.prefix_bits();
  return offer;
}

// Only verbs has one for each address; of every other path there is one.
bool SameOffer(const PathOffer& a, const PathOffer& b) {
  if (a.kind != b.kind) return false;
  return a.kind != PathKind::kVerbs || (a.device == b.device && a.host == b.host);
}

template <class Protos>
absl::StatusOr<std::vector<PathOffer>> CheckOffers(const Protos& protos, const char* what) {
  if (static_cast<size_t>(protos.size()) > kMaxOfferedPaths) {
    return Malformed(what, StrCat(protos.size(), " paths; the limit is ", kMaxOfferedPaths));
  }
  std::vector<PathOffer> offers;
  for (const control::PathOffer& proto : protos) {
    WEFT_ASSIGN_OR_RETURN(PathOffer offer, Check(proto, what));
    const bool repeated = offer.kind != kUnknownPath &&
                          std::any_of(offers.begin(), offers.end(),
                                      [&offer](const PathOffer& o) { return SameOffer(o, offer); });
    if (repeated) {
      return Malformed(what, StrCat("path ", PathKindName(offer.kind), " is offered twice"));
    }
    offers.push_back(std::move(offer));
  }
  return offers;
}

template <class Protos>
absl::StatusOr<std::vector<PathPair>> CheckVerdicts(const Protos& protos, const char* what) {
  if (static_cast<size_t>(protos.size()) > kMaxCandidates) {
    return Malformed(what, StrCat(protos.size(), " verdicts; the limit is ", kMaxCandidates));
  }
  std::vector<PathPair> pairs;
  for (const control::PathVerdict& proto : protos) {
    if (proto.client_offer() > kMaxOfferedPaths || proto.server_offer() > kMaxOfferedPaths) {
      return Malformed(what, "a verdict names a path that there is not");
    }
    pairs.push_back({static_cast<int>(proto.client_offer()) - 1,
                     static_cast<int>(proto.server_offer()) - 1, Printable(proto.rejected())});
  }
  return pairs;
}

// The link's own slots bound it further; this only keeps out what no slot has.
absl::StatusOr<uint32_t> CheckBatchBytes(uint32_t bytes, const char* what) {
  if (bytes >= kMinBatchBytes && bytes <= kMaxBatchBytes) return bytes;
  return Malformed(
      what, StrCat("batch_bytes is ", bytes, ", not ", kMinBatchBytes, "..", kMaxBatchBytes));
}

// --- host and features ------------------------------------------------------------------------

// Which side's hello: a code of one is not one of the other's.
constexpr std::string_view kClientSide = "weft client";
constexpr std::string_view kServerSide = "weft server";
constexpr size_t kHostNonceBytes = 16;  // never the same twice
constexpr size_t kHostCodeBytes = 16;   // not to be guessed

// See hello.proto.
struct HostHash {
  std::string code;
  uint32_t user_mask = 0;
  uint32_t process_mask = 0;
};

HostHash HashOf(std::string_view boot_id, std::string_view side, std::string_view nonce) {
  const std::string text = StrCat(side, nonce);
  const auto code = HmacSha256(AsBytes(boot_id), AsBytes(text));
  return {std::string(AsStringView(ByteSpan(code).first(kHostCodeBytes))),
          LoadLe32(code.data() + kHostCodeBytes), LoadLe32(code.data() + kHostCodeBytes + 4)};
}

void Fill(const HostFacts& host, std::string_view side, control::HostFacts* proto) {
  if (host.boot_id.empty()) return;
  std::array<std::byte, kHostNonceBytes> nonce;
  SecureRandomBytes(nonce);
  const HostHash hash = HashOf(host.boot_id, side, AsStringView(nonce));
  proto->set_nonce(std::string(AsStringView(nonce)));
  proto->set_code(hash.code);
  proto->set_hidden_user_id(host.user_id ^ hash.user_mask);
  proto->set_hidden_process_id(static_cast<uint32_t>(host.process_id) ^ hash.process_mask);
}

HostFacts Check(const control::HostFacts& proto, std::string_view side, std::string_view boot_id) {
  HostFacts host;
  if (proto.code().empty()) return host;
  host.boot_id = HostFacts::kOtherBootId;
  if (boot_id.empty() || proto.nonce().size() != kHostNonceBytes) return host;
  const HostHash hash = HashOf(boot_id, side, proto.nonce());
  if (proto.code() != hash.code) return host;
  host.boot_id = std::string(boot_id);
  host.user_id = proto.hidden_user_id() ^ hash.user_mask;
  host.process_id = static_cast<int32_t>(proto.hidden_process_id() ^ hash.process_mask);
  return host;
}

template <class Protos>
absl::StatusOr<std::vector<std::string>> CheckFeatures(const Protos& protos, const char* what) {
  if (static_cast<size_t>(protos.size()) > kMaxFeatures) {
    return Malformed(what, StrCat(protos.size(), " features; the limit is ", kMaxFeatures));
  }
  std::vector<std::string> features;
  for (const std::string& name : protos) {
    if (name.empty() || name.size() > kMaxFeatureBytes) {
      return Malformed(
          what, StrCat("a feature's name has ", name.size(), " bytes, not 1..", kMaxFeatureBytes));
    }
    features.push_back(Printable(name));
  }
  return features;
}

absl::Status CheckAddressSize(const std::string& address, const char* what) {
  if (address.size() <= kMaxPathAddressBytes) return absl::OkStatus();
  return Malformed(what, StrCat("the address has ", address.size(), " bytes; the limit is ",
                                kMaxPathAddressBytes));
}

// --- what both hellos have --------------------------------------------------------------------

template <class Hello, class Proto>
void FillCommon(const Hello& hello, std::string_view side, Proto* proto) {
  // User: CheckLinkOptions() has refused longer ones
  WEFT_CHECK(hello.hello.size() <= kMaxHelloBytes);
  for (const std::string& feature : hello.features) proto->add_features(feature);
  Fill(hello.limits, proto->mutable_limits());
  proto->set_connection_index(hello.connection_index);
  proto->set_connection_token(hello.connection_token);
  proto->set_first_sequence(hello.first_sequence);
  proto->set_batch_proof_high(hello.batch_proof.high);
  proto->set_batch_proof_low(hello.batch_proof.low);
  for (const PathOffer& offer : hello.paths) Fill(offer, proto->add_paths());
  Fill(hello.host, side, proto->mutable_host());
  proto->set_hello(hello.hello);
}

// Takes the application's hello out of `proto`.
template <class Hello, class Proto>
absl::Status CheckCommon(Proto* proto, const char* what, Hello* hello) {
  WEFT_ASSIGN_OR_RETURN(hello->features, CheckFeatures(proto->features(), what));
  WEFT_ASSIGN_OR_RETURN(hello->limits, Check(proto->limits(), what));
  hello->connection_index = proto->connection_index();
  hello->connection_token = proto->connection_token();
  hello->first_sequence = proto->first_sequence();
  hello->batch_proof = {proto->batch_proof_high(), proto->batch_proof_low()};
  WEFT_ASSIGN_OR_RETURN(hello->paths, CheckOffers(proto->paths(), what));
  if (proto->hello().size() > kMaxHelloBytes) {
    return Malformed(what, StrCat("the application's hello has ", proto->hello().size(),
                                  " bytes; the limit is ", kMaxHelloBytes));
  }
  hello->hello = std::move(*proto->mutable_hello());
  return absl::OkStatus();
}

// --- texts ------------------------------------------------------------------------------------

// Bytes of the UTF-8 character that `text` begins with; 0: it begins with none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xc2 && byte(0) < 0xe0   ? 2
                        : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 3
                        : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xed && byte(1) >= 0xa0;
  const bool too_large = byte(0) == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string printable;
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = Utf8Length(text.substr(at));
    if (printable.size() + std::max<size_t>(bytes, 1) > max_bytes) return printable + "...";
    const auto first = static_cast<unsigned char>(text[at]);
    // U+0080 to U+009F
    const bool second_set =
        bytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0;
    if (bytes == 0 || first < ' ' || first == 0x7f || second_set) {
      printable.push_back('?');
    } else {
      printable.append(text.substr(at, bytes));
    }
    at += std::max<size_t>(bytes, 1);
  }
  return printable;
}

std::string Encode(const ClientHello& hello) {
  control::ClientHello proto;
  proto.set_version_min(hello.versions.min);
  proto.set_version_max(hello.versions.max);
  FillCommon(hello, kClientSide, &proto);
  proto.set_allow_routed(hello.allow_routed);
  proto.set_first_port(hello.first_port);
  // In front of all others, wherever its number would put it.
  return StrCat(EncodeWantedEngine(hello.wanted_engine), proto.SerializeAsString());
}

std::string Encode(const ServerHello& hello) {
  control::ServerHello proto;
  proto.set_version(hello.version);
  FillCommon(hello, kServerSide, &proto);
  for (const PathPair& pair : hello.candidates) Fill(pair, proto.add_verdicts());
  proto.set_local_socket(hello.local_socket);
  proto.set_local_nonce_high(hello.local_nonce.high);
  proto.set_local_nonce_low(hello.local_nonce.low);
  proto.set_engine(hello.engine);
  proto.set_engines(hello.engines);
  return proto.SerializeAsString();
}

std::string Encode(const PathTry& message) {
  control::PathTry proto;
  proto.set_candidate(message.candidate);
  proto.set_address(message.address);
  proto.set_batch_bytes(message.batch_bytes);
  return proto.SerializeAsString();
}

std::string Encode(const PathReady& message) {
  control::PathReady proto;
  proto.set_candidate(message.candidate);
  proto.set_address(message.address);
  proto.set_nonce(message.nonce.high);
  proto.set_nonce_low(message.nonce.low);
  proto.set_batch_bytes(message.batch_bytes);
  return proto.SerializeAsString();
}

std::string Encode(const PathFailed& message) {
  control::PathFailed proto;
  proto.set_candidate(message.candidate);
  proto.set_reason(Printable(message.reason));
  return proto.SerializeAsString();
}

std::string EncodePathUp(uint32_t candidate) { return EncodeCandidate<control::PathUp>(candidate); }
std::string EncodeOpen(uint32_t candidate) { return EncodeCandidate<control::Open>(candidate); }

std::string EncodeRefusal(const absl::Status& why) {
  control::Refusal proto;
  proto.set_code(static_cast<uint32_t>(why.code()));
  proto.set_text(Printable(ToStd(why.message())));
  return proto.SerializeAsString();
}

std::string EncodeBye(std::string_view reason) {
  control::Bye proto;
  proto.set_reason(Printable(reason));
  return proto.SerializeAsString();
}

absl::StatusOr<ClientHello> DecodeClientHello(ByteSpan body, std::string_view boot_id) {
  constexpr char kWhat[] = "ClientHello";
  WEFT_RETURN_IF_ERROR(CheckShape(body, control::ClientHello::kHelloFieldNumber, kWhat));
  WEFT_ASSIGN_OR_RETURN(auto proto, Parse<control::ClientHello>(body, kWhat));
  ClientHello hello;
  hello.versions = {proto.version_min(), proto.version_max()};
  if (hello.versions.min > hello.versions.max) return Malformed(kWhat, "version_min > version_max");
  WEFT_RETURN_IF_ERROR(CheckCommon(&proto, kWhat, &hello));
  hello.host = Check(proto.host(), kClientSide, boot_id);
  hello.allow_routed = proto.allow_routed();
  if (proto.wanted_engine() != 0) hello.wanted_engine = proto.wanted_engine() - 1;
  hello.first_port = proto.first_port();
  return hello;
}

absl::StatusOr<ServerHello> DecodeServerHello(ByteSpan body, std::string_view boot_id) {
  constexpr char kWhat[] = "ServerHello";
  WEFT_RETURN_IF_ERROR(CheckShape(body, control::ServerHello::kHelloFieldNumber, kWhat));
  WEFT_ASSIGN_OR_RETURN(auto proto, Parse<control::ServerHello>(body, kWhat));
  ServerHello hello;
  hello.version = proto.version();
  WEFT_RETURN_IF_ERROR(CheckCommon(&proto, kWhat, &hello));
  hello.host = Check(proto.host(), kServerSide, boot_id);
  WEFT_ASSIGN_OR_RETURN(hello.candidates, CheckVerdicts(proto.verdicts(), kWhat));
  if (proto.local_socket().size() > kMaxLocalSocketBytes) {
    return Malformed(kWhat, "the local socket's name is too long");
  }
  hello.local_socket = proto.local_socket();
  hello.local_nonce = {proto.local_nonce_high(), proto.local_nonce_low()};
  const bool right = proto.engine() < proto.engines() && proto.engines() <= kMaxToldEngines;
  if (!right && (proto.engine() != 0 || proto.engines() != 0)) {
    return Malformed(kWhat, StrCat("engine ", proto.engine(), " of ", proto.engines(),
                                   "; there are ", kMaxToldEngines, " at most"));
  }
  hello.engine = proto.engine();
  hello.engines = proto.engines();
  return hello;
}

absl::StatusOr<PathTry> DecodePathTry(ByteSpan body) {
  constexpr char kWhat[] = "PathTry";
  WEFT_ASSIGN_OR_RETURN(const auto proto, Parse<control::PathTry>(body, kWhat));
  PathTry message;
  WEFT_ASSIGN_OR_RETURN(message.candidate, CheckCandidate(proto.candidate(), kWhat));
  WEFT_RETURN_IF_ERROR(CheckAddressSize(proto.address(), kWhat));
  message.address = proto.address();
  WEFT_ASSIGN_OR_RETURN(message.batch_bytes, CheckBatchBytes(proto.batch_bytes(), kWhat));
  return message;
}

absl::StatusOr<PathReady> DecodePathReady(ByteSpan body) {
  constexpr char kWhat[] = "PathReady";
  WEFT_ASSIGN_OR_RETURN(const auto proto, Parse<control::PathReady>(body, kWhat));
  PathReady message;
  WEFT_ASSIGN_OR_RETURN(message.candidate, CheckCandidate(proto.candidate(), kWhat));
  WEFT_RETURN_IF_ERROR(CheckAddressSize(proto.address(), kWhat));
  message.address = proto.address();
  message.nonce = {proto.nonce(), proto.nonce_low()};
  WEFT_ASSIGN_OR_RETURN(message.batch_bytes, CheckBatchBytes(proto.batch_bytes(), kWhat));
  return message;
}

absl::StatusOr<PathFailed> DecodePathFailed(ByteSpan body) {
  constexpr char kWhat[] = "PathFailed";
  WEFT_ASSIGN_OR_RETURN(const auto proto, Parse<control::PathFailed>(body, kWhat));
  PathFailed message;
  WEFT_ASSIGN_OR_RETURN(message.candidate, CheckCandidate(proto.candidate(), kWhat));
  message.reason = Printable(proto.reason());
  return message;
}

absl::StatusOr<uint32_t> DecodePathUp(ByteSpan body) {
  return DecodeCandidate<control::PathUp>(body, "PathUp");
}

absl::StatusOr<uint32_t> DecodeOpen(ByteSpan body) {
  return DecodeCandidate<control::Open>(body, "Open");
}

absl::Status DecodeRefusal(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const auto proto, Parse<control::Refusal>(body, "Refusal"));
  constexpr uint32_t kLastCode = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  if (proto.code() == 0 || proto.code() > kLastCode) {
    return Malformed("Refusal", StrCat("code ", proto.code()));
  }
  return absl::Status(static_cast<absl::StatusCode>(proto.code()),
                      StrCat("the server refused: ", Printable(proto.text())));
}

absl::StatusOr<std::string> DecodeBye(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const auto proto, Parse<control::Bye>(body, "Bye"));
  return Printable(proto.reason());
}

}  // namespace weft
