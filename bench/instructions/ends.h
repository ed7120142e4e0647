// A client and a server in one thread, connected over a real path: each side's engine is polled in
// turn, so that a call takes the same steps, and the same instructions, in every run.
//
// Threads: one. Errors: Open() says what cannot be had here.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/path.h"

namespace weft::bench {

// Bytes of payload in request and reply: what figures of small calls are quoted for.
inline constexpr size_t kCallBytes = 64;

// Protobuf both ways, or structs of fixed layout (rpc/layout/method_layouts.h) with the same
// payload.
enum class Bodies : uint8_t { kMessages = 1, kStructs = 2 };

// Turns of both engines, and those of them that found nothing to do.
struct Turns {
  uint64_t all = 0;
  uint64_t idle = 0;
};

class Ends {
 public:
  static absl::StatusOr<std::unique_ptr<Ends>> Open(PathKind path);
  ~Ends();

  // `calls` calls, one after the other, by a thread that waits for each; it drives the client's
  // engine meanwhile. Aborts if one fails.
  Turns CallBlocking(uint64_t calls, Bodies bodies = Bodies::kMessages);
  // The same over a channel of OpenBalanced() with three servers, the policy being the default one.
  Turns CallBalanced(uint64_t calls);
  // `calls` calls by callbacks, `outstanding` at a time: each one that ends starts the next.
  Turns CallByCallback(uint64_t calls, uint64_t outstanding, Bodies bodies = Bodies::kMessages);
  // The same by the C interface, at both ends (bench/instructions/c_ends.h).
  Turns CallByC(uint64_t calls, uint64_t outstanding);
  // `calls` calls, one after the other, by a coroutine.
  Turns CallByCoroutine(uint64_t calls);
  // `messages` there and back on one stream, one after the other, by a thread that waits for each.
  Turns StreamPingPong(uint64_t messages);
  // `messages` on one stream to the server, as many at a time as may be.
  Turns StreamOneWay(uint64_t messages);
  // `messages` to a one-way method, one after the other, by a thread that hands them over; as many
  // at a time as may be.
  Turns OneWay(uint64_t messages);
  // Turns of both engines without calls.
  Turns Idle(uint64_t turns);

  // Memory registered with providers until now, by both ends.
  uint64_t registrations() const;

 private:
  class Impl;
  explicit Ends(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft::bench
