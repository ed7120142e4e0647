// The streams of one client at the server: their slots, and the frames to and from them.
//
// A stream is a call whose request and reply, or one of them, are many messages. It has a
// ServerCall as every other: for its context, its handler and its end. What is beside it is here.
//
//   state    from                 to
//   free     End is sent          an open frame of a newer generation -> running
//   running  the handler has it   Complete() -> ending; the connection is gone: its slot is free
//   ending   waits for room       its end is sent -> free
//
// The client names slots and generations as for calls (server_connection.h), apart from those. An
// end frees its slot at once: what the client had sent before it knew of the end is stale, names an
// older generation or the present one of a free slot, and is ignored.
//
// Threads: the engine's.
// Lifetime: a member of its ServerConnection, made with the first frame of a stream; stays until
//   its calls have ended.
// Errors: OnFrame() says what is wrong with a frame that no client sends; the connection ends.
// Invariants: a call in a slot is running or ending; every stream that was opened gets one end, or
//   its connection closes.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/near_array.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/server/call_slot.h"
#include "rpc/stream/stream.h"
#include "rpc/stream/stream_connection.h"
#include "rpc/wire/stream_frame.h"

namespace weft {

class ServerCall;
class ServerConnection;
class ServerStreams;
struct MethodDescriptor;
struct MethodEntry;

// What a ServerCall has beside it while it is a stream's. Kept with the call, and used again.
class ServerStream final : private StreamOwner {
 public:
  explicit ServerStream(ServerCall* call);

  // As new, for a stream of that connection.
  void Begin(ServerStreams& streams);
  Stream& stream();
  // The handler is to stop: nothing is read or written any more.
  void SetCancelled() { Stop(/*also_writes=*/true); }
  // Its handler reads nothing any more, and writes nothing, if so.
  void Stop(bool also_writes);
  // Why the library has ended the stream in the handler's place; OK: it has not.
  const absl::Status& failure() const { return failure_; }

 private:
  friend class ServerStreams;

  bool SendOwed() override;
  void OnAllReceived() override {}
  void Fail(absl::Status why) override;
  void OnQuiet() override;

  ServerCall& call_;
  ServerStreams* streams_ = nullptr;
  EarlyEnds<Stream> early_ends_;
  Stream stream_;
  absl::Status failure_;
};

class ServerStreams {
 public:
  // `limits`: as many streams as both sides allow, and what the client holds of each.
  ServerStreams(ServerConnection* connection, StreamLimits limits);

  // Null: nothing is wrong with it. REQUIRES: IsStreamKind(CallFrameKindOf(frame)).
  const char* OnFrame(ByteSpan frame);
  void Pump(Priority least) { streams_.Pump(least); }
  // The handler has finished; Complete() follows when its transfers have ended.
  void OnFinished(ServerCall& call);
  // The handler has finished: the stream ends when its end could be sent.
  void Complete(ServerCall& call, absl::Status status);
  // Nothing more is sent: the connection is given up.
  void GiveUp() { streams_.Close(); }
  // The client waits for none any more.
  void CancelAll();
  // The connection is gone. Handlers that still run find their streams cancelled.
  void Close();

  // Those in slots. visit(ServerCall&).
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (const CallSlot& slot : slots_) {
      if (slot.call != nullptr) visit(*slot.call);
    }
  }

  // Streams that have begun, and whose calls are not free again.
  uint32_t running() const { return running_; }
  void CheckInvariants();

 private:
  friend class ServerStream;

  const char* OnData(ByteSpan frame);
  const char* OnCredit(ByteSpan frame);
  const char* OnOpen(ByteSpan frame);
  const char* OnCancel(ByteSpan frame);
  // The call of that name; null: there is none.
  ServerCall* Find(CallId id);
  // What is wrong with a frame whose call there is not; null: it is stale.
  const char* WhyNotFound(ByteSpan frame);
  CallSlot* Reach(uint32_t slot);
  absl::Status Admit(ServerCall& call, const OpenHeader& header, const MethodEntry* entry);
  void Start(ServerCall& call, const MethodEntry& entry);
  absl::Status TakeRequest(ServerCall& call);
  absl::Status WhyNoRequest(const ServerCall& call, const MethodDescriptor& method) const;
  bool SendEnd(ServerCall& call);
  void LeaveSlot(ServerCall& call);
  void FreeWhenQuiet(ServerCall& call);

  ServerConnection& connection_;
  const uint32_t max_streams_;
  uint32_t running_ = 0;
  NearArray<CallSlot> slots_;
  CallSlot nowhere_;  // of calls whose slot is free already
  StreamConnection streams_;
};

}  // namespace weft
