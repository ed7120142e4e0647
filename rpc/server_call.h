// One call slot of a server's connection: what a request needs from its arrival to its reply.
//
// A slot is used again and again. Its arena, with the request and the reply message on it, stays
// from call to call of the same method: strings and repeated fields keep their capacity, and the
// usual call allocates nothing. The arena is emptied when the method changes, or when a call has
// made it large.
//
//   States, and who moves them:
//     kFree     the client may use the slot. -> kRunning: ServerConnection, on a request
//     kRunning  the handler has it, on whatever thread. -> kReplying, kFree: Finish(), on the
//     engine kReplying the reply waits for credit. -> kFree: sent, or the connection is gone
//
// Threads: Finish() and FinishDropped() from any thread, once for each call; else the engine's.
// Lifetime: belongs to its ServerConnection, which stays until all its calls are finished.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message_lite.h>

#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/intrusive_list.h"
#include "rpc/frame.h"
#include "rpc/server_bulk.h"
#include "rpc/server_context.h"
#include "rpc/service.h"

namespace weft {

class ServerConnection;

class ServerCall final : public ServerContext, private ListNode<> {
 public:
  ServerCall() = default;

  // Which of the two each is: the method knows.
  const CallBody& request() const { return request_; }
  const CallBody& reply() const { return reply_; }

  // Ends the call with the reply (OK) or an error. From another thread than the engine's it is
  // handed over; never waits for the network.
  void Finish(absl::Status status);

  // Finish() for a handler that forgot it.
  void FinishDropped();

  // The engine's part of a Finish() on another thread.
  void CompleteHandedOver();

 private:
  friend class ServerContext;
  friend class ServerConnection;
  friend class FinishedCalls;
  friend class IntrusiveList<ServerCall>;

  enum class State : uint8_t { kFree = 1, kRunning = 2, kReplying = 3 };

  void Attach(ServerConnection* connection, const Clock* clock, const PathInfo* path);
  // A request has taken the slot. kFree -> kRunning.
  void Begin(CallId id) {
    id_ = id;
    used_ = true;
    state_ = State::kRunning;
    request_bytes_ = reply_bytes_ = 0;
    has_windows_ = released_ = false;
    if (bulk_ != nullptr) [[unlikely]]
      bulk_->Begin({});
    cancelled_.store(early_cancel_ != 0 && early_cancel_ == id.generation,
                     std::memory_order_relaxed);
    early_cancel_ = 0;
  }
  // It came with windows.
  void TakeWindows(std::span<const Window> windows);
  // Sets the deadline, counted from `arrived_ns`; false if it has passed.
  bool StartClock(uint32_t remaining_us, uint64_t arrived_ns) {
    deadline_ns_ = remaining_us == 0 ? kNever : arrived_ns + remaining_us * kNsPerUs;
    return remaining_us == 0 || clock_->NowNs() < deadline_ns_;
  }
  // Finish() on another thread than the engine's.
  void FinishElsewhere(absl::Status status);
  // The client has given up on the call of that generation, which may not even be here yet: a
  // large request is overtaken by the small frames behind it.
  void Cancel(uint32_t generation);
  // The slot is free again.
  void End() {
    state_ = State::kFree;
    status_ = absl::OkStatus();
    if (messages_of_ != nullptr && IsLarge()) [[unlikely]]
      Trim();
  }

  // Empty messages of `method`, reused where possible.
  void PrepareMessages(const MethodDescriptor& method) {
    method_ = &method;
    if (messages_of_ == &method) [[likely]] {
      reply_.message->Clear();  // parsing clears the request
    } else {
      MakeMessages(method);
    }
  }
  void MakeMessages(const MethodDescriptor& method);
  // The same, and reads the request, for a method with structs of fixed layout.
  bool DecodeLayouts(const MethodDescriptor& method, ByteSpan body);

  // What a free slot may keep for its next call, in bytes of encoded messages and of arena. Higher
  // saves allocations of larger calls, and costs up to twice this for each slot that was ever used.
  static constexpr size_t kKeepBytes = 16 << 10;
  bool IsLarge() const {
    return request_bytes_ > kKeepBytes || reply_bytes_ > kKeepBytes ||
           arena_->SpaceAllocated() > kKeepBytes;
  }
  // After a call: gives back what a large one has taken.
  void Trim();

  ServerConnection* connection_ = nullptr;  // constant once attached
  CallId id_;                               // of the present or last call
  State state_ = State::kFree;
  bool used_ = false;          // id_ is of a real call
  bool has_windows_ = false;   // the present call
  bool released_ = false;      // the client has been, or will be, told so
  bool release_owed_ = false;  // will be: there was no credit
  uint32_t early_cancel_ = 0;  // generation cancelled before it arrived; 0: none
  size_t request_bytes_ = 0;   // encoded; 0: refused
  size_t reply_bytes_ = 0;
  CallBody request_;  // on arena_
  CallBody reply_;
  const MethodDescriptor* messages_of_ = nullptr;  // whose messages they are; null: none
  absl::Status status_;                            // how it ended
  ServerCall* next_finished_ = nullptr;            // FinishedCalls
  // Made for the first call that has use for it. The engine's while has_windows_ or not running.
  std::unique_ptr<ServerBulk> bulk_;
  std::unique_ptr<char[]> first_block_;  // of arena_, kept for ever once used
  std::optional<google::protobuf::Arena> arena_;
};

}  // namespace weft
