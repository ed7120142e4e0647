// What a handler may know about the call it runs.
//
// Of the status that it returns, code, text and payloads reach its caller, but for a Delivery,
// which says nothing of this call (weft/status.h).
//
// Threads: cancelled() and remaining_us() from any thread; the handler's own for OnCancel(),
//   AddReplyMetadata(), SetReplyAttachment() and bulk(); the rest is constant during a call.
// Lifetime: valid until the call is finished: until a synchronous handler returns, or until
//   UnaryCall::Finish().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/function.h"
#include "rpc/wire/service.h"
#include "transport/path.h"

namespace weft {

class Cancellable;
class FrameMemory;
class Metadata;
class ServerBulk;
struct CompletionId;

class ServerContext {
 public:
  ServerContext(const ServerContext&) = delete;
  ServerContext& operator=(const ServerContext&) = delete;

  // Nobody waits for the reply any more: the caller has cancelled, its deadline has passed, its
  // connection is gone (or, of a call with a completion_id(), nothing was heard of the caller for
  // ServerOptions::session_lease_us), or the server shuts down. A long handler looks from time to
  // time and gives up, or asks to be told (OnCancel()).
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // `callback` runs once, on the engine's thread, when the call is cancelled: by its caller, its
  // deadline, the loss of its connection, or the end of a Shutdown()'s grace. If it is already, it
  // runs here and now. It may finish the call. When the handler finishes the call first it does not
  // run; on another thread it may then still be running. A second one takes the place of the first.
  // REQUIRES: called before the handler has returned.
  void OnCancel(Function<void()> callback);

  // Time left until the caller's deadline: 0 when it has passed, kNoDeadline when there is none.
  static constexpr uint64_t kNoDeadline = ~uint64_t{0};
  uint64_t remaining_us() const;

  // As the caller has said (CallOptions::priority).
  Priority priority() const;

  // The method that runs.
  const MethodDescriptor& method() const { return *method_; }

  // What the caller has sent beside the request (ClientContext::AddMetadata()).
  const Metadata& metadata() const;
  // Travels with the reply or the error, to callers with a ClientContext. Errors:
  // Metadata::Add()'s.
  absl::Status AddReplyMetadata(std::string_view key, std::string_view value);

  // Bytes that the caller has sent behind the request, as they were received
  // (ClientContext::SetAttachment()); empty: none. A copy of the Cord keeps them, and costs
  // nothing: beyond the call, on any thread, for as long as it is wanted. Large ones lie where the
  // transport has received them: up to half of NetworkOptions::max_large_bytes for each path, 128
  // MiB as that stands. Beyond that, and below 16 KiB, they are copied once.
  const absl::Cord& attachment() const;
  // Travels behind an OK reply, in the same way; callers without a ClientContext do not get it, and
  // one-way messages and streams have none. With more than the caller takes
  // (ChannelOptions::max_reply_bytes, 64 MiB) the call fails with RESOURCE_EXHAUSTED, and with
  // UNIMPLEMENTED if the caller takes none, though the handler has run.
  void SetReplyAttachment(absl::Cord attachment);
  // Of a call that runs exactly once (RetryOptions::exactly_once): its name, for what the handler
  // writes for a CompletionStore (weft/service.h). Else null. The loss of its connection does not
  // cancel such a call.
  const CompletionId* completion_id() const;

  // How the caller is connected, with its address.
  const PathInfo& path() const;
  // The id that the caller tells of itself, if it is a peer (Server::OpenPeer()); else empty.
  // Nothing proves it.
  const std::string& peer_id() const;
  // The peer's incarnation: random, and another one after each start of it. 0: it is no peer.
  uint64_t peer_incarnation() const;

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

// Of coroutines that have the context as a parameter (rpc/coroutine/frame_memory.h).
FrameMemory& FrameMemoryOf(ServerContext& context);

namespace internal {

// `what` is cancelled when the call is, until that is finished. REQUIRES: the call is not finished.
void CancelWith(ServerContext& context, std::weak_ptr<Cancellable> what);
// On the engine's clock; kNoDeadline.
uint64_t DeadlineNs(const ServerContext& context);

// What a method answers that nobody has overridden: UNIMPLEMENTED, naming it. For generated code.
absl::Status NotImplemented(const ServerContext& context);

}  // namespace internal
}  // namespace weft
