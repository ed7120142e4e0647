// What a handler may know about the call it runs.
//
// What it returns to its caller is the code and the text of a status; payloads, a Delivery among
// them, do not travel (weft/status.h).
//
// Threads: cancelled() and remaining_us() from any thread; bulk() as it says; the rest is constant
//   during a call.
// Lifetime: valid until the call is finished: until a synchronous handler returns, or until
//   UnaryCall::Finish().
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "rpc/wire/service.h"
#include "transport/path.h"

namespace weft {

class ServerBulk;

class ServerContext {
 public:
  ServerContext(const ServerContext&) = delete;
  ServerContext& operator=(const ServerContext&) = delete;

  // Nobody waits for the reply any more: the caller's deadline has passed, its connection is gone,
  // or the server shuts down. A long handler looks from time to time and gives up. (Callers cannot
  // cancel a call yet but by destroying the channel.)
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Time left until the caller's deadline: 0 when it has passed, kNoDeadline when there is none.
  static constexpr uint64_t kNoDeadline = ~uint64_t{0};
  uint64_t remaining_us() const;

  // The method that runs.
  const MethodDescriptor& method() const { return *method_; }

  // How the caller is connected, with its address.
  const PathInfo& path() const;

  // The payloads that travel beside request and reply (server_bulk.h).
  ServerBulk& bulk();

 protected:
  ServerContext() = default;
  ~ServerContext() = default;

  // Written on the engine's thread between calls; `cancelled_` also during one.
  const MethodDescriptor* method_ = nullptr;
  uint64_t deadline_ns_ = ~uint64_t{0};  // kNever
  std::atomic<bool> cancelled_{false};
};

namespace internal {

// What a method answers that nobody has overridden: UNIMPLEMENTED, naming it. For generated code.
absl::Status NotImplemented(const ServerContext& context);

}  // namespace internal
}  // namespace weft
