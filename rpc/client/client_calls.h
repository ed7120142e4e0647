// The calls of one channel, wherever they are, and their way out and back over the connection that
// is open, if one is.
//
//   state     from                   calls
//   kClosed   construction, Close()  wait (waiting_calls.h). -> kOpen: Open()
//   kOpen     Open()                 are sent (sent_calls.h). -> kLeaving: Leave()
//   kLeaving  Leave()                sent ones go on; new ones wait, or take a bridge (bridge.h)
//   kEnded    Shutdown()             end at once; there is no way out
//
// Close() leads from kOpen and kLeaving to kClosed, Shutdown() from everywhere to kEnded.
// A channel over many servers has one that never opens, the front, and one for each (Balancer).
// A reply ends its call, at once or when the memory that it had lent is reclaimed (lent_memory.h).
// A server that never answers can take all slots of a channel; further calls then end by their
// deadlines in the queue.
//
// Threads: the engine's, but for Bind(), HoldCalls() and PrefetchFirst().
// Lifetime: a member of the channel's ClientConnection; its host outlives it.
// Errors: of calls, as channel.h says.
// Invariants: those of its parts. It has a connection exactly while kOpen or kLeaving. A call is in
//   the queue, or in a slot, or waits for its memory (kReclaiming), or is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/cache_line.h"
#include "core/prefetch.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_call.h"
#include "rpc/client/client_calls_host.h"
#include "rpc/client/lent_memory.h"
#include "rpc/client/method_table.h"
#include "rpc/client/retried_calls.h"
#include "rpc/client/sent_calls.h"
#include "rpc/client/waiting_calls.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "transport/engine.h"
#include "transport/prefetch_list.h"
#include "transport/transport.h"

namespace weft {

class Balancer;
class ClientStream;
class ClientStreams;

// It is the handler to give to Transport::Connect().
class alignas(kCacheLineBytes) ClientCalls final : public ConnectionHandler {
 public:
  enum class Sent : uint8_t { kYes = 1, kNotNow = 2, kCompleted = 3 };

  // `front`: as ClientConnection's; outlives this.
  ClientCalls(ClientCallsHost* host, EngineCore& engine, const std::string& address,
              const ChannelOptions& options, ClientCalls* front = nullptr);
  ~ClientCalls();
  ClientCalls(const ClientCalls&) = delete;
  ClientCalls& operator=(const ClientCalls&) = delete;

  uint32_t Bind(const ServiceDescriptor& service) { return methods_.Bind(service); }
  void ShareServices(ClientCalls& with) { methods_.Share(with.methods_.bound()); }  // when both new
  // --- the connection ---------------------------------------------------------------------------

  // A connection has opened. An error: what the server's hello says makes no sense.
  absl::Status Open(Connection& connection, const rpc::ServerHello& hello);
  // It (or a server) has room again, or is new: sends what waits, as far as there is room.
  void Pump();
  // From now on nothing new is sent on it. REQUIRES: open.
  void Leave();
  // What is new goes to a bridge's `next`, until Open(); null: it waits.
  void SetNext(ClientCalls* next);
  const ClientCalls* next() const { return next_; }
  bool is_open() const { return state_ == State::kOpen; }
  bool ended() const { return state_ == State::kEnded; }
  // No call of it waits for a reply, and no stream for its end.
  bool none_under_way() const;
  bool none_awaited() const;  // but for streams that are over here
  // It is gone: calls under way end with `may_have_run`, or with `not_sent` if their request surely
  // did not leave.
  void Close(Connection& connection, const absl::Status& not_sent,
             const absl::Status& may_have_run);
  // Ends what waits; calls that wait for a server (CallOptions::wait_for_server) only if
  // `also_patient`.
  void EndWaiting(const absl::Status& status, bool also_patient);
  // Ends everything with CANCELLED. Afterwards only ReclaimAll(), when the connection is gone.
  void Shutdown(const absl::Status& gone);
  void ReclaimAll(Connection& connection) { lent_.ReclaimAll(connection); }
  // Memory of calls is with the server, or not reclaimed yet.
  bool has_lent() const { return !lent_.empty(); }
  // Also such as pause between attempts.
  bool has_retried() const { return retried_ != nullptr && retried_->count() > 0; }

  bool answered() const { return answered_; }  // there has been a reply since Open()
  bool some_wait() const;
  // All counts except connects and connect_failures, which ClientConnection has.
  ChannelStats stats() const;
  void CheckInvariants();

