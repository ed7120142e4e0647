// Everything that a control connection parses, for a fuzzer.
//
// The first byte chooses the parser, the rest is what a peer has sent.

#include <cstddef>
#include <cstdint>

#include "core/check.h"
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

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const weft::ByteSpan bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 4) {
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
  }
  return 0;
}
