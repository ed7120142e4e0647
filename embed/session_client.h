// What clients share whose server gives them a session (embed/nbdkit, embed/rocksdb), and who send
// again what a lost server or connection has not answered.
//
// Threads: any. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weft::embed {

// What to do about an attempt's end.
enum class Next : uint8_t {
  kGiveUp = 1,       // it is the answer
  kAgain = 2,        // after a moment
  kAttachAgain = 3,  // the session is over, or what was sent may come late
};

// REQUIRES: an error.
Next NextAfter(const absl::Status& status);

// By which a server knows a client again: secret, random, of so many bytes.
std::string NewClientId(size_t bytes);

// DATA_LOSS: an answer that breaks the protocol.
absl::Status WrongReply(std::string_view what);

}  // namespace weft::embed