  // --- for Channel ------------------------------------------------------------------------------

  // Sends the request of a call that lends nothing, if nothing stands in its way (client_steps.h).
  // False: nothing has happened, and Start...() has the call.
  template <class Request>
  bool SendAtOnce(ClientCall& call, uint32_t method, const Request& request);
  // The same of a message to a one-way method, which ends with that.
  template <class Request>
  bool SendOneWayAtOnce(uint32_t method, uint64_t timeout_us, const Request& request);
  // Of a connection that was not used lately: prefetches its memory, and tells the server that a
  // call comes.
  void PrefetchIfCold() {
    if (prefetch_->wanted()) [[unlikely]]
      prefetch_->Run();
  }
  // Prefetches what a call touches first. On any thread.
  void PrefetchFirst() const { PrefetchLines(&connection_, kCacheLineBytes); }
  // The context of a call that is about to be started: `given`, or one of its own where there are
  // interceptors, which start here. Null: it needs none. Errors: CallContext::Begin()'s. On any
  // thread.
  absl::StatusOr<CallContext*> BeginContext(uint32_t method, ClientContext* given);

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
  // Its caller gives it up: completes it with CANCELLED. REQUIRES: not kNew, not kDone.
  void Cancel(ClientCall& call);

  // Sends what was committed.
  void Flush() {
    if (connection_ != nullptr) return connection_->Flush();
    if (last_server_ != nullptr) last_server_->Flush();
  }
  // The same, unless the turn's end will do it.
  void FlushUnlessInTurn() {
    if (connection_ != nullptr && !engine_.InTurn()) connection_->Flush();
  }

  // Between these, new calls wait (waiting_calls.h). HoldCalls() and calls_held() on any thread.
  void HoldCalls() { waiting_.Hold(); }
  bool calls_held() const { return waiting_.held(); }
  void ReleaseCalls() {
    if (waiting_.Release()) Pump();
  }

  // --- for attempts of calls (retried_calls.h) --------------------------------------------------

  // Sends an attempt, queues it, or completes it at once with an error.
  void StartAttempt(ClientCall& attempt);
  // Sends it, or completes it. kNotNow: there is no room, and nothing has happened.
  Sent SendAttempt(ClientCall& attempt);
  // It will not be completed: nobody waits for it any more. REQUIRES: kSent.
  void Drop(ClientCall& attempt);
  // Completes a call that is neither queued nor sent.
  void End(ClientCall& call, absl::Status status);

  // --- back-pressure ----------------------------------------------------------------------------

  // A call of a small request, if it were started now, would not be queued.
  bool HasRoom();
  // ClientCallsHost::OnRoom() comes once, when there is room; the channel wants a connection until
  // then. REQUIRES: !HasRoom().
  void WantRoom();
  void WantNoRoom() { waiting_.SetRoomWanted(false); }

  // --- many servers -----------------------------------------------------------------------------

  // At the front: `balancer` sends what is started here; the server that it used last, or null.
  void SetBalancer(Balancer* balancer) { balancer_ = balancer; }
  void SetLastServer(ClientCalls* server) { last_server_ = server; }
  void SetWatcher(CallsWatcher* watcher) { watcher_ = watcher; }  // with a front
  uint64_t calls_ok() const { return stats_.calls_ok; }
  uint32_t load() const;  // calls and streams that it has not answered

  // --- streams (client_stream.h) ----------------------------------------------------------------

  ClientStreams& streams() { return *streams_; }
  const ChannelOptions& options() const { return options_; }
  void StartStream(ClientStream& stream);

  // --- callback calls ---------------------------------------------------------------------------

  // One to fill in. It comes back by itself when it is complete.
  CallbackCall& NewCallbackCall() {
    CallbackCall* const spare = spare_calls_.Take();
    if (spare == nullptr) [[unlikely]]
      return MakeCallbackCall();
    return *spare;
  }
  // Takes `call` back for NewCallbackCall(). REQUIRES: it is complete. What the next call always
  // sets is left as it is.
  void Recycle(CallbackCall& call) {
    call.state = ClientCall::State::kNew;
    call.layouts = nullptr;
    call.deadline_ns = kNever;
    spare_calls_.Give(&call);
  }
  // True: `call` ends inside the function that starts it, or another one: its callback will come
  // from a timer, with `*status`.
  bool Defer(CallbackCall& call, absl::Status* status);

