// What clients share whose server gives them a session (embed/nbdkit, embed/rocksdb), and who send
// again what a lost server or connection has not answered.
//
// Threads: any. Errors: as said at each function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/channel.h"
#include "weft/coroutine.h"
#include "weft/stream.h"

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

// UNAVAILABLE: a server that is silent, and may be gone.
absl::Status NotInTime();

// The one message of a stream that lasts as long as its session: what the server says of the
// session when it has begun. Blocks. Errors: the server's; NotInTime(), or why `channel` has no
// connection: there was no answer within `timeout_us`; WrongReply(). The stream is over then.
template <class Reply>
absl::StatusOr<Reply> FirstReply(Channel& channel, ClientReader<Reply>& stream,
                                 uint64_t timeout_us) {
  Reply reply;
  Alarm deadline(channel.engine());
  deadline.Set(timeout_us, [&stream] { stream.Cancel(); });
  const bool got = stream.Read(&reply);
  const bool in_time = deadline.Cancel();
  if (got) return reply;
  absl::Status end = stream.Finish();
  if (!in_time) end = channel.path().status();
  if (!end.ok()) return end;
  return in_time ? WrongReply("a session that has ended before it began") : NotInTime();
}

}  // namespace weft::embed
