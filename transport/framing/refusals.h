// What a connection's users are told when it cannot take something now. Refusals are part of normal
// operation: their texts are made once.
//
// Threads: any.
#pragma once

#include "absl/status/status.h"
#include "core/process_wide.h"
#include "transport/framing/batch_sender.h"

namespace weft {

inline const absl::Status& NotOpen() {
  static constinit ProcessWide<absl::Status> status;
  return status.Get([] { return absl::FailedPreconditionError("the connection is not open"); });
}

inline const absl::Status& NoRoomNow() {
  static constinit ProcessWide<absl::Status> status;
  return status.Get([] {
    return absl::ResourceExhaustedError(
        "the peer has not taken what was sent yet: wait for OnWritable()");
  });
}

// Of what found no room in a batch; OnWritable() comes if it is open.
inline const absl::Status& Refuse(BatchSender* sender) {
  if (!sender->open()) return NotOpen();
  sender->set_awaits_room(true);
  return NoRoomNow();
}

}  // namespace weft
