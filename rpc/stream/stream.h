// One stream as either side has it: messages out and in, in order, and the credit for both.
//
// Whose stream it is, how it began and how it ends is its owner's business: ClientStream
// (rpc/client/client_stream.h), ServerStream (rpc/server/server_streams.h).
//
//   send half     from                    to
//   kOpening      Reset()                 Open() -> kOpen; CloseWrites() -> kDone
//   kOpen         Open()                  the last message, CloseWrites() -> kDone
//   kDone         nothing is sent any more
//
//   receive half  from                    to
//   kKept         Reset(): messages are the reader's, or wait for him
//                                         DropReads() -> kDropped, IgnoreReads() -> kIgnored
//   kDropped      they are dropped, and the peer gets its credit back
//                                         IgnoreReads() -> kIgnored
//   kIgnored      they are dropped, and the peer gets nothing back
//
// Credit: a message costs 1 message and its encoded bytes. It may be sent if there is credit for a
// message, and for its bytes or half a window of bytes, whichever is less; so a message larger than
// the window passes too, and may make the credit negative. Credit is returned when the reader has
// taken half a window of either since. What he has taken and not returned is less, so who has read
// everything has always left enough credit for the next message, however large.
//
// Order: a large message may be overtaken by small ones (connection.h). Those are kept until it has
// come; the credit bounds them.
//
// Reads and writes: at most one of each waits. A message that somebody waits for is parsed where it
// was received; others are copied once, into the queue of the stream, and never kept in the
// connection: who does not read stalls nobody else.
//
// Callbacks: of Read(), Write() and WhenWritable(), once each, on the engine's thread. None runs
// inside the function that it was given to. All may call anything here.
//
// Threads: the engine's.
// Lifetime: used again and again by its owner, from Reset() until it is quiet(). Messages that are
//   given to Read() and Write() are the caller's, and stay until the callback.
// Errors: OnData() and the like return what is wrong with a frame, null if nothing is: then the
//   peer has broken the protocol. What is wrong with one stream alone is told to its owner.
// Invariants: CheckInvariants().
#pragma once

#include <google/protobuf/message_lite.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/stream/byte_queue.h"
#include "rpc/stream/stream_calls.h"
#include "rpc/wire/service.h"
#include "rpc/wire/stream_frame.h"

namespace weft {

class Stream;
class StreamConnection;
struct StreamRoomTag;

// The side that a stream belongs to.
class StreamOwner {
 public:
  // What Stream::Owe() was for: sends it. False: the connection has no room.
  virtual bool SendOwed() = 0;
  // All messages of the peer have come, and their number is known.
  virtual void OnAllReceived() = 0;
  // The stream cannot go on: a message is too large or cannot be decoded.
  virtual void Fail(absl::Status why) = 0;
  // The stream has become quiet(). Nothing of it is used afterwards.
  virtual void OnQuiet() = 0;

 protected:
  ~StreamOwner() = default;
};

class Stream final : public ListNode<>, private ListNode<StreamRoomTag> {
 public:
  // Both outlive it.
  Stream(StreamOwner& owner, EarlyEnds<Stream>& early_ends)
      : owner_(owner), early_ends_(early_ends) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // --- for its owner ----------------------------------------------------------------------------

  // As new. REQUIRES: quiet().
  void Reset();
  // It has a name on a connection, which outlives it or is told to be gone by Disconnect().
  // `waits`: the client may send nothing until the server has granted its window.
  void Open(StreamConnection& connection, CallId id, bool is_client, bool waits,
            Priority priority = Priority::kNormal);
  // The server's part of `waits`. REQUIRES: as opened.
  void GrantAll();
  // Nothing is sent any more; a write that waits ends.
  void CloseWrites();
  // What waits to be read and what comes is dropped; a read that waits ends.
  void DropReads() { StopReads(Receive::kDropped); }
  void IgnoreReads() { StopReads(Receive::kIgnored); }
  // Nothing will come any more: reads end when the queue is empty.
  void EndReads();
  // The connection is gone, or has nothing more to do with the stream.
  void Disconnect();
  // SendOwed() is due.
  void Owe() {
    owes_ = true;
    TrySend();
  }
  // The same, and nothing else of the stream is: it passes all others, however little it is urgent.
  void OweUrgently();
  // Sends what can be sent, if nobody waits for room before. The callbacks come later.
  void TrySend();
  // No callback is due or runs, and no function of it runs that goes on using it: the owner may use
  // it for something else. If not, OnQuiet() will come.
  bool quiet();
  // Runs the callbacks that are due, unless they run already.
  void RunCallbacks();
  // The same, from a timer: the caller is inside a function that was given one of them.
  void RunCallbacksLater();

