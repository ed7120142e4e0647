// The client's side of a ClientContext: what its call sends and receives, and the way from
// ClientContext::Cancel() on any thread to the call, which is the engine's.
//
//   state     from                       to
//   new       construction               Begin() -> begun
//   begun     the call is being started  Attach() -> attached, Detach() -> over, Reset() -> new
//   attached  the call is the engine's   Detach() -> over
//   over      the call has ended
//
// Interceptors start between Begin() and Seal(), and end with Detach() or Reset().
//
// Cancel() before Begin() is seen by it; after it, a task on the engine ends the call if it is
// attached, and Attach() sees a cancel whose task came too early.
//
// Threads: Cancel() from any; AddMetadata(), Begin() and Reset() on the caller's; the rest on the
//   engine's.
// Lifetime: shared by its ClientContext and the tasks of Cancel(), and outlives the call: one that
//   has no ClientContext keeps itself until the call's end.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/bytes.h"
#include "core/fork_guard.h"
#include "core/function.h"
#include "core/timer_wheel.h"
#include "rpc/client/client_context.h"
#include "rpc/client/client_interceptor.h"
#include "rpc/operation/cancellable.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/service.h"
#include "transport/engine.h"

namespace weft {

class CallContext final : public Cancellable, public std::enable_shared_from_this<CallContext> {
 public:
  // --- the caller's thread ----------------------------------------------------------------------

  absl::Status AddMetadata(std::string_view key, std::string_view value);
  absl::Status SetAttachment(absl::Cord attachment);
  // A call on `engine` is about to start. FAILED_PRECONDITION: there was one before. CANCELLED:
  // Cancel() came first.
  absl::Status Begin(EngineCore& engine);
  // Starts these, which outlive the call. An error: that of one of them, and as after Reset().
  absl::Status Intercept(std::span<ClientInterceptor* const> interceptors, std::string_view service,
                         std::string_view method, const std::string& address);
  // No metadata is added any more.
  void Seal() { extras_ = EncodeExtras(metadata_); }
  // The same for an attempt of a call with that context (null: none), in place of Begin():
  // `attempts_before` of the call were made before. `once`: its name at the server, if it is to run
  // exactly once; else null.
  void SealForAttempt(const CallContext* of_call, uint32_t attempts_before,
                      const OnceAttempt* once);
  // There is no ClientContext. After Seal().
  void KeepItself() { self_ = shared_from_this(); }
  // The call that Begin() was for will not be started after all. It may be gone then.
  void Reset(const absl::Status& why);

  // The call ends at this time of the engine's clock at the latest; kNever. Before Begin().
  void LimitTime(uint64_t deadline_ns, uint64_t timeout_us) {
    deadline_ns_ = deadline_ns;
    timeout_us_ = timeout_us;
  }
  uint64_t deadline_ns() const { return deadline_ns_; }
  uint64_t timeout_us() const { return timeout_us_; }  // the same as a length, for texts

  // --- any thread -------------------------------------------------------------------------------

  absl::Status Cancel() override;

  // --- the engine's thread ----------------------------------------------------------------------

  // The call is started. False: it is cancelled already. `cancel` ends it, on the engine's thread;
  // it is not called after Detach().
  bool Attach(Function<void()> cancel);
  // The call has ended. It may be gone then.
  void Detach(const absl::Status& status);
  // What goes before the request; empty: nothing.
  const std::string& extras() const { return extras_; }
  // The same with what Weft itself adds, if the server takes so many bytes.
  const std::string& ExtrasWithin(size_t most) const {
    return all_extras_.empty() || all_extras_.size() > most ? extras_ : all_extras_;
  }
  // What goes behind the request; empty: nothing.
  const absl::Cord& attachment() const { return attachment_; }
  // Of an attempt of a call that runs exactly once: it must not reach a server that does not know
  // what that means.
  bool is_once() const { return is_once_; }
  // Such an attempt was not run, and what became of earlier ones cannot be known.
  bool outcome_unknown() const { return outcome_unknown_; }
  void SetOutcomeUnknown() { outcome_unknown_ = true; }
  // The call ends as that attempt of it has.
  void TakeReplyOf(CallContext& attempt) {
    reply_metadata_ = std::move(attempt.reply_metadata_);
    reply_attachment_ = std::move(attempt.reply_attachment_);
  }
  // What came before the reply or the error `status`, which gets its details. False: it is
  // malformed.
  bool TakeReply(ByteSpan extras, absl::Status* status);
  // What came behind it.
  void TakeReplyAttachment(absl::Cord attachment) { reply_attachment_ = std::move(attachment); }

  // The handler's, after the call's end.
  const Metadata& reply_metadata() const { return reply_metadata_; }
  const absl::Cord& reply_attachment() const { return reply_attachment_; }

 private:
  // Of a call with interceptors.
  struct Interception {
    std::span<ClientInterceptor* const> interceptors;
    OutgoingCall call;
    Metadata before;     // what the caller has given
    size_t started = 0;  // the first so many
    uint64_t start_ns = 0;
    std::array<void*, kMaxInterceptors> data = {};
  };
  void EndInterception(const absl::Status& status);
  absl::Status CheckNotBegun();

  const uint32_t forks_ = ForkCount();  // of its process
  std::mutex mutex_;                    // of the next three
  bool begun_ = false;
  bool cancelled_ = false;
  EngineCore* engine_ = nullptr;

  uint64_t deadline_ns_ = kNever;
  uint64_t timeout_us_ = 0;
  std::unique_ptr<Interception> interception_;
  std::shared_ptr<CallContext> self_;
  Metadata metadata_;       // the caller's, until Begin(); interceptors', until Seal()
  std::string extras_;      // of it; constant from Seal() on
  std::string all_extras_;  // with Weft's own; empty: as extras_
  bool is_once_ = false;
  bool outcome_unknown_ = false;
  Function<void()> cancel_;      // the engine's: while attached
  absl::Cord attachment_;        // the caller's, until Begin(); constant from then on
  Metadata reply_metadata_;      // the engine's, until the call's end
  absl::Cord reply_attachment_;  // the same
};

CallContext& ContextOf(ClientContext& context);

// Whether a server takes so many bytes of a call's or a stream's extras; else UNIMPLEMENTED.
absl::Status CheckMetadata(size_t bytes, uint32_t most_bytes, std::string_view address);

}  // namespace weft
