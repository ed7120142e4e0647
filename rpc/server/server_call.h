// One call at the server: what a request needs from its arrival to its reply.
//
// The object is used again and again, by whichever connection has a request next (server_calls.h).
// Its arena, with the request and the reply message on it, stays from call to call of the same
// method: strings and repeated fields keep their capacity, and the usual call allocates nothing.
// The arena is emptied when the method changes, or when a call has made it large.
//
//   States, and who moves them:
//     kFree     nobody's. -> kRunning: ServerConnection, on a request
//     kRunning  the handler has it, on whatever thread.
//               -> kReplying, kFree: Finish(), on the engine
//     kReplying the reply waits for credit. -> kFree: sent, or the connection is gone
//
// Threads: Finish() and FinishDropped() from any thread, once for each call; else the engine's.
// Lifetime: belongs to the server's pool while kFree; else to the slot of its ServerConnection,
//   which stays until all its calls are finished.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message_lite.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/cache_line.h"
#include "core/intrusive_list.h"
#include "rpc/coroutine/frame_memory.h"
#include "rpc/server/admission.h"
#include "rpc/server/call_slot.h"
#include "rpc/server/server_bulk.h"
#include "rpc/server/server_extras.h"
#include "rpc/server/server_streams.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/service.h"
#include "transport/engine.h"

namespace weft {

class ServerConnection;
struct MethodEntry;

class alignas(kCacheLineBytes) ServerCall final : public internal::HandledCall, private ListNode<> {
 public:
  ServerCall() = default;
  ~ServerCall() { delete extras_.load(std::memory_order_relaxed); }

  // Finish() of a HandledCall elsewhere than in a handler that runs on the engine's thread.
  void FinishLater(absl::Status status);
  // The engine's part of a Finish() on another thread.
  void CompleteHandedOver();

  // Nobody waits for the reply any more: the handler can see it, and is told if it wants to be. It
  // may finish the call inside. Engine thread.
  void SetCancelled();

  EngineCore& engine() const;
  // Of its client. REQUIRES: not kFree.
  ServerConnection& connection() const { return *connection_; }

  // Its deadline has passed: as SetCancelled(), and its transfers end.
  void Expire();

  // This thread runs its handler, as the engine's: not on the way through an executor.
  bool runs_here() const { return running_ == this; }
  // The handler's; for its coroutine, if it is one.
  FrameMemory& frame_memory() { return frame_memory_; }

  // Of the present call.
  ServerExtras& Extras() {
    if (!uses_extras_) BeginExtras();
    return *extras_.load(std::memory_order_relaxed);
  }

  // The handler's, before anything else of it. An error: it does not run.
  absl::Status StartInterceptors(std::string_view service);
  uint64_t deadline_ns() const { return deadline_ns_; }
  Priority priority() const { return priority_; }

  // Of a call that runs exactly once; else null. Engine thread.
  CompletionRecord* record() const {
    const ServerExtras* const extras = extras_.load(std::memory_order_acquire);
    return extras == nullptr ? nullptr : extras->record;
  }

  // A further attempt of such a call, of which only interceptors run.
  bool is_repeated() const {
    return uses_extras_ && extras_.load(std::memory_order_relaxed)->repeats.has_value();
  }

  // Counts towards the server's limits, or why it may not. REQUIRES: the server has limits, and a
  // method of that number; once for each call.
  absl::Status CountIn(uint16_t method, Admission::What what);
  // Its handler has finished with `status`, or never began: it counts no more, if it did.
  void CountOut(const absl::Status& status) {
    if (is_counted_) LeaveLimits(HowEnded(status));
  }
  // The same, if the handler has finished before it returned, or never began. It was alone on the
  // engine: how long it took says nothing of the others.
  void CountOutInTurn() {
    if (is_counted_) [[unlikely]]
      LeaveLimits(AdaptiveLimit::End::kOther);
  }

  // It is a message to a one-way method: it has no slot, and gets no reply (one_way_calls.h).
  bool is_one_way() const { return is_one_way_; }

  // --- for streams (server_streams.h) -----------------------------------------------------------

  bool is_stream() const { return uses_stream_; }
  // REQUIRES: is_stream().
  ServerStream* server_stream() { return stream_.get(); }
  Stream& stream() { return stream_->stream(); }

 private:
  friend class ServerContext;
  friend class ServerStreams;
  friend class ServerConnection;
  friend class ServerCalls;
  friend class CompletionRecords;
  friend class FinishedCalls;
  friend class IntrusiveList<ServerCall>;

  enum class State : uint8_t { kFree = 1, kRunning = 2, kReplying = 3 };

