// One client at the server: its call slots, and the frames to and from it.
//
// Calls themselves come from the server's pool (server_calls.h) and go back with their reply.
//
// The client names a slot and a generation in each request. The slot must exist and be free, and
// the generation must be newer than that of the slot's last call: so a request runs at most once,
// whatever a peer repeats. A peer that breaks this, or sends a frame that is none, loses this
// connection.
//
// A reply that finds no credit waits in its slot; there are never more of them than slots. When
// there is room again, the most urgent leave first. Their bytes are charged while they wait, and
// who takes them too slowly loses its connection (ServerOptions::max_unsent_reply_bytes).
//
// When the server is about to shut down, the client is told by a goaway, as soon as none of its
// one-way messages is being handled. It takes what it waits for, and then closes.
//
//   States, and who moves them:
//     kServing  construction. -> kGivenUp: GiveUp(); -> kClosed: OnClosed()
//     kGivenUp  this side has closed the connection, for a frame that is none, or replies that
//               nobody takes: nothing more is taken or sent. -> kClosed: OnClosed()
//     kClosed   the connection has closed, or the peer has ended its calls. Retired when the last
//               handler has finished
//
// Threads: the engine's.
// Lifetime: made by ServerCore for an arriving client, or a peer that begins to call; deleted by
//   ServerCore::Retire().
// Invariants: it has a connection exactly while kServing. running_ = slots that have a call,
//   streams and one-way messages; waiting_ holds exactly the kReplying ones, which
//   waiting_replies_ counts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/cache_line.h"
#include "core/huge_page_arena.h"
#include "core/intrusive_list.h"
#include "core/near_array.h"
#include "core/priority_lists.h"
#include "rpc/bulk/transfer_queue.h"
#include "rpc/peer/served_peer.h"
#include "rpc/server/admission.h"
#include "rpc/server/call_slot.h"
#include "rpc/server/client_access.h"
#include "rpc/server/dispatch.h"
#include "rpc/server/leave_notices.h"
#include "rpc/server/one_way_calls.h"
#include "rpc/server/reply_backlog.h"
#include "rpc/server/server_call.h"
#include "rpc/server/server_streams.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/service.h"
#include "transport/engine.h"
#include "transport/transport.h"

