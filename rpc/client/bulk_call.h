// What one call, or one stream, lends of the client's memory: payloads that travel beside the
// messages, moved by the server with one-sided transfers, past protobuf and without a copy.
//
//   auto memory = weft::Buffer::Of(channel.engine(), bytes);   // or out of a pool
//   weft::BulkCall bulk(channel);
//   bulk.Send(memory->slice(0, 1 << 20), request.mutable_data());
//   bulk.Receive(memory->slice(1 << 20, 1 << 20));
//   absl::Status status = stub.Put(request, &reply, {.bulk = &bulk});
//   auto answer = bulk.Received(reply.data());     // the bytes, length and CRC32C verified
//
// Nothing of the server is exposed. Each slice becomes a window: registered for the connection when
// the request leaves, with just its right, under a key that is used once (on verbs a registration
// by the card, some 10 us and more), and closed when the call is over. Addresses never stand in a
// message.
//
// Streams. A stream lends its memory when it opens, for as long as it lasts, and any number of its
// messages may tell of parts of it: so a ring of buffers is registered once, whatever goes through
// it. Who may use which part when is for the messages of the application to say.
//
//   bulk.Lend(memory->slice());                                // before the stream
//   auto stream = stub.Upload({.bulk = &bulk});
//   status = bulk.Describe(memory->slice(0, 65536), chunk.mutable_data());   // for each message
//   stream.Write(chunk);
//
// Reclaim. When a call ends with a reply, of whatever status, its memory has been reclaimed: no
// peer and no network card can touch it any more. A call that ends earlier (deadline, the channel's
// end) leaves it *pinned*: the server is told, and the memory is reclaimed when it has answered
// that it is done with it, or when the connection is gone. A lost connection reclaims at once.
// Of a stream that its handler has ended, Finish() tells when the memory has been reclaimed; one
// that was cancelled, or whose deadline has passed, leaves it pinned for a while, as a call does.
//
// Threads: one at a time; state() from any. The call may be started on any thread. While a stream
//   has the memory, Describe() and Received() are for one thread at a time.
// Lifetime: outlives the call, and its memory outlives it: the destructor waits until the memory is
//   reclaimed, and closes the connection of a server that does not answer for kReleasePatienceUs.
//   (A pool's Buffer may be destroyed earlier: nobody else gets its bytes before they are
//   reclaimed.) The engine outlives the reclaim. REQUIRES: not destroyed while pinned on the thread
//   that drives the engine from inside a callback (see WhenReclaimed()).
// Errors: a mistake in Send() or Receive() is what the call then fails with: INVALID_ARGUMENT,
//   nothing was sent. UNIMPLEMENTED: the server's release knows no windows; nothing was sent.
//   FAILED_PRECONDITION: used by another call or stream, or still pinned by one.
// Invariants: a window is registered only while the state is kPinned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/function.h"
#include "rpc/bulk/payload.h"
#include "rpc/client/lent_memory.h"
#include "transport/slice.h"
#include "weft/memory.pb.h"

namespace weft {

class Channel;
class EngineCore;
class Waiter;

// How long the destructor waits for a server to give memory back before it ends the connection. A
// server answers as soon as its engine has a turn and its transfers under way have ended: longer
// than this, and it is taken for dead by heartbeats too (LinkOptions::peer_timeout_ns).
inline constexpr uint64_t kReleasePatienceUs = 3'000'000;

class BulkCall final : private Loan::Owner {
 public:
  enum class State : uint8_t {
    kReclaimed = 1,  // nothing but this program can touch the memory
    kPinned = 2,     // a call is under way, or its server has not given the memory back yet
  };
  // What is in the memory of a window.
  enum class Arrival : uint8_t {
    kUntouched = 1,  // what was there before the call
    kComplete = 2,   // what Received() has verified
    kUndefined = 3,  // perhaps parts of a payload
  };

  explicit BulkCall(Channel& channel);
  ~BulkCall();
  BulkCall(const BulkCall&) = delete;
  BulkCall& operator=(const BulkCall&) = delete;

  // --- before the call --------------------------------------------------------------------------