  // A task on its way to the engine uses the stream: any thread; and it is done: the engine's.
  void BeginPosted() { posted_.fetch_add(1, std::memory_order_relaxed); }
  void EndPosted();
  bool posted() const { return posted_.load(std::memory_order_relaxed) != 0; }

  CallId id() const { return id_; }
  // Messages that were sent, modulo 2^32.
  uint32_t sent() const { return sent_; }
  // All messages of the peer have come, and their number is known.
  bool all_received() const { return total_known_ && received_ == total_; }
  // Encoded bytes of the message that was read last.
  size_t read_bytes() const { return read_bytes_; }
  bool writes_over() const { return send_ == Send::kDone; }

  // --- frames -----------------------------------------------------------------------------------

  // A message, the last one if `last`.
  const char* OnData(uint32_t number, bool last, ByteSpan message);
  // Data without one: there were so many.
  const char* OnHalfClose(uint32_t messages);
  const char* OnCredit(const CreditHeader& header);
  // The peer sends so many messages in all.
  const char* SetTotal(uint32_t messages);

  // --- for StreamConnection and EarlyEnds -------------------------------------------------------

  // There is room in the connection: sends one message, and what else is due. False: there was not
  // enough room.
  bool SendWhatIsDue();
  void RunEarlyEnd() { RunCallbacks(); }

  // --- reading. REQUIRES: no read waits ---------------------------------------------------------

  StreamResult TryRead(google::protobuf::MessageLite* to);
  // done(true): `to` is the next message. done(false): there is none any more.
  void Read(google::protobuf::MessageLite* to, Function<void(bool)>&& done) {
    WEFT_CHECK(read_ == Waiting::kNobody);  // User: one at a time
    read_to_ = to;
    read_ = Waiting::kWaits;
    const bool waits = ready_.empty() && MayCome();
    on_read_->TakeFrom(done);
    if (!waits) [[unlikely]]
      ReadAtOnce();
  }

  // --- writing. REQUIRES: no write waits --------------------------------------------------------

  // Sends the message, as the last one if `last`.
  StreamResult TryWrite(const google::protobuf::MessageLite& message, bool last);
  // done(true): it was sent. done(false): the stream is over.
  void Write(const google::protobuf::MessageLite& message, bool last, Function<void(bool)>&& done);
  // The same for bytes, without a callback; they stay until they are sent, or the stream is over.
  void WriteEncoded(std::string_view message, bool last);
  // done(true): what TryWrite() has refused last may pass now. done(false): the stream is over.
  void WhenWritable(Function<void(bool)> done);
  // Nothing will be written any more: the peer's reads end, behind the write that waits.
  void WritesDone();
  // Sends what was committed.
  void Flush();
  // Somebody wants to wait where he must not.
  void FailBlocked();

  void CheckInvariants() const;

 private:
  friend class StreamConnection;
  friend class IntrusiveList<Stream, StreamRoomTag>;

  enum class Send : uint8_t { kOpening = 1, kOpen = 2, kDone = 3 };
  enum class Receive : uint8_t { kKept = 1, kDropped = 2, kIgnored = 3 };
  // Of a read and a write: nobody waits, somebody does, or his callback is due.
  enum class Waiting : uint8_t { kNobody = 1, kWaits = 2, kDue = 3 };

  // What a side may still send, or has taken and not returned.
  struct Credit {
    uint32_t messages = 0;
    int64_t bytes = 0;
  };

