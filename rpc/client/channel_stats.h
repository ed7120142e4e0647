// What a channel has counted, and what there is now.
//
// Threads: a value.
#pragma once

#include <cstdint>

namespace weft {

// Counts since the channel was opened. A stream is one call, and so is a one-way message.
struct ChannelStats {
  uint64_t calls_started = 0;
  uint64_t calls_ok = 0;
  uint64_t calls_failed = 0;
  uint64_t deadlines_exceeded = 0;  // among calls_failed
  uint64_t late_replies = 0;        // for calls that had ended before
  uint64_t connects = 0;            // connections that opened
  uint64_t connect_failures = 0;    // attempts that did not
  uint64_t retries = 0;             // attempts of a call after failed ones (ChannelOptions::retry)
  uint64_t hedges = 0;              // attempts beside one that was slow
  uint64_t retries_refused = 0;     // of both, by the budget
  // Now:
  uint32_t outstanding = 0;  // slots that wait for a reply
  uint32_t abandoned = 0;    // among them: of calls that have ended (deadline); until the answer
  uint32_t queued = 0;
  uint32_t streams = 0;  // that hold a slot of the connection
};

}  // namespace weft
