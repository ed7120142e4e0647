// One call at the client, from start to completion.
//
//   States, and who moves them (all on the engine's thread):
//     kNew     made by Channel::Call. -> kQueued, kSent, kDone: ClientConnection::Start
//     kQueued  waits for a connection, a slot or credit; nothing was sent. -> kSent, kDone
//     kSent    holds a slot of the connection. -> kReclaiming: a reply, if the call has lent
//     memory;
//              -> kDone: reply, deadline, loss of the connection
//     kReclaiming  the reply is here; the memory that the call lent is being reclaimed. -> kDone
//     kDone    Complete() has been called; the object is its owner's again.
//
// Threads: made and awaited on any; else the engine's.
// Lifetime: the owner keeps it until Complete(). `request` is valid while kNew and kQueued, `reply`
//   until Complete().
// Invariants: Complete() is called exactly once.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "core/slab.h"
#include "core/timer_wheel.h"
#include "rpc/blocked_caller.h"
#include "rpc/service.h"

namespace weft {

class BulkCall;
class ClientConnection;

class ClientCall : public ListNode<>, public Timer {
 public:
  enum class State : uint8_t { kNew = 1, kQueued = 2, kSent = 3, kReclaiming = 4, kDone = 5 };

  // The end of the call; may destroy it.
  virtual void Complete(absl::Status status) = 0;

  // The request will not outlive the call that started this one: encodes it aside if need be.
  virtual void KeepRequest() {}

  // Encodes the request. Size first, then exactly that many bytes.
  size_t RequestBytes() const {
    return request != nullptr ? request->ByteSizeLong() : encoded.size();
  }
  void EncodeRequestTo(std::byte* to) const {
    if (request != nullptr) {
      request->SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to));
    } else {
      std::memcpy(to, encoded.data(), encoded.size());
    }
  }

  // What Channel::Call was given.
  uint32_t method = 0;
  bool wait_for_server = false;
  const google::protobuf::MessageLite* request = nullptr;  // null: see `encoded`
  std::string_view encoded;  // the request's bytes: a struct of fixed layout, or serialized aside
  CallBody reply;
  const MethodLayouts* layouts = nullptr;  // null: `reply` is a message
  uint64_t timeout_us = 0;                 // 0: none
  uint64_t deadline_ns = kNever;
  BulkCall* bulk = nullptr;  // what it lends; null: nothing

  // Written by ClientConnection.
  State state = State::kNew;
  bool reply_converted = false;  // the reply travels as protobuf, whatever `layouts` wants
  SlabHandle slot;               // kSent
  ClientConnection* client = nullptr;

 protected:
  ~ClientCall() override = default;

 private:
  void OnTimer() final;  // the deadline
};

// A call whose caller waits for it.
class BlockingCall final : public ClientCall, public BlockedCaller {
 public:
  using BlockedCaller::BlockedCaller;
  void Complete(absl::Status status) override { GoOn(std::move(status)); }
};

// A call that ends with a callback. Made by ClientConnection, which keeps finished ones for reuse.
class CallbackCall final : public ClientCall {
 public:
  void Complete(absl::Status status) override;
  void KeepRequest() override;

  std::string storage;  // of `encoded`
  Function<void(absl::Status)> done;
  absl::Status early_status;  // of a call that ended while it was started; `done` is still due
};

}  // namespace weft
