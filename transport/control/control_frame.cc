#include "transport/control/control_frame.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"
#include "transport/sockets/join.h"

namespace weft {
namespace {

constexpr uint8_t kMagic[] = {0x89, 'W', 'E', 'F', 'T', 0x0a};
constexpr size_t kMagicBytes = sizeof(kMagic);

struct TypeName {
  ControlType type;
  const char* name;
};

constexpr TypeName kTypeNames[] = {
    {ControlType::kClientHello, "ClientHello"},
    {ControlType::kServerHello, "ServerHello"},
    {ControlType::kRefusal, "Refusal"},
    {ControlType::kPathTry, "PathTry"},
    {ControlType::kPathReady, "PathReady"},
    {ControlType::kPathUp, "PathUp"},
    {ControlType::kPathFailed, "PathFailed"},
    {ControlType::kOpen, "Open"},
    {ControlType::kBye, "Bye"},
    {ControlType::kHeartbeat, "Heartbeat"},
    {ControlType::kGrant, "Grant"},
};

// The first bytes of protocols that people send to the wrong port.
struct ForeignProtocol {
  std::string_view start;
  const char* name;
};

constexpr ForeignProtocol kForeign[] = {
    {"GET ", "HTTP"},          {"POST", "HTTP"}, {"HEAD", "HTTP"},
    {"PUT ", "HTTP"},          {"HTTP", "HTTP"}, {"OPTI", "HTTP"},
    {"PRI ", "HTTP/2 (gRPC)"}, {"SSH-", "SSH"},  {"\x16\x03", "TLS"},
};

std::string Hex(ByteSpan bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    const auto value = static_cast<uint8_t>(byte);
    if (!text.empty()) text.push_back(' ');
    text.push_back(kDigits[value >> 4]);
    text.push_back(kDigits[value & 15]);
  }
  return text;
}

const ForeignProtocol* FindForeign(ByteSpan first_bytes) {
  for (const ForeignProtocol& protocol : kForeign) {
    if (AsStringView(first_bytes).substr(0, protocol.start.size()) == protocol.start) {
      return &protocol;
    }
  }
  return nullptr;
}

absl::Status WrongMagic(ByteSpan first_bytes) {
  if (const ForeignProtocol* protocol = FindForeign(first_bytes)) {
    return absl::FailedPreconditionError(
        StrCat("the peer speaks ", protocol->name, ", not Weft's control protocol"));
  }
  return absl::FailedPreconditionError(StrCat(
      "the peer does not speak Weft's control protocol (it began with ", Hex(first_bytes), ")"));
}

bool CanBeMagic(ByteSpan first_bytes) {
  const size_t bytes = std::min(first_bytes.size(), kMagicBytes);
  for (size_t i = 0; i < bytes; ++i) {
    if (static_cast<uint8_t>(first_bytes[i]) != kMagic[i]) return false;
  }
  return true;
}

}  // namespace

std::string ControlTypeName(ControlType type) {
  for (const TypeName& entry : kTypeNames) {
    if (entry.type == type) return entry.name;
  }
  return StrCat("message type ", static_cast<uint16_t>(type));
}

bool IsKnownControlType(uint16_t type) {
  return std::any_of(std::begin(kTypeNames), std::end(kTypeNames), [type](const TypeName& entry) {
    return static_cast<uint16_t>(entry.type) == type;
  });
}

bool LooksLikeHttp(ByteSpan first_bytes) {
  const ForeignProtocol* protocol = FindForeign(first_bytes);
  return protocol != nullptr && std::string_view(protocol->name).substr(0, 4) == "HTTP";
}

size_t MaxBodyBytes(uint16_t type) {
  const bool hello = type == static_cast<uint16_t>(ControlType::kClientHello) ||
                     type == static_cast<uint16_t>(ControlType::kServerHello);
  if (hello) return kMaxHelloBodyBytes;
  return type == static_cast<uint16_t>(ControlType::kGrant) ? kMaxGrantBodyBytes
                                                            : kMaxOtherBodyBytes;
}

std::array<std::byte, kPreambleBytes> EncodePreamble() {
  std::array<std::byte, kPreambleBytes> preamble;
  for (size_t i = 0; i < kMagicBytes; ++i) preamble[i] = static_cast<std::byte>(kMagic[i]);
  preamble[6] = static_cast<std::byte>(kPreambleVersion);
  preamble[7] = static_cast<std::byte>(kPlain);
  return preamble;
}

bool LooksLikeTls(ByteSpan first_bytes) { return first_bytes[0] == std::byte{0x16}; }

