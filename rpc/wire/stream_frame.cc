#include "rpc/wire/stream_frame.h"

#include <algorithm>

#include "core/strings.h"

namespace weft {

StreamLimits BoundedStreamLimits(uint32_t max_streams, uint32_t window_messages,
                                 uint32_t window_bytes) {
  // Without a window nothing could be sent: as good as no streams.
  if (window_messages == 0 || window_bytes == 0) return {};
  return {std::min(max_streams, kMaxStreams),
          {std::min(window_messages, kMaxWindowMessages), std::min(window_bytes, kMaxWindowBytes)}};
}

absl::Status CheckStreamOptions(std::string_view options, uint32_t max_streams,
                                uint32_t window_messages, uint32_t window_bytes) {
  if (max_streams <= kMaxStreams && window_messages >= 1 && window_messages <= kMaxWindowMessages &&
      window_bytes >= 1 && window_bytes <= kMaxWindowBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat(options, "::max_streams, stream_window_messages and stream_window_bytes are ",
             max_streams, ", ", window_messages, " and ", window_bytes, "; up to ", kMaxStreams,
             ", 1 to ", kMaxWindowMessages, " and 1 to ", kMaxWindowBytes, " are allowed"));
}

bool DecodeOpen(ByteSpan frame, OpenHeader* header, std::array<Window, kMaxWindows>* windows) {
  const uint16_t kind = CallFrameKindOf(frame);
  *header = {CallIdOf(frame),
             LoadLe16(frame.data() + 8),
             LoadLe32(frame.data() + 12),
             (kind & kOpenWaitsBit) != 0,
             {},
             PriorityOf(kind),
             WindowsOf(kind)};
  constexpr uint16_t kBits = kOpenWaitsBit | kExtrasBit | kPriorityBits | kWindowsBits;
  if ((kind & ~kBits) != static_cast<uint16_t>(StreamFrameKind::kOpen) || !HasPriority(kind)) {
    return false;
  }
  ByteSpan body = frame.subspan(kCallHeaderBytes);
  if (header->windows > kMaxWindows || !DecodeWindows(header->windows, &body, windows)) {
    return false;
  }
  if ((kind & kExtrasBit) != 0 && !DecodeExtrasBlock(&body, &header->extras)) return false;
  return body.empty();
}

bool DecodeEnd(ByteSpan frame, EndHeader* header) {
  constexpr uint16_t kLastStatusCode = 16;  // UNAUTHENTICATED
  const uint16_t kind = CallFrameKindOf(frame);
  if ((kind & ~kExtrasBit) != static_cast<uint16_t>(StreamFrameKind::kEnd)) return false;
  const uint16_t status = LoadLe16(frame.data() + 8);
  *header = {CallIdOf(frame), static_cast<uint16_t>(status & ~kNotRunBit),
             (status & kNotRunBit) != 0};
  const uint32_t text_bytes = LoadLe32(frame.data() + 12);
  ByteSpan body = frame.subspan(kCallHeaderBytes);
  if ((kind & kExtrasBit) != 0 && !DecodeExtrasBlock(&body, &header->extras)) return false;
  if (body.size() < kEndCountBytes || LoadLe32(body.data() + 4) != 0) return false;
  header->messages = LoadLe32(body.data());
  header->text = body.subspan(kEndCountBytes);
  if (header->status == 0) return text_bytes == 0 && header->text.empty() && !header->not_run;
  return header->status <= kLastStatusCode && text_bytes <= kMaxStatusText &&
         text_bytes == header->text.size();
}

}  // namespace weft
