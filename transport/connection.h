// A Connection is an ordered, reliable path to one peer: messages, and access to its memory
// (remote_access.h). The same over shared memory, TCP, RDMA and the simulated network.
//
//   Connection states, and who moves them:
//     kConnecting  Connect() or an arriving peer. -> kOpen, kClosed
//     kOpen        the transport, both sides ready; OnOpen() tells. -> kClosed
//     kClosed      Close(), the peer, or a failure; OnClosed() tells once, and is the last word.
//
// Threads: all of this belongs to one engine and is used on the thread that drives it (engine.h).
//   Callbacks come from Transport::Poll(), never from inside the call that caused them.
// Lifetime: a Connection belongs to its Transport. The pointer is good until OnClosed() returns.
//   Handlers are the caller's and outlive the connection (until OnClosed() has returned).
// Ordering: messages arrive whole and once. Those of up to eager_bytes() arrive in the order of
//   their Commit(); larger ones in that order among themselves. A small message may overtake a
//   large one that is still being moved, so that 64 MiB never hold up 64 bytes; a large one
//   overtakes nothing.
// Completion: every message is delivered to the peer's OnMessage(), or the connection closes.
// Errors, by what to do next:
//   INVALID_ARGUMENT    the call is wrong: fix it. Nothing happened.
//   RESOURCE_EXHAUSTED  a limit is reached: wait for OnWritable(), then try again.
//   FAILED_PRECONDITION not open (yet, or any more).
//   UNAVAILABLE         the peer or the path is gone: connect again.
//   DATA_LOSS           the peer broke the protocol; the connection is closed.
//   CANCELLED           this side closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/message_room.h"
#include "transport/path.h"
#include "transport/prefetch_list.h"
#include "transport/remote_access.h"

namespace weft {

class Connection;

// The largest message, in bytes. Bounds what one peer can make this process allocate at once;
// larger payloads belong in one-sided transfers.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;

// What a connection tells its user. All calls come on the engine's thread.
class ConnectionHandler {
 public:
  // Messages can be sent from now on. Called at most once, before any OnMessage.
  virtual void OnOpen(Connection& connection) = 0;

  // `message` is valid until the call returns. Send, Close and other connections' calls are
  // allowed inside. None comes after Close(), not even of those that were there already.
  virtual void OnMessage(Connection& connection, ByteSpan message) = 0;

  // Comes after Reserve(), Append() or an operation of RemoteAccess was refused for want of room:
  // try again.
  virtual void OnWritable(Connection& connection) { (void)connection; }

  // The end, exactly once, for every connection, also one that never opened. `why` is never OK.
  // The connection is gone when this returns.
  virtual void OnClosed(Connection& connection, const absl::Status& why) = 0;

 protected:
  ~ConnectionHandler() = default;
};

// What a connection has done. Counts since it opened; readable on the engine's thread.
struct ConnectionStats {
  uint64_t messages_committed = 0;  // by Commit() or Append()
  uint64_t messages_sent = 0;       // of these: handed to the provider
  uint64_t messages_received = 0;
  uint64_t batches_sent = 0;  // fabric messages; messages_sent / batches_sent is the coalescing
  uint64_t batches_received = 0;
  uint64_t large_sent = 0;  // messages moved by one-sided transfer
  uint64_t large_received = 0;
  uint64_t credit_stalls = 0;  // times a batch found no credit, or no room in the link
  // Now:
  uint32_t large_under_way = 0;  // both ways: offered, and not known to be delivered
};

// What both ends' handshake has found out. From OnOpen() on, but for what is said otherwise.
struct ConnectionFacts {
  PathInfo path;
  // Every path considered, in the order tried, with reasons. From OnOpen() or OnClosed() on.
  std::vector<PathCandidate> candidates;
  std::string peer_hello;
  bool engine_wanted = false;  // a server's: the client has asked for this engine
};

// An ordered, reliable path to one peer.
class Connection {
 public:
  enum class State : uint8_t { kConnecting = 1, kOpen = 2, kClosed = 3 };

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // --- messages ---------------------------------------------------------------------------------

