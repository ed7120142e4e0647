// Steps that FramedConnection's source files share, and that every message takes.
#pragma once

#include "transport/framing/framed_connection.h"

namespace weft {

// Makes sure that a frame of `frame_bytes` fits into the open slot.
inline bool FramedConnection::MakeRoom(size_t frame_bytes) {
  return fill_ + frame_bytes <= batch_bytes_ || OpenNextSlot();
}

// Completes a frame in the open slot. REQUIRES: MakeRoom() for it.
inline std::byte* FramedConnection::AppendFrame(size_t payload_bytes, FrameKind kind) {
  std::byte* const frame = slot_.data + fill_;
  EncodeFrameHeader(frame, static_cast<uint32_t>(payload_bytes), kind);
  fill_ += static_cast<uint32_t>(FrameBytes(payload_bytes));
  ++frames_;
  return frame + kFrameHeaderBytes;
}

// This side's framing itself has something to say.
inline bool FramedConnection::HasDue() const {
  return large_receiver_.has_done() || request_answerer_.has_reply() || reclaimer_.wants_advance();
}

// The turn's end looks at this connection.
inline void FramedConnection::MarkDirty() {
  if (!table_->dirty_.IsLinked(this)) table_->dirty_.PushBack(this);
}

}  // namespace weft
