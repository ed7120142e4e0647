// One stream at the client, from its start to its end.
//
//   state     from                        to
//   kNew      construction, reuse         Start() -> kWaiting, kOpen, kEnded
//   kWaiting  for a connection, a slot    its open is sent -> kOpen; deadline, cancel, no server
//             or room                     -> kEnded
//   kOpen     its open was sent           the server's end and all before it, and what it lends is
//                                         reclaimed; deadline, cancel, a message that makes no
//                                         sense, loss -> kEnded
//   kEnded    status() says how
//
// In kEnded it may still hold its slot: the server has not ended it yet. Until then what it lends
// is the server's, too, unless that has released it. In kOpen it may be without a slot: the server
// has ended it, and its memory is being reclaimed.
//
// Threads: made on any; else the engine's.
// Lifetime: its handle's and its slot's: reused or destroyed when neither has it, it is kEnded, and
//   no callback is due.
// Errors: Finish() says how it has ended, once.
// Invariants: it ends exactly once.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "core/slab.h"
#include "core/timer_wheel.h"
#include "rpc/client/channel.h"
#include "rpc/stream/stream.h"
#include "rpc/wire/stream_frame.h"

namespace weft {

class CallContext;
class ClientStreams;
class Loan;
struct AllStreamsTag;

class ClientStream final : public ListNode<>,
                           public ListNode<AllStreamsTag>,
                           private StreamOwner,
                           private Timer {
 public:
  enum class State : uint8_t { kNew = 1, kWaiting = 2, kOpen = 3, kEnded = 4 };

  explicit ClientStream(ClientStreams& streams);

  // What a stub's method was given. `reply`: for the only one, or null. `valid`: if not OK, the
  // stream ends with that.
  struct Beginning {
    uint32_t method = 0;
    google::protobuf::MessageLite* reply = nullptr;
    bool has_request = false;
    std::shared_ptr<CallContext> context;
    uint64_t timeout_us = 0;  // 0: none
    bool wait_for_server = false;
    Priority priority = Priority::kNormal;
    uint64_t server_key = 0;  // CallOptions::server_key
    Loan* loan = nullptr;     // of memory to the server, begun; null: it lends nothing
    absl::Status valid;
  };
  // As new; the deadline counts from here. On any thread.
  void Begin(const Beginning& beginning);
  // The only request. Before Start(), on any thread.
  void SetRequest(const google::protobuf::MessageLite& request) {
    request.SerializePartialToString(&request_);
  }

  // It is with `streams` from now on. REQUIRES: kNew, or kWaiting on no list.
  void BelongTo(ClientStreams& streams) { streams_ = &streams; }
  uint64_t server_key() const { return beginning_.server_key; }
  // It will end with that.
  void Refuse(absl::Status why) { beginning_.valid = std::move(why); }
  // Opens it, now or when that is possible. `may_open`: ClientStreams::Pump().
  void Start(bool may_open);
  // Ends it, if it has not ended, and tells the server.
  void Cancel();
  // Nothing more is read or written; `done` gets the status when it has ended, not inside.
  // REQUIRES: once.
  void Finish(Function<void(absl::Status)> done);
  // Its handle is gone: ends it, if it has not ended.
  void Release();

  Stream& stream() { return stream_; }
  EngineCore& engine();
  State state() const { return state_; }

 private:
  friend class ClientStreams;

  // StreamOwner.
  bool SendOwed() override;
  void OnAllReceived() override;
  void Fail(absl::Status why) override;
  void OnQuiet() override { FreeIfUnused(); }
  // Timer: the deadline, or the end's callback is due.
  void OnTimer() override;

  uint32_t RemainingUs();
  // The server may say that it is done with what the stream lends: it was cancelled, and has not
  // said so before.
  bool IsToBeReleased() const {
    return state_ == State::kEnded && !end_has_come_ && beginning_.loan != nullptr;
  }
  // The server is done with it. REQUIRES: kEnded; a connection.
  void ReleaseLoan();
  const char* OnEnd(const EndHeader& header);
  bool TakeExtras(ByteSpan extras);
  void TakeEnd();
  void OnLoss(uint64_t first_unsent, const absl::Status& not_sent,
              const absl::Status& may_have_run);
  void Shutdown(const absl::Status& gone);
  void EndWithServer(const absl::Status& gone);
  void RunFinished();
  void End(absl::Status status);
  void FailBehindTheEnd(absl::Status why);
  void Abandon(absl::Status status);
  void FreeIfUnused();

  ClientStreams& home_;     // the channel's: of memory and callbacks
  ClientStreams* streams_;  // where it is: another's where the channel has many servers
  Stream stream_;
  State state_ = State::kNew;
  bool in_slot_ = false;
  bool has_handle_ = true;
  bool end_has_come_ = false;  // end_status_ is known; messages before it may not have come
  bool has_messages_ = false;  // the server has sent some, end_has_come_
  bool in_callback_ = false;   // on_finished_ or interceptors run
  Beginning beginning_;
  uint64_t deadline_ns_ = kNever;
  SlabHandle slot_;              // while in_slot_
  uint64_t message_number_ = 0;  // of its open on the connection
  std::string request_;          // the only one, until it is sent
  absl::Status end_status_;      // the server's
  absl::Status status_;          // kEnded
  Function<void(absl::Status)> on_finished_;

 public:
  ClientStream* next_spare = nullptr;
};

}  // namespace weft