namespace weft {

class ServerCore;

class alignas(kCacheLineBytes) ServerConnection final : public ConnectionHandler,
                                                        private ListNode<>,
                                                        private TransferQueue::Host,
                                                        public InHugePageArena {
 public:
  // `peer`: whose connection carries this server's calls as well; null: it is a plain client's.
  ServerConnection(ServerCore& core, Connection& connection, std::shared_ptr<ServedPeer> peer);

  ServerCore& core() { return core_; }
  const PathInfo& path() const { return path_; }
  // Of the client (ServerOptions::tenant_of).
  uint32_t tenant() const { return tenant_; }
  const std::shared_ptr<ServedPeer>& peer() const { return peer_; }
  // The client's, that it has opened here: perhaps some that have ended (completion_records.h).
  std::vector<SessionId>& opened_sessions() {
    return peer_ != nullptr ? peer_->opened_sessions() : opened_sessions_;
  }

  // The client's part of the handshake, of a connection that is open: an encoded rpc::ClientHello.
  void Begin(Connection& connection, std::string_view client_hello);
  // The peer waits for no call any more: what runs is cancelled. OnClosed() follows.
  void CancelAll();

  // ServerCore::HeldBytesOf() this client.
  const std::shared_ptr<uint64_t>& held_bytes() const { return held_bytes_; }

  // The call's handler has ended. Engine thread.
  void Complete(ServerCall& call, absl::Status status);

  // Posts a transfer of a running call, now or when there is room. An error: it is not started.
  absl::Status Start(BulkTransfer& transfer);
  // The call was cancelled, and none of its transfers is under way: its client may have the memory
  // back.
  void OnQuiet(ServerCall& call);
  // There is no need any more to tell the client that the call is quiet.
  void ForgetRelease(ServerCall& call);
  // Of one request or open; as many as both sides allow.
  uint32_t max_windows() const { return max_windows_; }
  // For a posted transfer of a call that is over.
  void Hurry(BulkTransfer& transfer) { transfers_.Hurry(transfer); }
  // The client has given up on a call with windows. False: the call was finished, and has ended
  // with its last transfer.
  bool TakeBack(ServerCall& call);

  // --- for streams (server_streams.h) -----------------------------------------------------------

  Connection* connection() override { return connection_; }  // null: gone, or given up
  uint32_t max_reply_bytes() const { return max_reply_bytes_; }
  // Null: the client may call everything.
  ClientAccess* access() { return access_.get(); }
  // Null: the client has no limit.
  RunningCount* client_count() { return client_count_.get(); }
  // Stays until a call of a stream is freed.
  void HoldOn() { ++running_; }
  std::string ReplyExtras(const ServerCall& call) const;
  // Runs its handler, and cancels the call at its deadline.
  void RunWatched(ServerCall& call, const MethodEntry& entry);
  // The call is cancelled at its deadline, if it has one.
  void WatchDeadline(ServerCall& call);
  // Gives the call back; with the last one a connection that has closed goes.
  void Free(ServerCall& call);
  void FlushUnlessInTurn();

  // --- for a client that is to leave (leave_notices.h) ------------------------------------------

  // Tells the client once that the server is about to shut down, if it understands that, now or
  // when there is room.
  void SendGoaway();
  // Tells the client that another process serves here, if it understands that; it then connects to
  // that one, and leaves. Calls run as before.
  void SendMoved();
  // A look of Rebalance: returns whether it is going to leave.
  bool LookIsLeaving(uint32_t patience) {
    return notices_.LookIsLeaving(
        connection_ == nullptr ? 0 : connection_->stats().messages_received, patience);
  }
  // All that its client does would go on if it did (rebalance.h), and it would hear of it soon.
  bool MayMove() const {
    return connection_ != nullptr && peer_ == nullptr &&
           (streams_ == nullptr || streams_->running() == 0) && notices_.MayMove(*connection_);
  }
  // It is going to leave, or may be told to when the connection is open.
  bool AwaitsMove() const {
    if (connection_ == nullptr) return false;
    return notices_.takes_moved() || connection_->state() == Connection::State::kConnecting;
  }
  // Something is on its way to the client, or from it, that is not delivered.
  bool IsMoving() const {
    return connection_ != nullptr &&
           (notices_.owes_goaway() || connection_->stats().large_under_way > 0);
  }
  // The client was told, and is going to close; or it will be told, when the connection is open.
  // `quiet`: there was time for that, if somebody drives the client. REQUIRES: no call runs.
  bool AwaitsClose(bool quiet) const {
    if (connection_ == nullptr) return false;
    if (connection_->state() == Connection::State::kConnecting) return !quiet;
    return notices_.AwaitsClose(quiet);
  }
  // A look for idle clients: returns whether this one was asked to leave.
  bool LookIsIdle() {
    return connection_ != nullptr && peer_ == nullptr &&
           notices_.LookIsIdle(*connection_, running_ > 0);
  }

  // --- for clients that take no replies ---------------------------------------------------------

  // Of replies that wait.
  uint64_t unsent_bytes() const { return backlog_.bytes(); }
  uint32_t waiting_replies() const { return waiting_replies_; }
  // Ends the connection, and lets what waits for it go; `why` is for the client and the log.
  void EndSlowReader(std::string_view why);

  // Ends the connection; `why` is told to the client.
  void Close(std::string_view why) {
    if (connection_ != nullptr) connection_->Close(why);
  }

  void CheckInvariants();

 private:
  friend class IntrusiveList<ServerConnection>;

  enum class State : uint8_t { kServing = 1, kGivenUp = 2, kClosed = 3 };

  void OnOpen(Connection& connection) override { Begin(connection, connection.peer_hello()); }
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnWritable(Connection& connection) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;

  // What each call touches, for the prefetch list.
  ByteSpan HotBytes() const;

  // TransferQueue::Host. The call that ends may be the last of a connection that is gone.
  void BeginEnd() override { ++running_; }
  void FinishEnd() override;
  TimerWheel& timers() override;
  uint64_t now_ns() override;

  absl::Status AgreeWith(std::string_view client_hello);

  // Takes the unused Connection so that OnMessage() can jump here with its arguments in place.
  void OnRequest(Connection& connection, ByteSpan message);
  void OnOtherFrame(ByteSpan frame);
  void OnRequestWithMore(ByteSpan frame, uint16_t kind);
  bool IsStopped(ServerCall& call, uint16_t method, bool counts);
  void Refuse(ServerCall& call, absl::Status why);
  absl::Status TakeBeside(ServerCall& call, ByteSpan extras, Metadata metadata, ByteSpan body,
                          ByteSpan attachment);
  static const absl::Cord* ReplyAttachmentOf(const ServerCall& call);
  void Accept(ServerCall& call, const RequestHeader& header, ByteSpan body);
  void AcceptOnce(ServerCall& call, const RequestHeader& header, ByteSpan body,
                  const OnceAttempt& attempt);
  void OnStreamFrame(ByteSpan frame);
  void OnOneWay(ByteSpan frame);
  void CompleteOneWay(ServerCall& call, const absl::Status& status);
  void OnCancel(ByteSpan frame);
  ServerCall* TakeSlot(CallId id);
  CallSlot* ReachSlot(uint32_t slot);
  void RefuseSlot(const CallSlot* slot);
  static bool TakeEarlyCancel(CallSlot& slot);
  bool IsAdmitted(ServerCall& call, const MethodEntry* entry, const RequestHeader& header,
                  ByteSpan body);
  bool IsDecoded(ServerCall& call, const MethodEntry& entry, ByteSpan body);
  void RunOwnOrRefuse(ServerCall& call, const MethodEntry* entry, const RequestHeader& header,
                      ByteSpan body);
  void RunAside(ServerCall& call, const MethodEntry& entry);

  void AnswerInTurn(ServerCall& call);
  absl::Status CheckReply(const ServerCall& call) const;
  bool TrySend(ServerCall& call);
  bool TrySendReply(ServerCall& call);
  bool TrySendInLayout(ServerCall& call);
  bool TrySendProtobuf(ServerCall& call);
  bool TrySendMessage(ServerCall& call);
  template <class Write>
  bool TrySendBody(ServerCall& call, size_t bytes, Write write);
  bool TrySendWithExtras(ServerCall& call, size_t bytes, absl::FunctionRef<void(std::byte*)> write);
  bool TrySendError(ServerCall& call);
  void SendOwedNotice();
  bool TrySendReleased(ServerCall& call);
  void SendOwedReleases();
  void FreeAnswered(ServerCall& call);
  void LetWait(ServerCall& call);
  void GiveUp(std::string_view why);
  void SendWaitingReplies(Priority least);
  void ProtocolError(std::string_view what);

  // What every call touches, in one or two cache lines, which begin with the base classes. `core_`
  // is constant after construction, max_..._ once open.
  ServerCore& core_;
  Connection* connection_;     // kServing
  NearArray<CallSlot> slots_;  // as many as both sides allow
  uint16_t running_ = 0;
  uint16_t waiting_replies_ = 0;  // in waiting_
  State state_ = State::kServing;
  const bool is_guarded_;                       // by access_, or the server's limits
  const std::shared_ptr<uint64_t> held_bytes_;  // ServerCore::HeldBytesOf() this client
  uint32_t max_reply_bytes_ = 0;
  std::unique_ptr<ClientAccess> access_;  // null: the client may call everything

  // The rest.
  uint32_t max_windows_ = 0;
  uint32_t max_extras_ = 0;         // bytes, of one reply; the same
  bool takes_attachments_ = false;  // the client does
  uint32_t tenant_ = kDefaultTenant;
  std::shared_ptr<RunningCount> client_count_;  // null: no limit
  StreamLimits stream_limits_;              // streams that both sides allow; what the client holds
  std::unique_ptr<ServerStreams> streams_;  // from the first frame of one on
  bool streams_first_ = false;              // who sends when there is room: they take turns
  OneWayCalls one_way_;                     // at most max_outstanding_calls
  PriorityLists<ServerCall, Priority, kPriorities> waiting_;  // replies without credit
  ReplyBacklog backlog_;                                      // those in waiting_
  uint32_t releases_owed_ = 0;                                // calls with release_owed_
  LeaveNotices notices_;
  TransferQueue transfers_{this};
  PathInfo path_;
  const std::shared_ptr<ServedPeer> peer_;  // null: a plain client
  std::vector<SessionId> opened_sessions_;  // of that; at most kMaxConnectionSessions
};

}  // namespace weft
