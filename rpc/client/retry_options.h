// Whether a channel sends calls again by itself when they have failed on the way, or are slow
// (ChannelOptions::retry). Off unless asked for.
//
//   options.retry.max_attempts = 4;      // ChannelOptions
//   options.retry.hedge_after_us = 2000;
//
// What is sent again, after a pause, while attempts, tokens and the call's deadline permit it:
//   - of every method, what no handler has seen (DeliveryOf() is kNotSent): UNAVAILABLE; and
//     RESOURCE_EXHAUSTED if it is the server that says so, for its limits are of a moment. The
//     channel's own limits (a full queue) are not met by waiting in it twice.
//   - of methods that may run twice (`idempotency_level` in the .proto file): UNAVAILABLE whatever
//     has run, also where the handler itself has answered it.
// All other errors would come again, or are answers. A call with CallOptions::bulk goes by the
// first rule alone: the memory of an attempt that may still run cannot be lent again. Streams are
// not sent again.
//
// A hedge is a second attempt while the first one is still under way, hedge_after_us later: of
// methods that may run twice, on the same connection, and only if it can be sent at once. The first
// answer counts, and the other attempt is cancelled.
//
// All attempts are one call: to its caller, to Cancel(), to its deadline, to interceptors and to
// ChannelStats::calls_started. Servers see the number of attempts that went before as the metadata
// "grpc-previous-rpc-attempts" where there was one. The error is that of the last attempt; what
// DeliveryOf() says of it is true of all. With this, each call takes the way of one with a
// ClientContext, and some memory while it lasts: at most max_outstanding_calls + max_queued_calls
// calls of a channel may be sent again, further ones have one attempt.
//
// The rules, and the budget, are those of gRPC (gRFC A6, "gRPC Retry Design"), but that gRPC's
// service config says which methods are safe, and which codes.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr uint32_t kMaxAttempts = 4;

struct RetryOptions {
  // Of one call, the first and hedges included: 1..kMaxAttempts. 1: nothing is sent again.
  uint32_t max_attempts = 1;

  // The longest pause before the second attempt, in microseconds; doubled with each attempt up to
  // the other. Half of a pause is random. 1..an hour. Longer: a server that comes back is not met
  // by all its clients at once, and calls take longer.
  uint64_t initial_backoff_us = 10'000;
  uint64_t max_backoff_us = 1'000'000;

  // The budget of the channel: it begins with so many tokens (3..1000), and never has more. What
  // would be sent again takes one, and so does a hedge; a call that ends with OK gives thousandths
  // of one back. Nothing is sent again while half of them or less are left: a server that is down,
  // or has too much to do, gets few more calls than without retries.
  uint32_t budget_tokens = 100;
  uint32_t refill_millitokens = 100;  // 1..1'000'000

  // A hedge is sent after so long, in microseconds, at most an hour. About the 95th percentile of
  // the method's latency makes one call in twenty two. 0: none; else max_attempts is 2 or more.
  uint64_t hedge_after_us = 0;
};

}  // namespace weft
