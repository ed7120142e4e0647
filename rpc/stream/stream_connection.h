// The connection as its streams share it: where their frames go, how much each may have under way,
// and who waits for room.
//
// A stream that finds no room in the connection waits in a list. When there is room again, each in
// turn sends one message and goes to the rear if it has more: so no stream starves another. As long
// as one waits, no other stream sends past it.
//
// Threads: the engine's. Lifetime: outlives its streams' use of it.
// Errors: none.
// Invariants: who waits has something to send. held_bytes() <= the limit, but for what one message
//   adds.
#pragma once

#include <cstdint>

#include "core/intrusive_list.h"
#include "rpc/stream/stream.h"
#include "rpc/wire/stream_frame.h"
#include "transport/connection.h"

namespace weft {

class StreamConnection {
 public:
  // Messages that wait to be read count into `*held_bytes`, which others may count into as well. A
  // stream whose message would make it more than `most_held_bytes` fails.
  StreamConnection(uint64_t* held_bytes, uint64_t most_held_bytes)
      : held_bytes_(*held_bytes), most_held_bytes_(most_held_bytes) {}

  // It is open. `mine`: what this side holds of each stream; `peers`: what the other one does.
  // `max_message_bytes`: of one message, as the peer takes it.
  void Open(Connection* connection, StreamWindow mine, StreamWindow peers,
            uint64_t max_message_bytes) {
    connection_ = connection;
    mine_ = mine;
    peers_ = peers;
    max_message_bytes_ = max_message_bytes;
  }
  // It is gone, or given up: nothing is sent any more.
  void Close() {
    connection_ = nullptr;
    waiting_.Clear();
  }

  Connection* connection() { return connection_; }
  StreamWindow mine() const { return mine_; }
  StreamWindow peers() const { return peers_; }
  uint64_t max_message_bytes() const { return max_message_bytes_; }

  // Nobody waits for room: a stream may send.
  bool free() const { return waiting_.empty(); }
  // Pump() comes to it. Nothing to do if it waits already.
  void Wait(Stream& stream) {
    if (!waiting_.IsLinked(&stream)) waiting_.PushBack(&stream);
  }
  static void StopWaiting(Stream& stream) { IntrusiveList<Stream, StreamRoomTag>::Remove(&stream); }
  // There is room: those that wait send, in turn, until there is none or nobody waits.
  void Pump() {
    while (connection_ != nullptr && !waiting_.empty()) {
      Stream* const stream = waiting_.PopFront();
      if (!stream->SendWhatIsDue()) {
        // First again when there is room.
        if (!waiting_.IsLinked(stream)) waiting_.PushFront(stream);
        return;
      }
    }
  }

  bool MayHold(size_t bytes) const { return held_bytes_ + bytes <= most_held_bytes_; }
  void Hold(size_t bytes) { held_bytes_ += bytes; }
  void LetGo(size_t bytes) { held_bytes_ -= bytes; }

  size_t waiting_slowly() const { return waiting_.CountSlowly(); }

 private:
  Connection* connection_ = nullptr;  // null: there is none
  StreamWindow mine_;
  StreamWindow peers_;
  uint64_t max_message_bytes_ = 0;
  IntrusiveList<Stream, StreamRoomTag> waiting_;
  uint64_t& held_bytes_;
  const uint64_t most_held_bytes_;
};

}  // namespace weft