  // kFree -> kRunning, for a request of that connection.
  void Begin(ServerConnection* connection, CallSlot* slot, CallId id) {
    connection_ = connection;
    slot_ = slot;
    id_ = id;
    state_ = State::kRunning;
    priority_ = Priority::kNormal;
    request_bytes_ = 0;
    has_windows_ = uses_more_ = uses_bulk_ = uses_extras_ = released_ = finished_ = false;
    cancelled_.store(false, std::memory_order_relaxed);
  }
  // The same for a one-way message; `slot`: none of the client's.
  void BeginOneWay(ServerConnection* connection, CallSlot* slot) {
    Begin(connection, slot, {});
    uses_more_ = is_one_way_ = true;
  }
  // The same for a stream.
  void BeginStream(ServerStreams& streams, ServerConnection* connection, CallSlot* slot, CallId id);
  // It came with windows.
  void TakeWindows(std::span<const Window> windows);
  // Sets the deadline, counted from the start of the turn, or from when the message that brings
  // the call was announced: its way here took of the call's time. False if it has passed.
  bool StartClock(uint32_t remaining_us) {
    deadline_ns_ = kNever;
    return remaining_us == 0 || StartDeadline(remaining_us);
  }
  bool StartDeadline(uint32_t remaining_us);
  // Why its request, `body` for `entry`, the method of that number, was not admitted or decoded.
  // Null: there is none.
  absl::Status WhyRefused(const MethodEntry* entry, uint16_t method, ByteSpan body) const;
  // Runs the handler on the engine's thread. True: it has finished the call, which is not answered
  // yet.
  bool RunHere(const MethodDescriptor& method, Service& service) {
    HandledCall* const outer = std::exchange(running_, this);
    method.start(service, *this);
    running_ = outer;
    return finished_;
  }
  // The client has given up on it.
  void Cancel();
  // No transfer of it is started any more.
  void StopTransfers(absl::Status why) {
    if (has_windows_) bulk_->Stop(std::move(why));
  }
  // Makes bulk_ ready for the present call.
  void BeginBulk(std::span<const Window> windows);
  void BeginExtras();
  void LeaveLimits(AdaptiveLimit::End end);
  AdaptiveLimit::End HowEnded(const absl::Status& status) const;
  // The handler has finished: it is not told of a cancel any more. REQUIRES: uses_extras_.
  void EndExtras(const absl::Status& status);
  // It is over.
  void End() {
    state_ = State::kFree;
    if (MayBeLarge()) [[unlikely]]
      TrimIfLarge();
  }

  // Empty messages of `method`, reused where possible.
  void PrepareMessages(const MethodDescriptor& method) {
    if (method_ == &method) [[likely]] {
      reply_.message->Clear();  // parsing clears the request
    } else {
      MakeMessages(method);
    }
  }
  void MakeMessages(const MethodDescriptor& method);
  // The same, and reads the request, for a method with structs of fixed layout.
  bool DecodeLayouts(const MethodDescriptor& method, ByteSpan body);

  // What a free call may keep for the next one, in bytes of encoded messages and of arena. Higher
  // saves allocations of larger calls, and costs up to twice this for each that is spare.
  static constexpr uint32_t kKeepBytes = 16 << 10;
  // An arena may also grow by little in each call. It is looked at after so many: that is some
  // cache lines, and what small calls add meanwhile is bounded by kKeepBytes for each.
  static constexpr uint8_t kCallsPerLook = 16;
  bool MayBeLarge() {
    return (request_bytes_ | reply_bytes_) >= kKeepBytes || --calls_to_look_ == 0;
  }
  // After a call: gives back what a large one has taken.
  void TrimIfLarge();

  alignas(kCacheLineBytes / 2) ServerConnection* connection_ = nullptr;  // while not kFree
  CallId id_;  // of the present or last call
  State state_ = State::kFree;
  Priority priority_ = Priority::kNormal;  // of the present call
  bool has_windows_ = false;               // the present call
  bool uses_more_ = false;     // the present call: one of the next two, uses_stream_, is_one_way_
  bool uses_bulk_ = false;     // the present call: bulk_ is its own. The handler's thread
  bool uses_extras_ = false;   // the present call: *extras_ is its own. The handler's thread
  bool is_counted_ = false;    // the present call: in admitted_, by the server's limits
  bool released_ = false;      // the client has been, or will be, told so
  bool release_owed_ = false;  // will be: there was no credit
  uint8_t calls_to_look_ = kCallsPerLook;
  // Made for the first call that has use for it. The engine's while has_windows_ or not running;
  // meant for another call while !uses_bulk_.
  std::unique_ptr<ServerBulk> bulk_;
  uint32_t request_bytes_ = 0;  // encoded; 0: refused
  uint32_t reply_bytes_ = 0;    // of the last call that was answered
  // The rest.
  CallSlot* slot_ = nullptr;             // while not kFree
  ServerCall* next_finished_ = nullptr;  // FinishedCalls
  ServerCall* next_spare_ = nullptr;     // ServerCalls
  // Made on the handler's thread, seen by the engine's; own.
  std::atomic<ServerExtras*> extras_{nullptr};
  // Made for the first stream, and kept.
  std::unique_ptr<ServerStream> stream_;
  bool uses_stream_ = false;   // the present call; only with uses_more_
  bool is_one_way_ = false;    // the same
  AdmittedCall admitted_;      // while is_counted_
  uint32_t unsent_bytes_ = 0;  // while its reply waits: in ServerStats::unsent_reply_bytes
  FrameMemory frame_memory_;
  // Of arena_, kept for ever once used.
  struct GiveFirstBlock {
    void operator()(std::max_align_t* block) const;
  };
  std::unique_ptr<std::max_align_t[], GiveFirstBlock> first_block_;
  std::optional<google::protobuf::Arena> arena_;
};

}  // namespace weft
