// The engine's side of a Channel: its connection, when there is one, its call slots, and the queue
// of calls that wait for either.
//
//   States, and who moves them:
//     kIdle        no connection and none wanted. -> kConnecting: a call
//     kConnecting  -> kOpen: OnOpen; -> kPausing or kIdle: OnClosed, the attempt failed
//     kOpen        calls flow. -> kIdle, kConnecting: OnClosed (again at once if calls wait)
//     kPausing     between attempts. -> kConnecting: the pause is over and calls wait; -> kIdle
//     kEnded       Shutdown(). Deletes itself when its connection is gone.
//
// A slot belongs to its call until the reply comes. When the call ends earlier, by its deadline,
// the slot is "abandoned": the peer may still use its own, so the slot is free again only when the
// reply comes or the connection ends. A server that never answers can so take all slots of a
// channel; further calls then end by their deadlines in the queue.
//
// Threads: the engine's, but for Bind().
// Lifetime: made by Channel; ends by Shutdown(), which completes every call, and deletes itself.
// Invariants: slots in use = sent calls + abandoned slots; queued <= max_queued_calls; a call is in
//   the queue, or in a slot, or waits for its memory (kReclaiming), or is complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cache_line.h"
#include "core/dense_memory.h"
#include "core/intrusive_list.h"
#include "core/near_array.h"
#include "core/prefetch.h"
#include "core/random.h"
#include "core/slab.h"
#include "core/timer_wheel.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_call.h"
#include "rpc/client/connection_watcher.h"
#include "rpc/client/method_table.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/wire/frame.h"
#include "transport/engine.h"
#include "transport/prefetch_list.h"
#include "transport/transport.h"

