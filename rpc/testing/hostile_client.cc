#include "rpc/testing/hostile_client.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/cord.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "rpc/testing/payload_service.pb.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/wire/beside.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/sessions.pb.h"
#include "rpc/wire/stream_frame.h"
#include "transport/engine.h"

namespace weft::test {
namespace {

// More than the server of the fuzzer takes, with a frame's room for what stands beside it.
constexpr size_t kTooLargeBytes = 21'000;
// Nearly as much as it takes: more than it keeps room for.
constexpr size_t kLargestBytes = 18'000;
constexpr size_t kLargeAttachmentBytes = 12'000;

}  // namespace

HostileClient::HostileClient(SimNetwork& network, std::string node, FuzzInput& input,
                             SessionId& session)
    : network_(network), node_(std::move(node)), input_(input), session_(session) {}

// --- the connection -----------------------------------------------------------------------------

void HostileClient::Dial(uint8_t how, uint8_t also) {
  if (is_open() || dialing_) return;
  rpc::ClientHello hello =
      (how & kPeer) != 0 ? PeerDialingHello(node_, /*incarnation=*/77) : PeerCallingHello();
  hello.set_max_outstanding_calls(kSlots);
  hello.set_max_windows((how & kWindows) != 0 ? 3 : 0);
  hello.set_max_extras_bytes((how & kExtras) != 0 ? kMaxExtrasBytes : 0);
  hello.set_takes_goaway((how & kGoaway) != 0);
  hello.set_takes_attachments((how & kAttachments) != 0);
  hello.set_control_calls((how & kControl) != 0 ? 2 : 0);
  hello.set_takes_moved((also & kMoves) != 0);
  hello.set_moves_ahead((also & kMovesAhead) != 0);
  hello.set_drives_itself((also & kDrivesItself) != 0);
  if ((also & kLargeReplies) != 0) hello.set_max_reply_bytes(60'000);
  if ((also & kNoStreams) != 0) hello.set_stream_window_bytes(0);
  ConnectOptions options;
  options.hello = hello.SerializeAsString();
  if ((how & kWrong) == kWrong) {
    options.hello[input_.U8() % options.hello.size()] ^= static_cast<char>(input_.U8());
  }
  if ((also & kFewSlots) != 0) options.link.window_slots = 4;
  dialing_ = has_dialed_ = true;
  calls_ = opens_ = numbers_ = {};
  WEFT_CHECK(CoreOf(network_.Node(node_)).transport().Connect("sim:server", options, this).ok());
}

void HostileClient::Close(std::string_view why) {
  if (connection_ != nullptr) connection_->Close(why);
}

void HostileClient::OnOpen(Connection& opened) {
  dialing_ = false;
  connection_ = &opened;
  region_.reset();
  auto region = opened.memory().Register(MutableByteSpan(lent_), Access::kRemoteReadWrite);
  if (region.ok()) region_ = *std::move(region);
}

void HostileClient::OnMessage(Connection&, ByteSpan message) {
  WEFT_CHECK(message.size() >= kCallHeaderBytes);
  // The session that it was given, if this is one.
  rpc::SessionReply reply;
  const ByteSpan body = message.subspan(kCallHeaderBytes);
  if (reply.ParseFromArray(body.data(), static_cast<int>(body.size())) && reply.high() != 0) {
    session_ = {reply.high(), reply.low()};
  }
}

void HostileClient::OnClosed(Connection&, const absl::Status&) {
  dialing_ = false;
  connection_ = nullptr;
}

void HostileClient::Send(const Bytes& frame) {
  if (connection_ == nullptr) return;
  const MessageSpace space = connection_->Append(frame.size());
  if (space.data == nullptr) return network_.Settle();  // no room
  if (!frame.empty()) std::memcpy(space.data, frame.data(), frame.size());
}

// --- parts of frames ----------------------------------------------------------------------------

// Of a call, or a stream: mostly the next generation of one of the slots.
CallId HostileClient::NewId(std::array<uint32_t, kSlots>* generations) {
  const uint8_t how = input_.U8();
  const uint32_t slot = how % kSlots;
  if (how >= 248) return {how % 16u, input_.U8()};
  if (how >= 244) return {slot, (*generations)[slot]};  // it is no new one
  return {slot, ++(*generations)[slot]};
}

CallId HostileClient::OldId(const std::array<uint32_t, kSlots>& generations) {
  const uint8_t how = input_.U8();
  const uint32_t slot = how % kSlots;
  if (how >= 248) return {how % 16u, input_.U8()};
  if (how >= 244) return {slot, generations[slot] + 1};  // of one that is still to come
  return {slot, generations[slot] - (how >= 240 ? 1 : 0)};
}

uint16_t HostileClient::Method() {
  const uint8_t how = input_.U8();
  if (how < 220) return how % kMethods;
  if (how < 232) return static_cast<uint16_t>(kMethods + how - 220);
  return how < 244 ? kSessionMethod : static_cast<uint16_t>(input_.U16());
}

Bulk HostileClient::Payload() {
  Bulk payload;
  const uint8_t how = input_.U8();
  payload.set_window(how % 4);
  payload.set_length(input_.Number());
  if ((how & 4) != 0) payload.set_offset(input_.Number());
  if ((how & 8) == 0) return payload;
  const size_t length = std::min<uint64_t>(payload.length(), kLentBytes);
  payload.set_has_crc32c(true);
  payload.set_crc32c((how & 16) != 0 ? how : Crc32c(ByteSpan(lent_).first(length)));
  return payload;
}

std::string HostileClient::Body() {
  const uint8_t how = input_.U8();
  if (how < 160) return MakeData(how, how % 8 == 7 ? 9000 : how * 4u).SerializeAsString();
  if (how < 200) {  // of Payloads
    Parcel parcel;
    *parcel.mutable_data() = Payload();
    return parcel.SerializeAsString();
  }
  if (how < 220) {
    Part part;
    part.set_offset(input_.Number());
    part.set_length(input_.Number());
    *part.mutable_data() = Payload();
    return part.SerializeAsString();
  }
  if (how < 230) {
    Failure failure;
    failure.set_code(static_cast<int>(input_.Below(20)));
    failure.set_text("as the client wants it");
    return failure.SerializeAsString();
  }
  if (how < 240) {
    Size size;
    size.set_bytes(input_.Below(8) == 7 ? input_.Number() % 100'000 : input_.U8());
    return size.SerializeAsString();
  }
  if (how == 255) return std::string(kTooLargeBytes, 'l');
  if (how == 254) return MakeData(1, kLargestBytes).SerializeAsString();
  return input_.Text(input_.U8());
}

// Of a call that runs exactly once: mostly one of the first.
uint64_t HostileClient::Sequence() {
  const uint8_t how = input_.U8();
  if (how < 192) return how % 6;
  return how < 248 ? how - 192u : input_.Number();
}

std::string HostileClient::Extras() {
  Metadata metadata;
  for (uint32_t entries = input_.Below(3); entries > 0; --entries) {
    const bool is_user = input_.Bit();
    metadata.Add(is_user ? "user" : "trace-bin", std::string(input_.U8(), 'm')).IgnoreError();
  }
  if (input_.Below(4) > 0) {
    std::string extras = EncodeExtras(metadata);
    if (input_.Below(16) == 15) extras += input_.Text(8);
    return extras;
  }
  OnceAttempt attempt;
  attempt.id.session = input_.Below(8) < 7 ? session_ : SessionId{1, 2};
  attempt.id.sequence = Sequence();
  attempt.first_unanswered = input_.Below(4);
  return EncodeExtras(metadata, absl::OkStatus(), &attempt);
}

std::string HostileClient::SessionRequest() {
  rpc::SessionRequest request;
  const uint8_t how = input_.U8();
  if ((how & 1) != 0) {
    request.set_high(session_.high);
    request.set_low(session_.low);
  }
  if ((how & 2) != 0) request.add_given_up(Sequence());
  if ((how & 4) != 0) request.set_end(true);
  while ((how & 8) != 0 && request.given_up_size() <= static_cast<int>(kMaxSessionCalls)) {
    request.add_given_up(1);
  }
  return request.SerializeAsString();
}

void HostileClient::AppendWindows(uint32_t count, Bytes* frame) {
  for (; count > 0; --count) {
    Window window;
    const uint8_t how = input_.U8();
    window.span = region_ != nullptr && how < 240 ? region_->remote() : RemoteSpan{7, 0, 64};
    if (how % 8 == 7) window.span.offset += input_.Number();
    if (how % 8 >= 6) window.span.length = input_.Number();
    window.rights = how % 2 == 0 ? kMayRead : kMayWrite;
    if (how >= 250) window.rights = input_.U8();
    frame->resize(frame->size() + kWindowBytes);
    EncodeWindow(window, frame->data() + frame->size() - kWindowBytes);
  }
}

// What stands behind the header of a request or a one-way message. Its bits.
uint16_t HostileClient::AppendBeside(const std::string& body, uint8_t how, Bytes* frame) {
  const std::string extras = (how & 1) != 0 ? Extras() : std::string();
  absl::Cord attachment;
  if ((how & 2) != 0) {
    const uint8_t bytes = input_.U8();
    attachment = std::string(bytes < 250 ? 1 + bytes : kLargeAttachmentBytes, 'a');
  }
  const Beside beside = {extras, attachment.empty() ? nullptr : &attachment};
  const size_t at = frame->size();
  frame->resize(at + beside.bytes_before() + body.size() + beside.bytes_behind());
  std::byte* const message = beside.Encode(body.size(), frame->data() + at);
  if (!body.empty()) std::memcpy(message, body.data(), body.size());
  return beside.bits();
}

// --- frames -------------------------------------------------------------------------------------

Bytes HostileClient::Request() {
  Bytes frame(kCallHeaderBytes);
  const CallId id = NewId(&calls_);
  const uint8_t how = input_.U8();
  const uint32_t windows = (how & 4) != 0 ? input_.Below(5) : 0;
  const uint16_t method = Method();
  AppendWindows(windows, &frame);
  std::string body = Body();
  if (method == kSessionMethod) body = SessionRequest();
  const uint16_t bits = AppendBeside(body, how, &frame);
  const auto priority = static_cast<Priority>((how >> 3) % 3);
  EncodeRequest({id, method, how >= 224 ? input_.U32() % 5000 : 0}, frame.data(),
                RequestKind(windows, bits, priority));
  return frame;
}

Bytes HostileClient::OneWay() {
  Bytes frame(kCallHeaderBytes);
  const uint8_t how = input_.U8();
  const auto method = static_cast<uint16_t>(how < 240 ? 12 + how % 5 : Method());
  const uint16_t bits = AppendBeside(Body(), how, &frame);
  EncodeOneWay(method, how >= 200 ? 100 : 0, frame.data(), OneWayKind(bits));
  return frame;
}

Bytes HostileClient::OpenStream() {
  const CallId id = NewId(&opens_);
  const uint8_t how = input_.U8();
  const uint32_t windows = (how & 4) != 0 ? input_.Below(4) : 0;
  const std::string extras = (how & 1) != 0 ? Extras() : std::string();
  constexpr uint16_t kStreamMethods[] = {7, 7, 7, 8, 9, 10, 21, 21};
  const uint16_t method = how < 240 ? kStreamMethods[how / 8 % 8] : Method();
  Bytes frame(OpenFrameBytes(windows, extras.size()));
  EncodeOpen({id, method, (how & 2) != 0 && how > 128 ? 300u : 0u, how == 255, AsBytes(extras),
              static_cast<Priority>(how % 3), windows},
             frame.data());
  Bytes lent;
  AppendWindows(windows, &lent);
  std::copy(lent.begin(), lent.end(), frame.begin() + kCallHeaderBytes);
  numbers_[id.slot % kSlots] = 0;
  return frame;
}

Bytes HostileClient::StreamData() {
  const CallId id = OldId(opens_);
  const uint8_t how = input_.U8();
  uint32_t& number = numbers_[id.slot % kSlots];
  const bool nothing = how % 16 == 15;
  const std::string body = nothing ? "" : Body();
  const auto flags = static_cast<uint16_t>(nothing ? 3 : how % 16 == 14 ? 1 : how >= 253 ? how : 0);
  const uint32_t shown = how >= 240 ? number + how % 4 : nothing ? number : number++;
  Bytes frame(kCallHeaderBytes + body.size());
  EncodeData(id, flags, shown, /*to_opener=*/how == 252, frame.data());
  if (!body.empty()) std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
  return frame;
}

Bytes HostileClient::StreamCredit() {
  Bytes frame(kCallHeaderBytes);
  const CallId id = OldId(opens_);
  const uint8_t how = input_.U8();
  EncodeCredit({id, static_cast<uint16_t>(how % 8), how >= 128 ? input_.U16() : how * 4u},
               /*to_opener=*/false, frame.data());
  return frame;
}

Bytes HostileClient::OfPeer() {
  const uint8_t how = input_.U8();
  Bytes frame(kCallHeaderBytes);
  if (how % 4 == 0) {
    const std::string hello = PeerCallingHello().SerializeAsString();
    frame.resize(kCallHeaderBytes + hello.size());
    std::memcpy(frame.data() + kCallHeaderBytes, hello.data(), hello.size());
    EncodePeerFrame(PeerFrameKind::kBegin, frame.data());
  } else if (how % 4 == 1) {
    EncodeGoaway(how / 4, frame.data());
  } else {
    frame.resize(how >= 128 ? 9000 : kCallHeaderBytes);
    EncodePeerFrame(how % 4 == 2 ? PeerFrameKind::kEnd : PeerFrameKind::kEnded, frame.data());
  }
  if (how % 4 == 2) calls_ = opens_ = {};
  return frame;
}

Bytes HostileClient::Notice() {
  Bytes frame(kCallHeaderBytes);
  const uint8_t how = input_.U8();
  if (how % 2 == 0) {
    EncodeCancel(OldId(calls_), frame.data());
  } else {
    EncodeStreamCancel(OldId(opens_), frame.data());
  }
  return frame;
}

// As a server would send it: to a peer that calls, or to nobody.
Bytes HostileClient::OfServer() {
  const uint8_t how = input_.U8();
  const CallId id = {how % 4u, input_.U8()};
  if (how < 128) return Reply(id, how % 18, how % 3 == 0 ? 0 : 4, how % 2 == 0 ? "" : "text");
  Bytes frame(how < 192 ? EndFrameBytes(0, 0) : kCallHeaderBytes);
  if (how < 192) {
    EncodeEnd({id, static_cast<uint16_t>(how % 17), false, how % 3u}, frame.data());
  } else {
    EncodeStreamRelease(id, frame.data());
  }
  return frame;
}

Bytes HostileClient::AnyFrame() {
  using Make = Bytes (HostileClient::*)();
  static constexpr Make kFrames[15] = {
      &HostileClient::Request,    &HostileClient::Request,      &HostileClient::Request,
      &HostileClient::Request,    &HostileClient::Request,      &HostileClient::OpenStream,
      &HostileClient::OpenStream, &HostileClient::StreamData,   &HostileClient::StreamData,
      &HostileClient::StreamData, &HostileClient::StreamCredit, &HostileClient::OneWay,
      &HostileClient::Notice,     &HostileClient::OfPeer,       &HostileClient::OfServer};
  const uint32_t kind = input_.Below(16);
  if (kind < std::size(kFrames)) return (this->*kFrames[kind])();
  const ByteSpan bytes = input_.Bytes(input_.U8());
  return Bytes(bytes.begin(), bytes.end());
}

void HostileClient::SendAny() {
  Bytes frame = AnyFrame();
  const uint8_t how = input_.U8();
  if (how >= 252 && !frame.empty()) {
    frame[input_.U8() % frame.size()] ^= static_cast<std::byte>(input_.U8());
  } else if (how >= 248) {
    frame.resize(std::min<size_t>(frame.size(), input_.U8()));
  }
  Send(frame);
}

}  // namespace weft::test