absl::Status CheckPreamble(ByteSpan first_bytes) {
  if (!CanBeMagic(first_bytes)) return WrongMagic(first_bytes);
  if (first_bytes.size() > 6 && static_cast<uint8_t>(first_bytes[6]) != kPreambleVersion) {
    return absl::FailedPreconditionError(
        StrCat("the peer speaks version ", static_cast<uint8_t>(first_bytes[6]),
               " of the control connection, this side version ", kPreambleVersion,
               ": run the same release of Weft on both sides"));
  }
  if (first_bytes.size() > 7 && static_cast<uint8_t>(first_bytes[7]) != kPlain) {
    return absl::FailedPreconditionError(
        StrCat("the peer asks for security mode ", static_cast<uint8_t>(first_bytes[7]),
               " on the control connection, which this side does not have"));
  }
  return absl::OkStatus();
}

void AppendControlFrame(ControlType type, uint16_t flags, ByteSpan body,
                        std::vector<std::byte>* out) {
  // Ours: encoders cut what peers have said (Printable), and bound the rest
  WEFT_CHECK(body.size() <= MaxBodyBytes(static_cast<uint16_t>(type)));
  const size_t start = out->size();
  out->resize(start + kControlHeaderBytes + body.size());
  std::byte* header = out->data() + start;
  StoreLe32(header, static_cast<uint32_t>(body.size()));
  StoreLe16(header + 4, static_cast<uint16_t>(type));
  StoreLe16(header + 6, flags);
  std::copy(body.begin(), body.end(), header + kControlHeaderBytes);
}

void ControlFrameReader::Append(ByteSpan bytes) {
  DropConsumed();
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

ControlFrameReader::Result ControlFrameReader::Next(ControlFrame* frame) {
  if (!error_.ok()) return Result::kError;
  if (greeting_ == Greeting::kNone) {
    const Result preamble = ReadPreamble();
    if (preamble != Result::kFrame) return preamble;
  }
  while (buffered() >= kControlHeaderBytes) {
    const std::byte* header = bytes_.data() + begin_;
    const uint32_t length = LoadLe32(header);
    const uint16_t type = LoadLe16(header + 4);
    const uint16_t flags = LoadLe16(header + 6);
    const bool known = IsKnownControlType(type);
    if (!known && (flags & kIgnorable) == 0) {
      return Fail(absl::DataLossError(
          StrCat("the peer sent ", ControlTypeName(static_cast<ControlType>(type)),
                 ", which this side does not know and may not ignore")));
    }
    if (length > MaxBodyBytes(type)) {
      return Fail(absl::DataLossError(StrCat("the peer announced ", length, " bytes of ",
                                             ControlTypeName(static_cast<ControlType>(type)),
                                             "; the limit is ", MaxBodyBytes(type))));
    }
    if (buffered() - kControlHeaderBytes < length) return Result::kNeedMore;
    frame->type = static_cast<ControlType>(type);
    frame->flags = flags;
    frame->body = ByteSpan(header + kControlHeaderBytes, length);
    begin_ += kControlHeaderBytes + length;
    if (known) return Result::kFrame;
    ++skipped_frames_;
  }
  return Result::kNeedMore;
}

ControlFrameReader::Result ControlFrameReader::Fail(absl::Status why) {
  error_ = std::move(why);
  return Result::kError;
}

ControlFrameReader::Result ControlFrameReader::ReadPreamble() {
  if (buffered() == 0) return Result::kNeedMore;
  if (CanBeJoin(ByteSpan(bytes_).subspan(begin_))) return ReadJoin();
  const ByteSpan first(bytes_.data() + begin_, std::min(buffered(), kPreambleBytes));
  absl::Status check = CheckPreamble(first);
  if (!check.ok()) {
    greeting_ = CanBeMagic(first)      ? Greeting::kOtherVersion
                : LooksLikeHttp(first) ? Greeting::kHttp
                : LooksLikeTls(first)  ? Greeting::kTls
                                       : Greeting::kForeign;
    return Fail(std::move(check));
  }
  if (first.size() < kPreambleBytes) return Result::kNeedMore;
  begin_ += kPreambleBytes;
  greeting_ = Greeting::kWeft;
  return Result::kFrame;
}

// The peer awaits an answer before it says more.
ControlFrameReader::Result ControlFrameReader::ReadJoin() {
  if (buffered() < kJoinBytes) return Result::kNeedMore;
  if (buffered() > kJoinBytes) {
    greeting_ = Greeting::kLongJoin;
    return Fail(absl::DataLossError("the peer sent more than its join before it was taken"));
  }
  greeting_ = Greeting::kJoin;
  join_ = DecodeJoin(bytes_.data() + begin_);
  return Fail(
      absl::FailedPreconditionError("this socket joins a handshake: it is no client's own"));
}

void ControlFrameReader::DropConsumed() {
  if (begin_ == 0) return;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(begin_));
  begin_ = 0;
}

}  // namespace weft
