// A unary call that a coroutine awaits: what the stub's Co... forms return.
//
//   absl::Status status = co_await kv.CoGet(request, &reply, {.timeout_us = 2000});
//
// It is the form with a callback (Channel::Call()), begun when it is awaited.
//
// Threads, Errors: as the channel. Lifetime: the channel outlives it; request, reply, and what the
//   options point to, stay until it has been awaited.
// Invariants: awaited once.
#pragma once

#include <coroutine>
#include <cstdint>

#include "absl/status/status.h"
#include "rpc/coroutine/await.h"
#include "rpc/layout/method_layouts.h"
#include "weft/channel.h"

namespace weft {

class [[nodiscard]] CallAwaiter {
 public:
  // For generated code. `bodies` without layouts: messages, and `method` as Channel::Bind() counts
  // them. `one_way`: the method is (Channel::SendOneWay()).
  CallAwaiter(Channel& channel, uint32_t method, const LayoutCall& bodies,
              const CallOptions& options, bool one_way = false)
      : channel_(channel), method_(method), bodies_(bodies), options_(options), one_way_(one_way) {}

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    resumption_.Set(coroutine);
    return Start();
  }
  absl::Status await_resume() { return std::move(status_); }

 private:
  // What await_suspend() returns.
  bool Start();

  Channel& channel_;
  const uint32_t method_;
  const LayoutCall bodies_;
  const CallOptions options_;
  const bool one_way_;
  internal::Resumption resumption_;
  absl::Status status_;
};

}  // namespace weft
