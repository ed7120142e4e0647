// What a call has at the server beside request, reply and payloads, if it has any of it: metadata
// and attachments both ways, interceptors, and who wants to be told when it is cancelled: its
// handler, and the calls that this makes on its behalf.
//
// Made for the first call of a ServerCall that has use for it, and kept for the next.
//
// Threads: OnCancel(), CancelWith() and Intercept() on the handler's; Forget() on the thread that
//   finishes the call; Run() and the rest on the engine's. Metadata and attachments are the
//   handler's while it has the call.
// Lifetime: a member of its ServerCall.
// Invariants: a callback runs at most once, and does not begin after Forget() has returned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/function.h"
#include "core/timer_wheel.h"
#include "rpc/operation/cancellable.h"
#include "rpc/server/server_interceptor.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/service.h"
#include "transport/connection.h"

namespace weft {

class ServerCall;
class ServerConnection;
struct CompletionRecord;

class ServerExtras final : private Timer {
 public:
  explicit ServerExtras(ServerCall* call) : call_(*call) {}

  // --- the handler's ----------------------------------------------------------------------------

  Metadata received;
  Metadata reply;
  absl::Cord attachment;        // of the request
  absl::Cord reply_attachment;  // empty: none

  // False: the call is cancelled already, and `callback` is as it was. Else Run() calls it.
  bool OnCancel(Function<void()>& callback);
  // False: the call is cancelled already. Else Run() cancels `what`, unless Forget() comes first.
  bool CancelWith(const std::weak_ptr<Cancellable>& what);
  // Starts these, which outlive the server.
  absl::Status Intercept(std::span<ServerInterceptor* const> interceptors, std::string_view service,
                         const Clock& clock);

  // --- the engine's -----------------------------------------------------------------------------

  // The call is cancelled, and says so: calls the callback, if there is one.
  void Run();
  // The call is cancelled at its deadline, whatever its client does.
  void WatchDeadline(TimerWheel& timers, uint64_t deadline_ns) {
    timers.Schedule(this, deadline_ns);
  }
  // REQUIRES: on the engine's thread if the deadline is watched.
  void StopWatching(TimerWheel& timers) {
    if (armed()) timers.Cancel(this);
  }

  // What came with the request, or why it is not taken.
  absl::Status TakeMetadata(ServerConnection& client, size_t bytes, Metadata metadata);
  // `bytes`: the attachment, behind `message_bytes`, of what `connection` is delivering.
  absl::Status TakeAttachment(ServerConnection& client, Connection& connection,
                              size_t message_bytes, ByteSpan bytes);
  // As new. Returns what the connection is to let go of (ServerCore::LetGo()).
  size_t Clear();

  // The call is finished, with this: interceptors that have started end.
  void EndInterception(const absl::Status& status, const Clock& clock);

  // --- either's ---------------------------------------------------------------------------------

  // The callback is wanted no more.
  void Forget();

  // Of calls that run exactly once (completion_records.h). The engine's, until the call's end:
  CompletionRecord* record = nullptr;
  // Of a further attempt, until its interceptors have let it pass or refused it: which call it is
  // an attempt of. Its handler does not run. Written on the engine's thread, before the
  // interceptors start and after; they run on another thread, perhaps, and read it.
  std::optional<OnceAttempt> repeats;

 private:
  void OnTimer() override;

  ServerCall& call_;
  size_t charged_bytes_ = 0;  // of what came, in ServerStats::running_bytes
  std::mutex mutex_;          // of the next two
  Function<void()> on_cancel_;
  std::vector<std::weak_ptr<Cancellable>> followers_;

  // Of a call with interceptors.
  std::span<ServerInterceptor* const> interceptors_;
  std::string_view service_;
  bool is_repeated_ = false;
  uint64_t start_ns_ = 0;
  size_t started_ = 0;  // the first so many
  std::array<void*, kMaxInterceptors> data_ = {};
};

}  // namespace weft
