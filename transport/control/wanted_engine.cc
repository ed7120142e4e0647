#include "transport/control/wanted_engine.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/strings.h"
#include "transport/control/control_frame.h"

namespace weft {
namespace {

// A protobuf tag of one byte: the field, and 5 for 32 bits.
constexpr auto kTag = std::byte{kWantedEngineField << 3 | 5};
constexpr size_t kFieldBytes = 1 + sizeof(uint32_t);
static_assert(kWantedEngineField < 16);  // else the tag has two bytes

constexpr std::string_view kProtocol = "weft-engine/";

// RFC 8446: records (5.1), handshake messages (4), extensions (4.2).
constexpr size_t kRecordHeaderBytes = 5;
constexpr uint32_t kTlsClientHello = 1;
constexpr uint32_t kAlpnExtension = 16;
constexpr size_t kVersionAndRandomBytes = 2 + 32;

// Goes over bytes that anybody may have sent, numbers in network order.
class Cursor {
 public:
  explicit Cursor(ByteSpan rest) : rest_(rest) {}
  std::optional<uint32_t> Number(size_t bytes) {
    if (rest_.size() < bytes) return std::nullopt;
    uint32_t number = 0;
    for (const std::byte byte : rest_.first(bytes))
      number = number << 8 | static_cast<uint8_t>(byte);
    rest_ = rest_.subspan(bytes);
    return number;
  }
  std::optional<ByteSpan> Take(size_t bytes) {
    if (rest_.size() < bytes) return std::nullopt;
    const ByteSpan taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  // Bytes behind their length, which has so many; of those that there are, if it is more.
  std::optional<ByteSpan> Counted(size_t length_bytes) {
    const std::optional<uint32_t> length = Number(length_bytes);
    if (!length.has_value()) return std::nullopt;
    return Take(std::min<size_t>(*length, rest_.size()));
  }

 private:
  ByteSpan rest_;
};

uint32_t WantedByName(std::string_view name) {
  if (name.substr(0, kProtocol.size()) != kProtocol) return kAnyEngine;
  const std::string_view digits = name.substr(kProtocol.size());
  uint32_t engine = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), engine);
  const bool right = error == std::errc() && end == digits.data() + digits.size();
  return right ? engine : kAnyEngine;
}

uint32_t WantedByAlpn(ByteSpan extension) {
  Cursor in(extension);
  const std::optional<ByteSpan> list = in.Counted(2);
  Cursor names(list.value_or(ByteSpan()));
  while (const std::optional<uint32_t> length = names.Number(1)) {
    const std::optional<ByteSpan> name = names.Take(*length);
    if (!name.has_value()) break;  // a part of a number is another one
    const uint32_t engine = WantedByName(AsStringView(*name));
    if (engine != kAnyEngine) return engine;
  }
  return kAnyEngine;
}

// Of a record that holds a hello, or as much of it as is looked at.
uint32_t WantedByTls(ByteSpan record) {
  Cursor in(record);
  if (!in.Take(kRecordHeaderBytes).has_value() || in.Number(1) != kTlsClientHello ||
      !in.Take(3 + kVersionAndRandomBytes).has_value()) {
    return kAnyEngine;
  }
  // The session's id, suites, compression.
  if (!in.Counted(1).has_value() || !in.Counted(2).has_value() || !in.Counted(1).has_value()) {
    return kAnyEngine;
  }
  const std::optional<ByteSpan> all = in.Counted(2);
  Cursor extensions(all.value_or(ByteSpan()));
  while (const std::optional<uint32_t> type = extensions.Number(2)) {
    const std::optional<ByteSpan> extension = extensions.Counted(2);
    if (!extension.has_value()) break;
    if (type == kAlpnExtension) return WantedByAlpn(*extension);
  }
  return kAnyEngine;
}

bool FindInTls(ByteSpan bytes, uint32_t* engine) {
  if (bytes.size() < kRecordHeaderBytes) return false;
  const size_t length = static_cast<size_t>(bytes[3]) << 8 | static_cast<size_t>(bytes[4]);
  const size_t looked_at = std::min(kRecordHeaderBytes + length, kMostWantedBytes);
  if (bytes.size() < looked_at) return false;
  *engine = WantedByTls(bytes.first(looked_at));
  return true;
}

bool FindInHello(ByteSpan bytes, uint32_t* engine) {
  constexpr size_t kBodyAt = kPreambleBytes + kControlHeaderBytes;
  if (bytes.size() < kBodyAt) return false;
  const std::byte* const header = bytes.data() + kPreambleBytes;
  const bool is_hello = LoadLe16(header + 4) == static_cast<uint16_t>(ControlType::kClientHello);
  if (!is_hello || LoadLe32(header) < kFieldBytes) return true;
  if (bytes.size() > kBodyAt && bytes[kBodyAt] != kTag) return true;
  if (bytes.size() < kBodyAt + kFieldBytes) return false;
  const uint32_t wanted = LoadLe32(bytes.data() + kBodyAt + 1);
  if (wanted != 0) *engine = wanted - 1;
  return true;
}

}  // namespace

std::string EncodeWantedEngine(uint32_t engine) {
  if (engine == kAnyEngine) return "";
  std::array<std::byte, kFieldBytes> field;
  field[0] = kTag;
  StoreLe32(field.data() + 1, engine + 1);
  return std::string(AsStringView(ByteSpan(field)));
}

std::string WantedEngineProtocol(uint32_t engine) { return StrCat(kProtocol, engine); }

bool FindWantedEngine(ByteSpan first_bytes, uint32_t* engine) {
  *engine = kAnyEngine;
  if (first_bytes.empty()) return false;
  if (LooksLikeTls(first_bytes)) return FindInTls(first_bytes, engine);
  const auto preamble = EncodePreamble();
  const size_t known = std::min(first_bytes.size(), preamble.size());
  if (!std::equal(preamble.begin(), preamble.begin() + known, first_bytes.begin())) return true;
  return FindInHello(first_bytes, engine);
}

}  // namespace weft
