// Everything that RPC parses of a frame, by itself, for a fuzzer.
//
// The first byte chooses the parser, the rest is what a peer has sent. What was decoded is within
// its bounds, lies in the frame, and says the same when it is encoded again.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "rpc/wire/beside.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/status_text.h"
#include "rpc/wire/stream_frame.h"

namespace weft {
namespace {

void Inside(ByteSpan part, ByteSpan frame) {
  if (part.empty()) return;
  WEFT_CHECK(part.data() >= frame.data());
  WEFT_CHECK(part.data() + part.size() <= frame.data() + frame.size());
}

bool Same(const Metadata& a, const Metadata& b) {
  if (a.size() != b.size()) return false;
  auto other = b.begin();
  for (const Metadata::Entry& entry : a) {
    if (entry.key != other->key || entry.value != other->value) return false;
    ++other;
  }
  return true;
}

void ReadExtras(ByteSpan bytes, bool is_error, bool may_be_once) {
  Metadata metadata;
  absl::Status details = absl::NotFoundError("x");
  OnceExtras once;
  if (!DecodeExtras(bytes, &metadata, is_error ? &details : nullptr,
                    may_be_once ? &once : nullptr)) {
    return;
  }
  WEFT_CHECK(metadata.bytes() <= kMaxMetadataBytes && !details.ok());
  size_t count = 0;
  for (const Metadata::Entry& entry : metadata) {
    WEFT_CHECK(!entry.key.empty() && entry.key.size() <= kMaxMetadataKeyBytes);
    ++count;
  }
  WEFT_CHECK(count == metadata.size());
  const std::string again = EncodeExtras(metadata, is_error ? details : absl::OkStatus(),
                                         once.attempt ? &*once.attempt : nullptr);
  WEFT_CHECK(again.size() <= kMaxExtrasBytes);
  if (again.empty()) return;
  Metadata second;
  absl::Status second_details = absl::NotFoundError("x");
  OnceExtras second_once;
  WEFT_CHECK(DecodeExtras(AsBytes(again), &second, is_error ? &second_details : nullptr,
                          once.attempt ? &second_once : nullptr));
  WEFT_CHECK(Same(metadata, second));
  if (once.attempt) WEFT_CHECK(second_once.attempt->id == once.attempt->id);
}

void ReadCallFrame(ByteSpan frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  ByteSpan body;
  if (IsReplyKind(kind)) {
    ReplyHeader header;
    if (!DecodeReply(frame, &header, &body)) return;
    Inside(body, frame);
    Inside(header.extras, frame);
    Inside(header.attachment, frame);
    WEFT_CHECK(header.status != 0 || !header.not_run);
    WEFT_CHECK(header.text_bytes <= kMaxStatusText && header.extras.size() <= kMaxExtrasBytes);
    return;
  }
  RequestHeader request;
  CallId id;
  uint32_t unanswered = 0;
  if ((kind & 0xFF) == static_cast<uint16_t>(CallFrameKind::kOneWay)) {
    if (!DecodeOneWay(frame, &request, &body)) return;
    WEFT_CHECK(request.id == CallId());
  } else if ((kind & 0xFF) == static_cast<uint16_t>(CallFrameKind::kRequest)) {
    request = DecodeRequest(frame, &body);
    std::array<Window, kMaxWindows> windows;
    const uint32_t count = WindowsOf(kind);
    if (count > kMaxWindows || !DecodeWindows(count, &body, &windows)) return;
    for (uint32_t i = 0; i < count; ++i) {
      const Window& window = windows[i];
      WEFT_CHECK(window.rights == kMayRead || window.rights == kMayWrite);
      WEFT_CHECK(window.span.offset + window.span.length >= window.span.offset);
    }
  } else if (frame.size() < kCallHeaderBytes) {
    return;  // of no kind: nobody asks for more
  } else {
    (void)DecodeNotice(frame, &id);
    (void)DecodeNumber(frame, &unanswered);
    return;
  }
  Inside(body, frame);
  ByteSpan extras, attachment;
  if (!DecodeBeside(kind, &body, &extras, &attachment)) return;
  Inside(body, frame);
  Inside(extras, frame);
  Inside(attachment, frame);
  WEFT_CHECK(((kind & kAttachmentBit) != 0) == !attachment.empty());
}

void ReadStreamFrame(ByteSpan frame) {
  if (!IsStreamKind(CallFrameKindOf(frame))) return;
  OpenHeader open;
  std::array<Window, kMaxWindows> windows;
  if (DecodeOpen(frame, &open, &windows)) {
    WEFT_CHECK(open.windows <= kMaxWindows);
    Inside(open.extras, frame);
  }
  for (const bool to_opener : {false, true}) {
    DataHeader data;
    ByteSpan message;
    if (DecodeData(frame, to_opener, &data, &message)) {
      Inside(message, frame);
      WEFT_CHECK(data.has_message || (data.last && message.empty()));
    }
    CreditHeader credit;
    if (DecodeCredit(frame, to_opener, &credit)) {
      WEFT_CHECK(credit.messages > 0 || credit.bytes > 0);
    }
  }
  EndHeader end;
  if (DecodeEnd(frame, &end)) {
    Inside(end.text, frame);
    Inside(end.extras, frame);
    std::vector<std::byte> again(EndFrameBytes(end.extras.size(), end.text.size()));
    EncodeEnd(end, again.data());
    WEFT_CHECK(again.size() == frame.size());
    WEFT_CHECK(std::memcmp(again.data(), frame.data(), again.size()) == 0);
  }
  CallId id;
  (void)DecodeStreamCancel(frame, &id);
}

void ReadPeerFrame(ByteSpan frame) {
  ByteSpan hello;
  if (DecodeBegin(frame, &hello)) Inside(hello, frame);
  const bool end = DecodePeerFrame(PeerFrameKind::kEnd, frame);
  WEFT_CHECK(!end || PeerHalfOf(CallFrameKindOf(frame)) == PeerHalf::kSession);
  (void)DecodePeerFrame(PeerFrameKind::kEnded, frame);
}

void ReadTexts(ByteSpan bytes) {
  const std::string_view text = AsStringView(bytes);
  const std::string_view cut = CutStatusText(text);
  WEFT_CHECK(cut.size() <= kMaxStatusText && text.substr(0, cut.size()) == cut);
  (void)CheckPeerId("fuzz", text);
  Metadata metadata;
  const size_t half = text.size() / 2;
  const std::string_view key = text.substr(0, half);
  while (metadata.Add(key, text.substr(half)).ok()) WEFT_CHECK(metadata.Find(key) != nullptr);
  WEFT_CHECK(metadata.bytes() <= kMaxMetadataBytes);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // Aligned as frames are received, and of exactly this size.
  const auto copy = std::make_unique<std::byte[]>(size - 1);
  if (size > 1) std::memcpy(copy.get(), data + 1, size - 1);
  const weft::ByteSpan bytes(copy.get(), size - 1);
  switch (data[0] % 8) {
    case 0:
      weft::ReadExtras(bytes, /*is_error=*/false, /*may_be_once=*/true);
      break;
    case 1:
      weft::ReadExtras(bytes, /*is_error=*/true, /*may_be_once=*/false);
      break;
    case 2:
      weft::ReadStreamFrame(bytes);
      break;
    case 3:
      weft::ReadPeerFrame(bytes);
      break;
    case 4:
      weft::ReadTexts(bytes);
      break;
    default:
      weft::ReadCallFrame(bytes);
  }
  return 0;
}
