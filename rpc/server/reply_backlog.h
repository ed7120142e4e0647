// The replies of one connection that wait for its client to take earlier ones: how many bytes they
// have, and whether the client is too slow for them.
//
// It is when more than ServerOptions::max_unsent_reply_bytes wait (one reply alone always may), and
// when none has left for ServerOptions::reply_timeout_us while some wait.
//
// Threads: the engine's. Lifetime: a member of its ServerConnection; the options outlive it.
// Invariants: `on_slow` is called from Add() and from a timer; bytes() is 0 if nothing waits.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/function.h"
#include "core/timer_wheel.h"
#include "transport/engine.h"
#include "weft/server.h"

namespace weft {

class ReplyBacklog final : private Timer {
 public:
  // `on_slow` is told why, in words for the client.
  ReplyBacklog(EngineCore& engine, const ServerOptions& options,
               Function<void(std::string_view)> on_slow)
      : engine_(engine), options_(options), on_slow_(std::move(on_slow)) {}

  // A reply of so many bytes waits. It may be gone when this returns, with all others.
  void Add(uint64_t bytes);
  // One has left, or nobody wants it any more.
  void Remove(uint64_t bytes);

  uint64_t bytes() const { return bytes_; }

 private:
  void OnTimer() override;
  // One of them has to leave from now on.
  void Watch();

  EngineCore& engine_;
  const ServerOptions& options_;
  Function<void(std::string_view)> on_slow_;
  uint64_t bytes_ = 0;
  uint32_t replies_ = 0;
};

}  // namespace weft