  // A queue that is no larger stays with the object when the stream has ended, in bytes. Higher
  // saves allocations of streams that are behind, and costs as much for each that was.
  static constexpr size_t kKeepBytes = 4096;
  // Rounds of callbacks of one stream, a read's and a write's in each, that run one after the other
  // because each has made the next one due: then the engine does something else first. As many as
  // messages in a turn (Engine::kDefaultBudget).
  static constexpr int kMostInARow = 64;

  void StopReads(Receive how);
  bool MaySend(size_t bytes) const;
  bool HasRoom() const;
  void BeginWrite(size_t bytes, bool last, Function<void(bool)>&& done);
  bool SendWaiting();
  bool SendLast();
  bool SendCredit();
  std::byte* AppendData(size_t bytes, bool last);
  void EndWrite(bool ok);

  const char* OnAhead(uint32_t number, bool last, ByteSpan message);
  void TakeCredit(size_t bytes);
  bool IsCovered(size_t bytes, uint32_t missing) const;
  bool MayKeep(size_t bytes) const;
  void FailForBytes(size_t bytes);
  void Deliver(ByteSpan message);
  void Keep(ByteSpan message);
  void AfterReceive();
  bool IsParsed(ByteSpan message, google::protobuf::MessageLite* to);
  void Hold(size_t bytes);
  void LetGo(size_t bytes);
  void Return(uint32_t messages, size_t bytes);
  void ReturnNow();
  // There may be messages for the reader that are not here yet.
  bool MayCome() const { return receive_ == Receive::kKept && !all_received(); }
  void ReadAtOnce();
  void EndRead(bool ok);
  void RunOnRead();

  bool SetBusy() { return !std::exchange(busy_, true); }
  void EndBusy(bool outermost);
  void EndBusyLater();
  void RunDue();

  StreamOwner& owner_;
  StreamConnection* connection_ = nullptr;  // from Open() to Disconnect()
  CallId id_;

  Priority priority_ = Priority::kNormal;
  Send send_ = Send::kOpening;
  Receive receive_ = Receive::kKept;
  Waiting read_ = Waiting::kNobody;
  Waiting write_ = Waiting::kNobody;
  bool is_client_ = false;
  bool busy_ = false;         // RunDue() follows, further up the stack
  bool owes_ = false;         // the owner has something to send
  bool credit_owed_ = false;  // there was no room for it
  bool last_owed_ = false;    // the same of the half-close
  bool total_known_ = false;
  bool tell_quiet_ = false;

  // Sending.
  Credit may_send_;
  uint32_t sent_ = 0;
  // Receiving.
  uint32_t received_ = 0;      // in order
  uint32_t total_ = 0;         // messages that the peer sends, if total_known_
  uint32_t behind_ahead_ = 0;  // the number behind the last in ahead_, if there is one
  Credit may_receive_;
  Credit unreturned_;
  size_t held_bytes_ = 0;  // of messages in both queues
  ByteQueue ready_;
  ByteQueue ahead_;  // of those that have overtaken a large one

  size_t read_bytes_ = 0;  // of the message that was read last
  // The read that waits.
  google::protobuf::MessageLite* read_to_ = nullptr;
  bool read_ok_ = false;
  // The write that waits: a message, bytes, or neither (WhenWritable()).
  bool write_ok_ = false;
  bool write_last_ = false;
  size_t write_bytes_ = 0;  // also of the last TryWrite() that was refused
  const google::protobuf::MessageLite* write_message_ = nullptr;
  const char* write_encoded_ = nullptr;

  std::atomic<uint32_t> posted_ = 0;
  EarlyEnds<Stream>& early_ends_;
  // A callback of a read runs where it is, and may read again: there are two places, in turns.
  Function<void(bool)> read_callbacks_[2];
  Function<void(bool)>* on_read_ = &read_callbacks_[0];  // of the next read
  Function<void(bool)>* other_on_read_ = &read_callbacks_[1];
  Function<void(bool)> on_write_;
};

}  // namespace weft
