// What a channel tells its program unasked: changes of its state (Channel::WatchState()), and that
// it has room for calls (Channel::WhenWritable()).
//
// Callbacks come from a timer, never from inside what they are about: they may start calls, watch,
// and wait for room again. Of changes that follow each other before the timer runs, a watch sees
// the last one.
//
// Threads: the engine's. Lifetime: a part of the channel's ClientConnection; Shutdown() is the end.
// Errors: those of Channel's functions.
// Invariants: at most kMaxStateWatches watches and kMaxWritableCallbacks callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "rpc/client/channel_watch.h"
#include "rpc/client/client_calls.h"
#include "transport/engine.h"

namespace weft {

class ChannelEvents;

// One watch, which its ChannelWatch and the list of its channel's share.
struct StateWatch : ListNode<> {
  explicit StateWatch(EngineCore& its_engine) : engine(its_engine) {}

  EngineCore& engine;
  std::atomic<bool> over = false;  // the channel is gone; the rest is then of no use
  // Engine thread only.
  ChannelEvents* events = nullptr;
  ChannelState seen = {};            // by the callback; at first none
  std::shared_ptr<StateWatch> self;  // while it is on the list
  Function<void(ChannelState)> changed;
};

class ChannelEvents final : private Timer {
 public:
  // A program has one for each of its parts that want to know; each change looks at all of them.
  static constexpr uint32_t kMaxStateWatches = 64;
  // As many as a channel's default of max_outstanding_calls, four times over; each is one cache
  // line.
  static constexpr uint32_t kMaxWritableCallbacks = 1024;

  ChannelEvents(ClientCalls& calls, EngineCore& engine, const std::string& address)
      : calls_(calls), engine_(engine), address_(address) {}

  // `changed` is told of the present state, and of each change.
  absl::StatusOr<ChannelWatch> Watch(Function<void(ChannelState)> changed);
  void Forget(StateWatch& watch);
  void WhenWritable(Function<void(absl::Status)> done);

  // --- for ClientConnection ---------------------------------------------------------------------

  void OnState(ChannelState state);
  // There may be room.
  void OnRoom() { engine_.timers().Schedule(this, 0); }
  // Who waits for room waits in vain.
  void EndWaiting(const absl::Status& why);
  // Watches are told kShutdown, and who waits for room `gone`. What they start is the channel's
  // last.
  void Shutdown(const absl::Status& gone);

 private:
  void OnTimer() override;
  void TellWatches();
  void TellOfRoom();

  ClientCalls& calls_;
  EngineCore& engine_;
  const std::string& address_;
  ChannelState state_ = ChannelState::kIdle;
  IntrusiveList<StateWatch> watches_;
  uint32_t watch_count_ = 0;
  std::deque<Function<void(absl::Status)>> writable_;
};

}  // namespace weft
