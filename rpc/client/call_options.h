// What a caller may say about one call.
//
// Threads: a plain value.
#pragma once

#include <cstdint>

namespace weft {

class BulkCall;

struct CallOptions {
  // The call fails with DEADLINE_EXCEEDED this long after it was started, in microseconds. The
  // server is told the time that remains and does not start a call that has none left.
  // 0: ChannelOptions::default_timeout_us.
  uint64_t timeout_us = 0;

  // Without a connection, a call fails with UNAVAILABLE as soon as one attempt to connect has
  // failed. True: it waits through failed attempts, until its deadline (without one, for ever).
  bool wait_for_server = false;

  // The memory that the call lends to the server (bulk_call.h). It stays the caller's, and outlives
  // the call. Null: none.
  BulkCall* bulk = nullptr;
};

}  // namespace weft
