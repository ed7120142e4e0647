// What a connection's users are told when it cannot take something now. Refusals are part of normal
// operation: their texts are made once.
//
// Threads: any.
#pragma once

#include "absl/status/status.h"
#include "transport/framing/batch_sender.h"

namespace weft {

inline const absl::Status& NotOpen() {
  static const auto* const status =
      new absl::Status(absl::FailedPreconditionError("the connection is not open"));
  return *status;
}

inline const absl::Status& NoRoomNow() {
  static const auto* const status = new absl::Status(absl::ResourceExhaustedError(
      "the peer has not taken what was sent yet: wait for OnWritable()"));
  return *status;
}

// Of what found no room in a batch; OnWritable() comes if it is open.
inline const absl::Status& Refuse(BatchSender* sender) {
  if (!sender->open()) return NotOpen();
  sender->AwaitRoom();
  return NoRoomNow();
}

}  // namespace weft