  // Space for one message of up to `bytes` (0..kMaxMessageBytes), in registered memory: what is
  // written there is sent from there. At most one reservation is open at a time; end it with
  // Commit() or Abandon() before returning to the engine.
  // RESOURCE_EXHAUSTED: no credit or no slot now; OnWritable() will come.
  virtual absl::StatusOr<std::byte*> Reserve(size_t bytes) = 0;

  // Queues the reserved message, `bytes` long (<= reserved). Small messages committed in one turn
  // of the engine share a fabric message; it leaves at Flush() or at the end of the turn.
  // Returns the message's number: 0, 1, 2, ... in the order of commits.
  // REQUIRES: an open reservation.
  virtual uint64_t Commit(size_t bytes) = 0;

  // Gives the reservation back; nothing is sent.
  virtual void Abandon() = 0;

  // Reserve() and Commit() in one, for a message of `bytes` bytes, no less: the caller writes them
  // before it asks anything else of this connection and before it returns to the engine. Refused
  // (data == nullptr) where Reserve() would be; what it would say is then of no interest.
  // REQUIRES: no open reservation; bytes < 2^63.
  MessageSpace Append(size_t bytes) {
    if (!room_.Fits(FrameBytes(bytes))) [[unlikely]]
      return AppendSlowly(bytes);
    return room_.AppendMessage(bytes);
  }

  // Sends what is committed now instead of at the end of the turn.
  virtual void Flush() = 0;

  // The number of the first message that has not been handed to the provider: messages from this
  // number on surely never reached the peer; those before it may have. Good inside OnClosed().
  virtual uint64_t first_unsent() const = 0;

  // Inside ConnectionHandler::OnMessage(): the message stays where it is, unchanged, until the last
  // copy of this is gone: on any thread, and whether the connection and its engine are still there
  // or not. Null: it cannot; copy what is needed of it. That is so for small messages, which take
  // their turns in few places, and when much is kept already. A second time it is null.
  virtual std::shared_ptr<const void> KeepMessage() { return nullptr; }

  // The same: when this side has learned of the message, on its engine's clock; 0: now, with it. A
  // large one is announced, and takes its time to be read, or waits until there is memory for it.
  uint64_t announced_ns() const { return announced_ns_; }

  // --- the peer's memory ------------------------------------------------------------------------

  RemoteAccess& memory() { return memory_; }

  // --- life -------------------------------------------------------------------------------------

  // Ends the connection: what was committed is handed to the provider where it takes it at once,
  // outstanding operations complete with CANCELLED, the peer sees UNAVAILABLE, OnClosed(CANCELLED)
  // follows from Poll(). Idempotent. `why` travels to the peer as text where the path is up.
  virtual void Close(std::string_view why) = 0;

  // --- facts ------------------------------------------------------------------------------------

  State state() const { return state_; }
  const PathInfo& path() const { return facts_.path; }
  const std::vector<PathCandidate>& candidates() const { return facts_.candidates; }
  const std::string& peer_hello() const { return facts_.peer_hello; }
  bool engine_wanted() const { return facts_.engine_wanted; }
  // Messages reserved with up to this size travel in one frame; larger ones by one-sided transfer.
  // Good from OnOpen() on.
  size_t eager_bytes() const { return eager_bytes_; }
  virtual ConnectionStats stats() const = 0;

  // What a message touches, where a connection can go cold: layers above register their own memory
  // there, in OnOpen(). PrefetchList::None(): this one never goes cold. Good from OnOpen() on,
  // until OnClosed().
  PrefetchList& prefetch() const { return *prefetch_; }

 protected:
  // `room` and `memory` are parts of the connection that is made. `prefetch`: PrefetchList::None(),
  // where it has no link yet.
  Connection(MessageRoom* room, RemoteAccess* memory, PrefetchList* prefetch)
      : room_(*room), memory_(*memory), prefetch_(prefetch) {}
  virtual ~Connection() = default;

  // Append() of what does not fit into the room. As Reserve() and Commit().
  virtual MessageSpace AppendSlowly(size_t bytes) = 0;

  // Open while a batch is being filled; what is in it leaves at the end of the turn.
  MessageRoom& room_;
  RemoteAccess& memory_;
  State state_ = State::kConnecting;
  size_t eager_bytes_ = 0;
  PrefetchList* prefetch_;
  uint64_t announced_ns_ = 0;  // of the message that is being delivered
  ConnectionFacts facts_;
};

}  // namespace weft