  // Lends `from` to be read, and fills `field` (of the request) in. An empty slice takes no window.
  void Send(const Slice& from, Bulk* field, const BulkOptions& options = {});

  // Lends `into` to be written: one payload of the reply may go there. The server takes such
  // windows in the order of these calls. Returns the window's number.
  uint32_t Receive(const Slice& into);

  // Lends `from` to be read by a stream, whose messages tell of parts of it: Describe(). Returns
  // the window's number.
  uint32_t Lend(const Slice& from);

  // Forgets all windows; the object is as new. (Without this, the next call lends the same again.)
  // REQUIRES: kReclaimed.
  void Clear();

  // --- during a stream --------------------------------------------------------------------------

  // Fills `field` of a message in with where `part` is to be found: it lies within memory that is
  // lent to be read, or to be written (then the field tells the handler where it may put a
  // payload). The memory stays as it is until the server is done with it, which a message of the
  // server's has to say. Of memory that is lent to be written there is no checksum, whatever
  // `options` say. INVALID_ARGUMENT: nothing that covers `part` is lent.
  absl::Status Describe(const Slice& part, Bulk* field, const BulkOptions& options = {}) const;
  // The same of that window alone, where several cover `part`: memory that is lent both to be read
  // and to be written.
  absl::Status Describe(uint32_t window, const Slice& part, Bulk* field,
                        const BulkOptions& options = {}) const;

  // --- after the call, or during a stream -------------------------------------------------------

  // The payload of the reply that `field` tells of, in the memory that was lent for it: the window
  // is this call's and lent for writing, the length fits, and the checksum (if the server sent one)
  // is right. Else DATA_LOSS. Once verified, its window is kComplete.
  // The same for a message of a stream that has not ended: the server can still write to the memory
  // then, and what it has not promised to leave alone is to be copied before it is looked at.
  // FAILED_PRECONDITION: pinned by a call. REQUIRES: the call has ended with OK, or the message has
  // been read; once for each payload, for each costs its checksum.
  absl::StatusOr<MutableByteSpan> Received(const Bulk& field);

  // What the memory of window 1, 2, ... holds; of a stream's never kComplete, for it has parts.
  // REQUIRES: there is such a window; the call, or the stream, has ended.
  Arrival arrival(uint32_t window) const;

  State state() const { return state_.load(std::memory_order_acquire); }

  // Blocks until the memory is reclaimed, or for `timeout_us`. Returns whether it is. Inside a
  // callback of the engine it does not wait.
  bool WaitReclaimed(uint64_t timeout_us);

  // `then` runs once the memory is reclaimed, on the engine's thread; at once if it is already, on
  // this one. It may destroy this object if the call has completed. One at a time.
  void WhenReclaimed(Function<void()> then);

  // --- for Channel ------------------------------------------------------------------------------

  // A call takes the memory, which is pinned from here on. Any thread.
  absl::StatusOr<Loan*> Begin(const EngineCore& engine) { return Begin(engine, false); }
  // A stream does.
  absl::StatusOr<Loan*> BeginStream(const EngineCore& engine) { return Begin(engine, true); }
  // That call has not been started after all. Any thread.
  void NotStarted() { state_.store(State::kReclaimed, std::memory_order_release); }

 private:
  void Mistake(absl::Status status);
  bool Covers(uint32_t window, const Slice& part) const;
  bool Add(const Slice& slice, Rights rights);
  BulkOptions Checked(const BulkOptions& options) const;
  absl::StatusOr<Loan*> Begin(const EngineCore& engine, bool stream);
  // Loan::Owner. The state's last step: tells who waits. This may be gone when it returns.
  void OnReclaimed() override;

  // Constant after construction.
  EngineCore& engine_;
  const bool makes_checksums_;

  // The user's thread, between calls; constant during one.
  absl::Status mistake_;
  bool of_stream_ = false;  // what has the memory, or had it last, is a stream
  Loan loan_{this};

  std::atomic<State> state_{State::kReclaimed};

  // Engine thread only.
  Waiter* waiter_ = nullptr;
  Function<void()> then_;
};

}  // namespace weft
