// One call at the client, from start to completion.
//
//   States, and who moves them (all on the engine's thread):
//     kNew     made by Channel::Call. -> kQueued, kSent, kRetried, kDone: ClientCalls::Start
//     kQueued  waits for a connection, a slot or credit; nothing was sent. -> kSent, kDone
//     kSent    holds a slot of the connection.
//              -> kReclaiming: a reply, if the call has lent memory
//              -> kDone: reply, deadline, cancel, loss of the connection
//              One-way messages are never kSent: they are kDone when the connection has them.
//     kReclaiming  the reply is here; the memory that the call lent is being reclaimed. -> kDone
//     kRetried     waits while attempts are made for it (retried_calls.h). -> kDone
//     kDone    Complete() has been called; the object is its owner's again.
//
// Threads: made and awaited on any; else the engine's.
// Lifetime: the owner keeps it until Complete(). `request` is valid while kNew and kQueued, `reply`
//   until Complete().
// Invariants: Complete() is called exactly once.
#pragma once

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/cache_line.h"
#include "core/clock.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "core/slab.h"
#include "core/timer_wheel.h"
#include "rpc/operation/blocked_caller.h"
#include "rpc/wire/service.h"

namespace weft {

class CallContext;
class ClientCalls;
class Loan;
class RetriedCall;
struct ReplyHeader;

// To which of many servers the attempts of a call were sent. As many as can go before the last one.
struct MetServers {
  std::array<const ClientCalls*, 3> servers = {};
  uint8_t count = 0;

  void Add(const ClientCalls* server) {
    if (count < servers.size() && !Has(server)) servers[count++] = server;
  }
  bool Has(const ClientCalls* server) const {
    return std::find(servers.begin(), servers.begin() + count, server) != servers.begin() + count;
  }
};

class ClientCall : public ListNode<>, public Timer {
 public:
  enum class State : uint8_t {
    kNew = 1,
    kQueued = 2,
    kSent = 3,
    kReclaiming = 4,
    kDone = 5,
    kRetried = 6
  };
  enum class Kind : uint8_t { kBlocking = 1, kCallback = 2, kAttempt = 3 };

  // The end of the call; may destroy it.
  virtual void Complete(absl::Status status) = 0;

  // The request will not outlive the call that started this one: encodes it aside if need be.
  virtual void KeepRequest() {}

  // The status that a reply of more than a message, or with an error, ends it with; if that is OK,
  // `reply` has the message. `address`: of the server, for texts.
  absl::Status OutcomeOf(const ReplyHeader& header, ByteSpan body, const std::string& address,
                         uint64_t max_reply_bytes);
  // What that reply brings beside itself: metadata, and details of the error `*outcome`. False: it
  // is malformed.
  bool TakeExtras(ByteSpan extras, absl::Status* outcome);

  // What every call has: one cache line.
  alignas(kCacheLineBytes) ClientCalls* const client;
  CallBody reply;
  const MethodLayouts* layouts = nullptr;  // null: `reply` is a message
  uint64_t deadline_ns = kNever;
  CallContext* context = nullptr;  // the caller's; null: it has none
  SlabHandle slot;                 // kSent
  State state = State::kNew;
  const Kind kind;
  bool reply_converted = false;  // the reply travels as protobuf, whatever `layouts` wants
  bool is_plain = true;          // it has no loan and no context, is not one-way, and kNormal
  uint32_t method = 0;           // with wait_for_server, `request` and `encoded`: what
                                 // Channel::Call was given, of a call that does not leave at once
  ClientCall* next_spare = nullptr;  // of one that is kept for reuse
  Loan* loan = nullptr;              // of memory to the server; null: it lends nothing
  const google::protobuf::MessageLite* request = nullptr;  // null: see `encoded`
  std::string_view encoded;  // the request's bytes: a struct of fixed layout, or serialized aside
  uint64_t timeout_us = 0;   // 0: none
  bool wait_for_server = false;
  bool may_retry = false;          // where the channel sends calls again: this one too
  bool answered = false;           // it has its reply, an error or with more than a message
  RetriedCall* retried = nullptr;  // kRetried
  bool one_way = false;            // with `method`: it is a message that is over when it is sent
  Priority priority = Priority::kNormal;
  // Whose connection it was sent on: another than `client` where the channel has many servers.
  ClientCalls* carrier = client;
  uint64_t server_key = 0;          // CallOptions::server_key
  const MetServers* met = nullptr;  // kAttempt: which servers it avoids

 protected:
  ClientCall(ClientCalls& calls, Kind its_kind) : client(&calls), kind(its_kind) {}
  ~ClientCall() override = default;

 private:
  void OnTimer() final;  // the deadline
  absl::Status ReadReply(ByteSpan body, size_t attachment_bytes, const std::string& address,
                         uint64_t max_reply_bytes);
};

// A call whose caller waits for it.
class BlockingCall final : public ClientCall, public BlockedCaller {
 public:
  BlockingCall(ClientCalls& calls, EngineCore& engine)
      : ClientCall(calls, Kind::kBlocking), BlockedCaller(engine) {}
  void Complete(absl::Status status) override { GoOn(std::move(status)); }
};

// A call that ends with a callback. Made by ClientCalls, which keeps finished ones for reuse.
class CallbackCall final : public ClientCall {
 public:
  explicit CallbackCall(ClientCalls& calls) : ClientCall(calls, Kind::kCallback) {}

  void Complete(absl::Status status) override;
  void KeepRequest() override;
  // Its callback, which was not to run while it was started.
  void RunEarlyEnd() { Complete(std::move(early_status)); }
  // What KeepRequest() has kept is not needed any more.
  void ForgetRequest();

  std::string storage;  // of `encoded`
  alignas(kCacheLineBytes) Function<void(absl::Status)> done;
  absl::Status early_status;  // of a call that ended while it was started; `done` is still due

 private:
  // Of `storage`, for the next call.
  static constexpr size_t kKeepBytes = 1024;
};

}  // namespace weft