namespace weft {

class BulkCall;

class alignas(kCacheLineBytes) ClientConnection final : private ConnectionHandler,
                                                        private Timer,
                                                        public InDenseMemory {
 public:
  ClientConnection(Engine& engine, const std::string& address, const ChannelOptions& options);

  uint32_t Bind(const ServiceDescriptor& service) { return methods_.Bind(service); }

  // Starts to connect if there is no connection. `done` is called once with the outcome.
  void Connect(Function<void(absl::Status)> done);

  // Sends the request of a call that lends nothing, if nothing stands in its way (client_steps.h).
  // False: nothing has happened, and Start...() has the call.
  template <class Request>
  bool SendAtOnce(ClientCall& call, uint32_t method, const Request& request);

  // Of a connection that was not used lately: prefetches what a call touches, and tells the server
  // that a call comes.
  void PrefetchIfCold() {
    if (prefetch_->wanted()) [[unlikely]]
      prefetch_->Run();
  }

  // Prefetches what a call touches first. On any thread.
  void PrefetchFirst() const { PrefetchLines(&connection_, kCacheLineBytes); }

  // Takes a call: sends it, queues it, or completes it at once with an error. The caller watches
  // the deadline, and calls Expire().
  void Start(ClientCall& call);
  // Start() with an engine timer for the deadline. `valid`: if not OK, the call ends with that.
  void StartTimed(ClientCall& call, const absl::Status& valid);
  // StartTimed() for a call whose request is about to go away, and whose callback must not run
  // inside: if it ends at once, the callback comes from a timer.
  void StartFromCallback(CallbackCall& call, const absl::Status& valid);
  // The call's deadline has passed: completes it. REQUIRES: not kDone.
  void Expire(ClientCall& call);

  // Sends what was committed.
  void Flush() {
    if (connection_ != nullptr) connection_->Flush();
  }
  // Sends what was committed, unless the turn's end will do it.
  void FlushUnlessInTurn() {
    if (connection_ != nullptr && !engine_.InTurn()) connection_->Flush();
  }

  // A callback call to fill in. It comes back by itself when it is complete.
  CallbackCall& NewCallbackCall() {
    CallbackCall* const spare = spare_calls_.Take();
    if (spare == nullptr) [[unlikely]]
      return MakeCallbackCall();
    return *spare;
  }

  // Completes all calls with CANCELLED, closes the connection, and deletes this when it is gone.
  void Shutdown();

  // --- for remote memory ------------------------------------------------------------------------

  const std::string& address() const { return address_; }
  // `watcher` hears what becomes of the connection, until it is destroyed; before this is.
  void Watch(ConnectionWatcher* watcher) { watchers_.PushBack(watcher); }
  // Null: there is none now.
  Connection* open_connection() { return state_ == State::kOpen ? connection_ : nullptr; }
  // Starts to connect, if there is no connection and no attempt. Watchers hear, also inside.
  void WantConnection();
  // The peer is of use: the next loss of the connection is the first one again.
  void PeerAnswered() { failures_ = 0; }
  // Calls started after HoldCalls() are queued until as many ReleaseCalls() have come: so that they
  // do not overtake a write that was accepted before. HoldCalls() on any thread.
  void HoldCalls() { holds_.fetch_add(1, std::memory_order_relaxed); }
  void ReleaseCalls() {
    if (holds_.fetch_sub(1, std::memory_order_relaxed) == 1) Pump();
  }

  absl::StatusOr<PathInfo> path() const;
  const std::string& explanation() const { return explanation_; }
  ChannelStats stats() const;

  void CheckInvariants();

  // --- for calls --------------------------------------------------------------------------------

  // `call`, which ends, may be inside the function that starts it.
  bool MayDefer(const CallbackCall& call) const { return early_ends_.IsStarting(call); }
  // True: it has ended too early for its callback, which will come from a timer, with `*status`.
  bool Defer(CallbackCall& call, absl::Status* status);
  // `call` is complete, and as good as new but for its deadline.
  void Recycle(CallbackCall& call) {
    call.state = ClientCall::State::kNew;
    call.layouts = nullptr;
    call.deadline_ns = kNever;
    spare_calls_.Give(&call);
  }

  // --- for the memory that calls lend (client_bulk.cc) ------------------------------------------

  // Nothing can touch it any more; if its call waits for that, the call ends.
  void OnReclaimed(BulkCall& bulk);
  // Ends the connection of a server that does not do its part.
  void GiveUp(std::string_view why);

 private:
  // Spare callback calls that are kept: as many as a busy client has outstanding. About 250 bytes
  // each.
  static constexpr uint32_t kMaxSpareCalls = 1024;

  enum class State : uint8_t { kIdle = 1, kConnecting = 2, kOpen = 3, kPausing = 4, kEnded = 5 };

  // What the client keeps for a request under way.
  struct Slot {
    ClientCall* call = nullptr;   // null: abandoned
    uint64_t message_number = 0;  // of the request on the connection
    bool cancel_owed = false;     // abandoned, and the server does not know yet
  };

  enum class Sent : uint8_t { kYes = 1, kNotNow = 2, kCompleted = 3 };

  ~ClientConnection() override;

  // ConnectionHandler.
  void OnOpen(Connection& connection) override;
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnWritable(Connection& connection) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;
  // Timer: the pause between attempts is over.
  void OnTimer() override;

  void RegisterLines();
  void BeginAttempt();
  absl::Status AgreeWith(const std::string& server_hello);
  void AttemptFailed(const absl::Status& why);
  void Pause();
  std::string Hello() const;

  // Nobody waits who must not be overtaken.
  bool MaySend() const { return state_ == State::kOpen && queued_ == 0 && !held(); }
  template <class Request>
  bool SendRequest(ClientCall& call, uint16_t method, const Request& request);
  Sent TrySend(ClientCall& call);
  Sent TrySendWithWindows(ClientCall& call, uint16_t method);
  Sent SendConverted(ClientCall& call, const MethodTable::Agreed& agreed);
  Sent Send(ClientCall& call, uint16_t method);
  Sent Refuse(ClientCall& call, absl::Status why);
  void Enqueue(ClientCall& call);
  bool held() const { return holds_.load(std::memory_order_relaxed) != 0; }
  void Pump();
  void OnOkReply(ByteSpan frame);
  void OnOtherReply(ByteSpan frame, Slot slot);
  void OnLateReply(SlabHandle handle, const Slot& slot);
  void OnOtherFrame(ByteSpan frame);
  bool IsDecoded(ByteSpan body, ClientCall& call) const;
  bool IsDecodedInLayout(ByteSpan body, ClientCall& call) const;
  absl::Status OutcomeOf(const ReplyHeader& header, ByteSpan body, ClientCall& call) const;
  CallbackCall& MakeCallbackCall();
  uint32_t calls_in_slots() const { return slots_ ? static_cast<uint32_t>(slots_->size()) : 0; }
  void SendCancel(SlabHandle handle, Slot& slot);
  void SendOwedCancels();
  void End(ClientCall& call, absl::Status status);
  void EndWell(ClientCall& call);
  absl::Status Lend(ClientCall& call, SlabHandle slot, std::byte* table);
  void EndWithBulk(ClientCall& call, absl::Status status);
  void LeaveBulk(ClientCall& call);
  absl::Status LateReclaimError(const ClientCall& call) const;
  BulkCall* FindLent(SlabHandle slot);
  void ReleaseAbandoned(SlabHandle slot);
  void OnReleased(ByteSpan frame);
  void ReclaimAll(Connection& connection);
  void FailSlots(const absl::Status& not_sent, const absl::Status& may_have_run,
                 uint64_t first_unsent);
  void FailQueue(const absl::Status& status, bool also_patient);
  void Report(const absl::Status& connected);
  void ProtocolError(std::string_view what);
  absl::Status CheckSize(size_t bytes, uint32_t windows) const;
  uint32_t RemainingUs(const ClientCall& call) const {
    return call.deadline_ns == kNever ? 0 : TimeLeftUs(call);
  }
  uint32_t TimeLeftUs(const ClientCall& call) const;

  // What every call touches: the first cache line, for virtual calls; one here, with the first
  // counts of stats_; two from connection_ on, with the first slot; one of methods_.
  using SpareCalls = SpareList<CallbackCall, kMaxSpareCalls>;
  alignas(kCacheLineBytes) [[no_unique_address]] SpareCalls spare_calls_;
  uint32_t failures_ = 0;  // attempts in a row without a reply
  uint64_t max_request_bytes_ = 0;
  const uint64_t max_reply_bytes_;
  absl::Status close_reason_;  // why this side has closed; OK: it has not
  uint32_t queued_ = 0;
  std::atomic<uint32_t> holds_ = 0;  // any thread
  ChannelStats stats_;

  alignas(kCacheLineBytes) Connection* connection_ = nullptr;  // kConnecting, kOpen; kEnded until
                                                               // OnClosed
  PrefetchList* prefetch_ = &PrefetchList::None();             // of connection_, if it has one
  State state_ = State::kIdle;
  std::optional<Slab<Slot, NearArray>> slots_;  // while kOpen; as many as both sides allow

  alignas(kCacheLineBytes) MethodTable methods_;

  // The rest. Constant after construction:
  Engine& engine_;
  const std::string address_;
  const ChannelOptions options_;

  uint32_t max_windows_ = 0;      // in one request; as many as both sides allow
  IntrusiveList<BulkCall> lent_;  // whose windows the server may use, or used until just now
  IntrusiveList<ClientCall> queue_;
  uint32_t cancels_owed_ = 0;

  IntrusiveList<ConnectionWatcher, ConnectionWatcherTag> watchers_;
  bool wanted_ = false;  // kPausing: a watcher waits for the next attempt

  Random jitter_;
  absl::Status last_failure_;
  std::string explanation_;
  Function<void(absl::Status)> on_connected_;

  EarlyEnds<CallbackCall> early_ends_;  // count() <= max_queued_calls
};

}  // namespace weft
