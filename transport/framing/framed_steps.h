// Steps that FramedConnection's source files share, and that every message takes.
#pragma once

#include "transport/framing/framed_connection.h"

namespace weft {

// Makes sure that a frame of `frame_bytes` fits into the open slot.
inline bool FramedConnection::MakeRoom(size_t frame_bytes) {
  return batch_.Fits(frame_bytes) || OpenNextSlot(frame_bytes);
}

// The turn's end looks at this connection.
inline void FramedConnection::MarkDirty() {
  if (!table_->dirty_.IsLinked(this)) table_->dirty_.PushBack(this);
}

}  // namespace weft
