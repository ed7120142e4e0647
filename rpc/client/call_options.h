// What one call is started with. Part of weft/channel.h.
#pragma once

#include <cstdint>

#include "core/priority.h"

namespace weft {

class BulkCall;
class ClientContext;

struct CallOptions {
  // The call fails with DEADLINE_EXCEEDED this long after it was started, in microseconds. The
  // server is told the time that remains and does not start a call that has none left.
  // 0: ChannelOptions::default_timeout_us.
  uint64_t timeout_us = 0;

  // Without a connection, a call fails with UNAVAILABLE as soon as one attempt to connect has
  // failed, and at once while the server is about to shut down. True: it waits through failed
  // attempts and for the next server, until its deadline (without one, for ever).
  bool wait_for_server = false;

  bool no_retry = false;  // it is sent once, whatever ChannelOptions::retry says

  // Where it waits, it passes what is less urgent: here, and at the server with its reply, the
  // messages of its stream and its transfers (docs/guide.md, "Urgent calls, and those that can
  // wait"). Calls that are not kNormal take a longer way, as those with a context.
  Priority priority = Priority::kNormal;

  // The memory that the call lends to the server (weft/bulk.h). It stays the caller's, and outlives
  // the call. Null: none.
  BulkCall* bulk = nullptr;

  // For metadata both ways, and to cancel the call (weft/client_context.h). It is for this call
  // alone, and outlives it. Null: none.
  ClientContext* context = nullptr;
};

}  // namespace weft
