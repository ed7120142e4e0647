// Everything that a control connection parses, for a fuzzer, and what two sides make of each
// other's hellos.
//
// The first byte chooses the parser, the rest is what a peer has sent.

#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/negotiate.h"
#include "transport/control/wanted_engine.h"
#include "transport/sockets/address.h"

namespace weft {
namespace {

// The stream in two parts yields what it yields whole.
void ReadFrames(ByteSpan bytes) {
  const size_t cut = bytes.empty() ? 0 : static_cast<size_t>(bytes[0]) % (bytes.size() + 1);
  size_t frames[2] = {0, 0};
  bool failed[2] = {false, false};
  for (int parts = 1; parts <= 2; ++parts) {
    ControlFrameReader reader;
    for (int part = 0; part < parts; ++part) {
      reader.Append(parts == 1 ? bytes : part == 0 ? bytes.first(cut) : bytes.subspan(cut));
      ControlFrame frame;
      while (reader.Next(&frame) == ControlFrameReader::Result::kFrame) {
        WEFT_CHECK(frame.body.size() <= MaxBodyBytes(static_cast<uint16_t>(frame.type)));
        ++frames[parts - 1];
      }
    }
    failed[parts - 1] = !reader.error().ok();
  }
  WEFT_CHECK(frames[0] == frames[1] && failed[0] == failed[1]);
}

// What the first part of the bytes says, all of them say.
void LookForWantedEngine(ByteSpan bytes) {
  const size_t cut = bytes.empty() ? 0 : static_cast<size_t>(bytes[0]) % (bytes.size() + 1);
  uint32_t by_part = 0;
  uint32_t by_all = 0;
  const bool part = FindWantedEngine(bytes.first(cut), &by_part);
  const bool all = FindWantedEngine(bytes, &by_all);
  WEFT_CHECK(all || bytes.size() < kMostWantedBytes);
  WEFT_CHECK(!part || (all && by_part == by_all));
  WEFT_CHECK(part || by_part == kAnyEngine);
}

// What was decoded is within its bounds: it can be encoded, and is then still right.
void ReadHellos(ByteSpan bytes) {
  auto client = DecodeClientHello(bytes);
  if (client.ok()) {
    WEFT_CHECK(DecodeClientHello(AsBytes(Encode(*client))).ok());
    ServerHello answer;
    answer.paths = client->paths;
    answer.version = client->versions.min;
    answer.candidates = NegotiatePaths(*client, answer, /*server_allows_routed=*/true);
    WEFT_CHECK(answer.candidates.size() <= kMaxCandidates);
    WEFT_CHECK(CheckServerHello(*client, answer).ok());
    const std::vector<PathCandidate> candidates =
        DescribePairs(NegotiatePaths(*client, ServerHello{}), client->paths, {}, true);
    WEFT_CHECK(!HasViable(candidates));
    WEFT_CHECK(!NoCommonPath(candidates).ok());
  }
  auto server = DecodeServerHello(bytes);
  if (server.ok()) {
    WEFT_CHECK(DecodeServerHello(AsBytes(Encode(*server))).ok());
    CheckServerHello(ClientHello{}, *server).IgnoreError();
  }
}

void ReadOthers(ByteSpan bytes) {
  if (auto message = DecodePathTry(bytes); message.ok()) {
    WEFT_CHECK(message->address.size() <= kMaxPathAddressBytes);
  }
  if (auto message = DecodePathReady(bytes); message.ok()) {
    WEFT_CHECK(message->address.size() <= kMaxPathAddressBytes);
  }
  DecodePathFailed(bytes).status().IgnoreError();
  DecodePathUp(bytes).status().IgnoreError();
  DecodeOpen(bytes).status().IgnoreError();
  DecodeBye(bytes).status().IgnoreError();
  WEFT_CHECK(!DecodeRefusal(bytes).ok());
}

void ReadTexts(ByteSpan bytes) {
  const std::string_view text = AsStringView(bytes);
  const std::string printable = Printable(text);
  WEFT_CHECK(printable.size() <= kMaxTextBytes + 3);
  WEFT_CHECK(Printable(printable, printable.size()) == printable);
  const auto address = ParseServerAddress(text);
  if (address.ok()) {
    WEFT_CHECK(ParseServerAddress(address->text()).ok());
  }
}

// --- what two sides agree on ---------------------------------------------------------------------

constexpr const char* kRdmaHosts[] = {"10.0.0.1", "10.0.0.2", "10.0.1.1", "192.168.0.1",
                                      "fd00::1",  "fd00::2",  "",         "nonsense"};
constexpr PathKind kKinds[] = {PathKind::kShm, PathKind::kTcp, PathKind::kOfiTcp, PathKind::kVerbs};

// As many as a hello has, most of them RDMA addresses.
std::vector<PathOffer> AnyOffers(FuzzInput& input) {
  std::vector<PathOffer> offers(input.Below(kMaxOfferedPaths + 1));
  for (PathOffer& offer : offers) {
    const uint8_t how = input.U8();
    offer.kind = how < 64 ? kKinds[how % 4] : PathKind::kVerbs;
    if (how >= 248) offer.kind = static_cast<PathKind>(input.U8());
    offer.provider = "fuzz";
    offer.fabric_version = 1u << 16 | how % 2;
    if (how % 8 == 7) offer.unavailable = "no cable";
    if (offer.kind != PathKind::kVerbs) continue;
    const uint8_t where = input.U8();
    offer.device = "card";
    offer.host = kRdmaHosts[where % 8];
    offer.link = static_cast<LinkKind>(where / 8 % 8);
    offer.prefix_bits = where < 192 ? 24 : input.U8();
  }
  return offers;
}

HostFacts AnyHost(FuzzInput& input) {
  const uint8_t how = input.U8();
  return {how % 4 == 3   ? ""
          : how % 4 == 2 ? HostFacts::kOtherBootId
                         : "0f1e2d3c",
          how / 64 % 2u, how};
}

// What a server chooses its client takes; whatever else it may say is looked at.
void Negotiate(FuzzInput input) {
  ClientHello client;
  ServerHello server;
  client.versions = input.Bit() ? kProtocolVersions : VersionRange{input.U8(), input.U8()};
  const VersionRange own = input.Bit() ? kProtocolVersions : VersionRange{input.U8(), input.U8()};
  const absl::StatusOr<uint32_t> version = NegotiateVersion(client.versions, own);
  WEFT_CHECK(!version.ok() || (*version >= client.versions.min && *version <= own.max));
  server.version = version.ok() ? *version : client.versions.min;
  if (client.versions.min > client.versions.max) return;  // the decoder refuses it
  client.features = input.Bit() ? OwnFeatures() : std::vector<std::string>{"new", "new"};
  server.features = NegotiateFeatures(client.features, OwnFeatures());
  client.allow_routed = input.Bit();
  client.host = AnyHost(input);
  server.host = AnyHost(input);
  client.paths = AnyOffers(input);
  server.paths = AnyOffers(input);
  server.candidates = NegotiatePaths(client, server, /*server_allows_routed=*/input.Bit());
  WEFT_CHECK(server.candidates.size() <= kMaxCandidates);
  WEFT_CHECK(CheckServerHello(client, server).ok());
  for (const bool as_client : {true, false}) {
    const std::vector<PathCandidate> candidates =
        DescribePairs(server.candidates, client.paths, server.paths, as_client);
    const bool viable = std::any_of(server.candidates.begin(), server.candidates.end(),
                                    [](const PathPair& pair) { return pair.rejected.empty(); });
    WEFT_CHECK(HasViable(candidates) == viable && !NoCommonPath(candidates).ok());
    WEFT_CHECK(Summary(candidates).empty() == candidates.empty());
  }
  for (const PathPair& pair : server.candidates) {
    if (!pair.rejected.empty()) continue;
    const PathOffer& own_offer = client.paths[static_cast<size_t>(pair.client_offer)];
    const PathOffer& peer_offer = server.paths[static_cast<size_t>(pair.server_offer)];
    WEFT_CHECK(own_offer.kind == peer_offer.kind);
    WEFT_CHECK(!ChosenReason(client.host, server.host, own_offer, peer_offer).empty());
  }
  // A server that says something else.
  const uint8_t lie = input.U8();
  if (lie % 4 == 1) server.version = lie;
  if (lie % 4 == 2) server.features.push_back("never heard of");
  if (lie % 4 == 3) {
    server.candidates.resize(1 + server.candidates.size() % kMaxCandidates);
    server.candidates.back() = {static_cast<int>(input.Below(20)) - 1,
                                static_cast<int>(input.Below(20)) - 1, lie < 128 ? "" : "no"};
  }
  CheckServerHello(client, server).IgnoreError();
}

// A numeric address that a peer has told, and those that the kernel tells of it. (Names would be
// looked up.)
void ReadAddresses(FuzzInput input) {
  const uint8_t how = input.U8();
  if (how % 2 == 0) {
    KernelAddress address;
    auto* const named = reinterpret_cast<sockaddr_un*>(&address.storage);
    named->sun_family = how < 192 ? AF_UNIX : how;
    const ByteSpan bytes = input.Bytes(sizeof(named->sun_path));
    std::memcpy(named->sun_path, bytes.data(), bytes.size());
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes.size());
    WEFT_CHECK(!address.text().empty());
    WEFT_CHECK(address.family() != AF_UNIX || !address.is_loopback());
    return;
  }
  const std::string text(AsStringView(input.Rest()));
  const absl::StatusOr<KernelAddress> numeric = ParseNumericAddress(text);
  if (!numeric.ok()) return;
  const absl::StatusOr<ServerAddress> parsed = ParseServerAddress(text);
  WEFT_CHECK(parsed.ok());
  const auto resolved = Resolve(*parsed);
  WEFT_CHECK(resolved.ok() && resolved->front().text() == numeric->text());
  WEFT_CHECK(resolved->front().is_loopback() == numeric->is_loopback());
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const weft::ByteSpan bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      weft::ReadFrames(bytes);
      weft::LookForWantedEngine(bytes);
      break;
    case 1:
      weft::ReadHellos(bytes);
      break;
    case 2:
      weft::ReadOthers(bytes);
      break;
    case 3:
      weft::ReadTexts(bytes);
      break;
    case 4:
      weft::Negotiate(weft::FuzzInput(data + 1, size - 1));
      break;
    case 5:
      weft::ReadAddresses(weft::FuzzInput(data + 1, size - 1));
      break;
    default:
      break;
  }
  return 0;
}
