#include "examples/kv/client/closed_loop.h"

#include <utility>

#include "core/check.h"
#include "core/clock.h"

namespace kv::client {
namespace {

// Soon enough after Ctrl-C for a person, too rarely to cost anything.
constexpr uint64_t kLookIntervalNs = 50 * weft::kNsPerMs;

}  // namespace

ClosedLoop::ClosedLoop(weft::Engine& engine, uint32_t lanes, StartTask start)
    : engine_(engine), start_(std::move(start)), due_(lanes), active_(lanes) {
  for (uint32_t lane = 0; lane < lanes; ++lane) PushDue(lane);
}

void ClosedLoop::Run(absl::FunctionRef<bool()> go_on) {
  const auto look = [this] { return ended() || due_count_ > 0; };
  uint64_t next_look_ns = engine_.clock().NowNs() + kLookIntervalNs;
  while (!ended()) {
    if (due_count_ > 0) {
      // Inside a turn, for what is started there need not enter the engine by itself. Where the
      // inbox is full the turn makes room.
      static_cast<void>(engine_.Post([this] { StartDue(); }));
      engine_.Poll();
    } else {
      engine_.RunUntil(look, next_look_ns);
    }
    const uint64_t now_ns = engine_.clock().NowNs();
    if (now_ns < next_look_ns) continue;
    next_look_ns = now_ns + kLookIntervalNs;
    if (!go_on()) Stop();
  }
}

void ClosedLoop::StartDue() {
  for (uint32_t at_once = 0; at_once < kAtOnce && due_count_ > 0;) {
    const uint32_t lane = PopDue();
    if (!StartNext(lane)) continue;
    PushDue(lane);
    ++at_once;
  }
}

void ClosedLoop::Done(uint32_t lane) {
  if (starting_ == lane) {
    starting_ = kNoLane;
  } else if (StartNext(lane)) {
    PushDue(lane);
  }
}

bool ClosedLoop::StartNext(uint32_t lane) {
  const uint32_t outer = std::exchange(starting_, lane);  // its callback may have brought us here
  const bool started = !stopped_ && start_(lane);
  const bool ended = std::exchange(starting_, outer) == kNoLane;
  if (!started) --active_;
  return started && ended;
}

void ClosedLoop::PushDue(uint32_t lane) {
  WEFT_DCHECK(due_count_ < due_.size());
  due_[(first_due_ + due_count_++) % due_.size()] = lane;
}

uint32_t ClosedLoop::PopDue() {
  const uint32_t lane = due_[first_due_];
  first_due_ = static_cast<uint32_t>((first_due_ + 1) % due_.size());
  --due_count_;
  return lane;
}

}  // namespace kv::client
