// The streams of one channel, wherever they are: before their open could be sent, and in the slots
// of the connection that is open.
//
// A slot belongs to its stream until the server's end, and all messages that it counts, have come;
// when the stream is over earlier, by its deadline or a cancel, it stays abandoned until then.
// Those that wait for a connection, a slot or room do so in order, the most urgent first.
//
// Threads: the engine's.
// Lifetime: a member of the channel's ClientCalls. Streams outlive the connections that they were
//   on, and go before the channel.
// Errors: OnFrame() says what is wrong with a frame that no server sends; the connection ends.
// Invariants: a stream that waits is kWaiting; one in a slot is kOpen or kEnded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/intrusive_list.h"
#include "core/priority_lists.h"
#include "core/slab.h"
#include "core/tally.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_stream.h"
#include "rpc/client/lent_memory.h"
#include "rpc/client/method_table.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/stream/stream_connection.h"
#include "rpc/wire/stream_frame.h"
#include "transport/engine.h"

namespace weft {

class ClientStreams {
 public:
  // All outlive it.
  // `front`: of the channel that this is one of many servers of; null: it is none.
  ClientStreams(EngineCore& engine, const std::string& address, const ChannelOptions& options,
                MethodTable& methods, LentMemory& lent, ChannelStats& stats, ClientStreams* front);
  ~ClientStreams();
  ClientStreams(const ClientStreams&) = delete;
  ClientStreams& operator=(const ClientStreams&) = delete;

  // --- for ClientCalls --------------------------------------------------------------------------

  // `takes_priorities`: the server does. `limits`: as many streams as both sides allow, and what
  // the server holds of each. `max_windows`: of one stream, as the server takes them. `max_extras`:
  // the same, in bytes. `max_message_bytes`: the same, of a message.
  void Open(Connection& connection, bool takes_priorities, StreamLimits limits,
            uint32_t max_windows, uint32_t max_extras, uint64_t max_message_bytes);
  // Null: nothing is wrong with it. REQUIRES: IsStreamKind(CallFrameKindOf(frame)); open.
  const char* OnFrame(ByteSpan frame);
  // The server has given memory back before its end. As OnFrame(), but for the kind.
  const char* OnRelease(ByteSpan frame);
  // There is room for those that are at least as urgent as `least`. `may_open`: streams that wait
  // need wait no longer for writes that were accepted before.
  void Pump(Priority least, bool may_open);
  // The connection is gone: streams that were opened end, with `not_sent` if that surely did not
  // leave.
  void Close(uint64_t first_unsent, const absl::Status& not_sent, const absl::Status& may_have_run);
  // Streams that wait end; those that wait for a server only if `also_patient`.
  void EndWaiting(const absl::Status& status, bool also_patient);
  // The channel ends: with it all streams, and what is left of them. Of one of many servers: all
  // streams end, and what is left of them is the front's.
  // REQUIRES: no handle of a stream is left, unless there is a front.
  void Shutdown(const absl::Status& gone);

  bool some_wait() const { return waiting_count_ > 0; }
  // Among those in slots: over here, and not at the server.
  uint32_t abandoned() const { return abandoned_; }
  // One more would be opened, or refused, at once: it need not wait for a slot.
  bool has_slot() const { return waiting_count_ == 0 && !(slots_.has_value() && slots_->full()); }
  uint32_t in_slots() const { return slots_ ? static_cast<uint32_t>(slots_->size()) : 0; }
  void CheckInvariants();

  // --- for streams ------------------------------------------------------------------------------

  // One to fill in.
  ClientStream& New();
  // Sends the open of a stream that was begun, or queues it, if that may be: false. `may_open`: see
  // Pump().
  bool Start(ClientStream& stream, bool may_open);
  void Take(ClientStream& stream) { all_.PushBack(&stream); }
  // At the front of many servers: what waits goes on, the most urgent first, at the server that
  // `choose(CallOptions::server_key)` says, until that is null.
  template <class Choose>
  void MoveWaiting(Choose&& choose) {
    while (ClientStream* const stream = waiting_.Front(Priority::kBackground)) {
      ClientStreams* const to = choose(stream->server_key());
      if (to == nullptr) return;
      MoveTo(*stream, *to, /*may_open=*/true);
    }
  }
  // What waits here waits there, until that has room.
  void GiveWaiting(ClientStreams& to);
  void StopWaiting(ClientStream& stream);
  void LeaveSlot(ClientStream& stream);
  void OnAbandoned() { ++abandoned_; }
  void Free(ClientStream& stream);

  EngineCore& engine() { return engine_; }
  const std::string& address() const { return address_; }
  const ChannelOptions& options() const { return options_; }
  ChannelStats& stats() { return stats_; }
  void CountOk() { ++ended_ok_; }
  uint64_t ended_ok() const { return ended_ok_; }  // which stats().calls_ok counts as well
  LentMemory& lent() { return lent_; }
  EarlyEnds<Stream>& early_ends() { return early_ends_; }
  StreamConnection& connection() { return connection_; }

 private:
  // Of streams that have ended: as many as a busy client has at once. About 700 bytes each.
  static constexpr uint32_t kMaxSpare = 256;

  void MoveTo(ClientStream& stream, ClientStreams& to, bool may_open);

  enum class Opened : uint8_t { kYes = 1, kNotNow = 2, kEnded = 3 };

  absl::StatusOr<uint16_t> CheckOpen(const ClientStream& stream);
  Opened TryOpen(ClientStream& stream);
  const char* OnData(ByteSpan frame);
  const char* OnCredit(ByteSpan frame);
  const char* OnEnd(ByteSpan frame);
  ClientStream* Find(CallId id);

  EngineCore& engine_;
  const std::string& address_;
  const ChannelOptions& options_;
  MethodTable& methods_;
  LentMemory& lent_;
  ChannelStats& stats_;
  uint64_t ended_ok_ = 0;
  ClientStreams* const front_;

  uint32_t max_streams_ = 0;  // at once; 0: there is no connection, or its server takes none
  // From the first stream of a connection on: most connections have none, and then hold no room.
  std::optional<Slab<ClientStream*>> slots_;
  uint32_t abandoned_ = 0;
  bool takes_priorities_ = false;
  uint32_t max_windows_ = 0;
  uint32_t max_extras_ = 0;
  PriorityLists<ClientStream, Priority, kPriorities> waiting_;  // at most max_queued_calls
  uint32_t waiting_count_ = 0;
  IntrusiveList<ClientStream, AllStreamsTag> all_;
  Tally<uint64_t> held_bytes_;
  StreamConnection connection_;
  EarlyEnds<Stream> early_ends_;
  SpareList<ClientStream, kMaxSpare> spare_;
};

}  // namespace weft