 private:
  enum class State : uint8_t { kClosed = 1, kOpen = 2, kLeaving = 3, kEnded = 4 };
  enum class Notice : uint8_t { kNone = 1, kMoved = 2, kGoaway = 3 };
  // Callback calls that are kept, of 250 bytes each: as many as a busy client has outstanding.
  static constexpr uint32_t kMaxSpareCalls = 1024;

  // ConnectionHandler.
  void OnOpen(Connection& connection) override { host_.OnOpen(connection); }
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnWritable(Connection&) override { host_.OnWritable(); }
  void OnClosed(Connection& connection, const absl::Status& why) override {
    host_.OnClosed(connection, why);
  }

  void ListHotLines(void (PrefetchList::*list)(const void*, size_t));
  // --- out --------------------------------------------------------------------------------------

  bool MaySend() const { return connection_ != nullptr && waiting_.may_pass(); }
  template <class Request>
  bool SendRequest(ClientCall& call, uint16_t method, const Request& request);
  Sent TrySend(ClientCall& call);
  Sent SendAtNext(ClientCall& call);
  ClientStreams* NextStreams();
  bool NextHasRoom();
  bool MayOpenStreams() const { return !waiting_.held() && next_ == nullptr; }
  Sent Send(ClientCall& call, uint16_t method);
  Sent SendConverted(ClientCall& call, const MethodTable::Agreed& agreed);
  Sent SendWithMore(ClientCall& call, uint16_t method);
  Sent SendOneWay(ClientCall& call, uint16_t method);
  absl::Status CheckSendable(const ClientCall& call, const Beside& beside, size_t bytes) const;
  Sent Refuse(ClientCall& call, absl::Status why);
  // What the server is told, if it knows of priorities.
  Priority Told(Priority priority) const;
  bool SendCancel(SlabHandle slot);
  void PumpCalls(Priority least);
  CallbackCall& MakeCallbackCall();

  // --- back -------------------------------------------------------------------------------------

  void OnOkReply(Connection& connection, ByteSpan frame);
  void OnOtherReply(ByteSpan frame, SentCalls::Slot slot);
  void OnOtherFrame(ByteSpan frame);
  void OnReleased(ByteSpan frame);
  void OnGoaway(ByteSpan frame);
  void OnMoved(ByteSpan frame);
  void OnStreamFrame(ByteSpan frame);
  void ProtocolError(std::string_view what);
  void Abandon(ClientCall& call);
  void EndWell(ClientCall& call);
  void EndSent(uint64_t first_unsent, const absl::Status& not_sent,
               const absl::Status& may_have_run);

  // What every call touches: one cache line here, with the first counts of stats_; two from
  // connection_ on, with the first slot; one of methods_.
  using SpareCalls = SpareList<CallbackCall, kMaxSpareCalls>;
  [[no_unique_address]] SpareCalls spare_calls_;
  State state_ = State::kClosed;
  bool answered_ = false;
  WaitingCalls waiting_;  // at most max_queued_calls; held while leaving
  ChannelStats stats_;    // but for what the parts and the connection know

  alignas(kCacheLineBytes) Connection* connection_ = nullptr;  // kOpen, kLeaving
  PrefetchList* prefetch_ = &PrefetchList::None();             // of connection_
  uint64_t max_request_bytes_ = 0;                             // as the server has said
  const uint64_t max_reply_bytes_;
  SentCalls sent_;

  alignas(kCacheLineBytes) MethodTable methods_;

  // The rest. Constant after construction:
  ClientCallsHost& host_;
  EngineCore& engine_;
  const std::string& address_;
  const ChannelOptions& options_;

  Balancer* balancer_ = nullptr;        // the front's; null: this has a connection of its own
  ClientCalls* next_ = nullptr;         // of SetNext()
  ClientCalls* last_server_ = nullptr;  // the front's: what it has committed may have to be sent
  CallsWatcher* watcher_ = nullptr;     // with a front
  LentMemory lent_;
  const std::unique_ptr<ClientStreams> streams_;
  const std::unique_ptr<RetriedCalls> retried_;  // null: calls are not sent again
  bool streams_first_ = false;                   // who sends when there is room: they take turns
  Notice notice_ = Notice::kNone;                // on this connection; a goaway may follow a moved
  bool takes_priorities_ = false, takes_attachments_ = false;  // the server does
  uint32_t max_windows_ = 0, max_extras_ = 0;  // windows, and bytes, in one request, for both sides
  EarlyEnds<CallbackCall> early_ends_;  // those that waited, and what was started in this turn
};

}  // namespace weft
