// The connection as its streams share it: where their frames go, how much each may have under way,
// and who waits for room.
//
// A stream that finds no room in the connection waits in a list. When there is room again, each in
// turn sends one message and goes to the rear if it has more: so no stream starves another. As long
// as one waits, no other stream sends past it, but for those that are more urgent.
//
// Threads: the engine's. Lifetime: outlives its streams' use of it.
// Errors: none.
// Invariants: who waits has something to send. What is held is within its limits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/client_shares.h"
#include "core/intrusive_list.h"
#include "core/priority_lists.h"
#include "core/tally.h"
#include "rpc/stream/stream.h"
#include "rpc/wire/service.h"
#include "rpc/wire/stream_frame.h"
#include "transport/connection.h"

namespace weft {

class StreamConnection {
 public:
  // Of received messages, in bytes. A stream with a message that would go beyond one fails.
  struct Bounds {
    uint64_t held = 0;     // of all that wait to be read, here and elsewhere (*held_bytes)
    uint64_t message = 0;  // of one
    uint64_t least = 0;    // of one client, where that fits
  };

  // What waits to be read counts into `*held_bytes`, which others may count into as well, and into
  // `own_bytes`, which are all that one client has of them (LeavesAsMuch()).
  StreamConnection(Tally<uint64_t>* held_bytes, std::shared_ptr<uint64_t> own_bytes,
                   const Bounds& bounds)
      : held_bytes_(*held_bytes), own_bytes_(std::move(own_bytes)), bounds_(bounds) {}

  // It is open. `mine`: what this side holds of each stream; `peers`: what the other one does.
  // `max_message_bytes`: of one message, as the peer takes it.
  void Open(Connection* connection, StreamWindow mine, StreamWindow peers,
            uint64_t max_message_bytes) {
    connection_ = connection;
    mine_ = mine;
    peers_ = peers;
    return_at_ = {std::max(1u, mine.messages / 2), std::max(1u, mine.bytes / 2)};
    max_message_bytes_ = max_message_bytes;
    LookWhoWaits();
  }
  // It is gone, or given up: nothing is sent any more.
  void Close() {
    connection_ = nullptr;
    waiting_.Clear();
    LookWhoWaits();
  }

  Connection* connection() { return connection_; }
  StreamWindow mine() const { return mine_; }
  StreamWindow peers() const { return peers_; }
  // What is taken and not returned is less than that: of either.
  StreamWindow return_at() const { return return_at_; }
  uint64_t max_message_bytes() const { return max_message_bytes_; }

  // It is open, and nobody waits for room: any stream may send.
  bool is_clear() const { return is_clear_; }
  // Nobody waits for room whom a stream of that priority must not pass.
  bool may_pass(Priority priority) const { return waiting_.may_pass(priority); }
  // The stream may send, whoever else waits.
  bool MayPass(const Stream& stream) {
    return connection_ != nullptr && (may_pass(stream.priority_) || TakeTurn(stream));
  }
  // A stream that Pump() has come to, and that is told that it may write, does so though others
  // wait: once, from inside Pump(). (Two that asked again in turn went on for ever.)
  void GiveTurn(const Stream& stream) { turn_ = pumping_ ? &stream : nullptr; }
  // Pump() comes to it. Nothing to do if it waits already.
  void Wait(Stream& stream) {
    if (!waiting_.IsLinked(&stream)) waiting_.PushBack(&stream, stream.priority_);
    LookWhoWaits();
  }
  void StopWaiting(Stream& stream) {
    waiting_.Remove(&stream);
    LookWhoWaits();
  }
  // There is room: those that wait and are at least as urgent as `least` send, in turn, until there
  // is none or nobody waits.
  void Pump(Priority least = Priority::kBackground) {
    while (connection_ != nullptr) {
      Stream* const stream = waiting_.PopFront(least);
      if (stream == nullptr) return;
      LookWhoWaits();
      pumping_ = true;
      const bool sent = stream->SendWhatIsDue();
      pumping_ = false;
      turn_ = nullptr;
      if (!sent) {
        // First again when there is room.
        if (!waiting_.IsLinked(stream)) waiting_.PushFront(stream, stream->priority_);
        return LookWhoWaits();
      }
    }
  }

  // Of a message that is received.
  uint64_t most_message_bytes() const { return bounds_.message; }
  bool MayHold(size_t bytes) const {
    return LeavesAsMuch(*own_bytes_, bytes, held_bytes_, bounds_.held, bounds_.least);
  }
  void Hold(size_t bytes) {
    held_bytes_ += bytes;
    *own_bytes_ += bytes;
  }
  void LetGo(size_t bytes) {
    held_bytes_ -= bytes;
    *own_bytes_ -= bytes;
  }

  size_t waiting_slowly() const { return waiting_.CountSlowly(); }

 private:
  bool TakeTurn(const Stream& stream) {
    if (turn_ != &stream) return false;
    turn_ = nullptr;
    return true;
  }
  void LookWhoWaits() { is_clear_ = connection_ != nullptr && waiting_.empty(); }

  Connection* connection_ = nullptr;  // null: there is none
  bool is_clear_ = false;
  bool pumping_ = false;
  const Stream* turn_ = nullptr;  // whose turn it is, while pumping_; null: nobody's
  StreamWindow mine_;
  StreamWindow peers_;
  StreamWindow return_at_;
  uint64_t max_message_bytes_ = 0;
  PriorityLists<Stream, Priority, kPriorities, StreamRoomTag> waiting_;
  Tally<uint64_t>& held_bytes_;
  const std::shared_ptr<uint64_t> own_bytes_;  // of them, this client's
  const Bounds bounds_;
};

}  // namespace weft
