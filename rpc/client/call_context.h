// The client's side of a ClientContext: what its call sends and receives, and the way from
// ClientContext::Cancel() on any thread to the call, which is the engine's.
//
//   state     from                       to
//   new       construction               Begin() -> begun
//   begun     the call is being started  Attach() -> attached, Detach() -> over, Reset() -> new
//   attached  the call is the engine's   Detach() -> over
//   over      the call has ended
//
// Cancel() before Begin() is seen by it; after it, a task on the engine ends the call if it is
// attached, and Attach() sees a cancel whose task came too early.
//
// Threads: Cancel() from any; AddMetadata(), Begin() and Reset() on the caller's; the rest on the
//   engine's.
// Lifetime: shared by its ClientContext and the tasks of Cancel(); the call outlives neither.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/function.h"
#include "rpc/client/client_context.h"
#include "rpc/wire/metadata.h"
#include "transport/engine.h"

namespace weft {

class CallContext : public std::enable_shared_from_this<CallContext> {
 public:
  // --- the caller's thread ----------------------------------------------------------------------

  absl::Status AddMetadata(std::string_view key, std::string_view value);
  // A call on `engine` is about to start. FAILED_PRECONDITION: there was one before. CANCELLED:
  // Cancel() came first.
  absl::Status Begin(EngineCore& engine);
  // The call that Begin() was for will not be started after all.
  void Reset();

  // --- any thread -------------------------------------------------------------------------------

  absl::Status Cancel();

  // --- the engine's thread ----------------------------------------------------------------------

  // The call is started. False: it is cancelled already. `cancel` ends it, on the engine's thread;
  // it is not called after Detach().
  bool Attach(Function<void()> cancel);
  // The call has ended.
  void Detach();
  // What goes before the request; empty: nothing.
  const std::string& extras() const { return extras_; }
  // What came before the reply or the error `status`, which gets its details. False: it is
  // malformed.
  bool TakeReply(ByteSpan extras, absl::Status* status);

  // The handler's, after the call's end.
  const Metadata& reply_metadata() const { return reply_metadata_; }

 private:
  std::mutex mutex_;  // of the next three
  bool begun_ = false;
  bool cancelled_ = false;
  EngineCore* engine_ = nullptr;

  Metadata metadata_;           // the caller's, until Begin()
  std::string extras_;          // of it; constant from Begin() on
  Function<void()> cancel_;     // the engine's: while attached
  Metadata reply_metadata_;     // the engine's, until the call's end
};

CallContext& ContextOf(ClientContext& context);

}  // namespace weft
