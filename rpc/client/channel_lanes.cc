#include "rpc/client/channel_lanes.h"

#include "core/inline.h"
#include "rpc/client/client_connection.h"
#include "transport/engine.h"

namespace weft {
namespace {

// Threads are numbered in the order in which they first call by any channel of several engines:
// those that come one after the other have different ones. (Where two channels' threads come by
// turns, each of them has every second number.)
uint32_t SeatOfThread() {
  static std::atomic<uint32_t> next{0};
  static thread_local const uint32_t seat = next.fetch_add(1, std::memory_order_relaxed);
  return seat;
}

std::vector<EngineCore*> EnginesOf(const std::vector<std::unique_ptr<Channel>>& lanes) {
  std::vector<EngineCore*> engines;
  for (const std::unique_ptr<Channel>& lane : lanes) engines.push_back(&CoreOf(lane->engine()));
  return engines;
}

}  // namespace

ChannelLanes::ChannelLanes(std::vector<std::unique_ptr<Channel>> lanes,
                           std::shared_ptr<LaneStates> states)
    : lanes_(std::move(lanes)), engines_(EnginesOf(lanes_)), states_(std::move(states)) {}

uint32_t ChannelLanes::Find(const Engine* engine) const {
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (engines_[lane] == engine) return lane;
  }
  return kNone;
}

// Nothing that threads share is written: the lanes are constant, and a thread has its seat.
//
// A callback's is the engine that it runs on, whoever drives that one: two threads, each of which
// drove the other's engine and waited for its own, would wait for ever.
uint32_t ChannelLanes::OfThisEngine() const {
  for (const internal::Turn* turn = internal::innermost_turn; turn != nullptr; turn = turn->outer) {
    if (const uint32_t lane = Find(turn->engine); lane != kNone) return lane;
  }
  if (const Engine* const home = internal::home_engine; home != nullptr) {
    const uint32_t lane = Find(home);
    if (lane != kNone && engines_[lane]->IsHome()) return lane;
  }
  return kNone;
}

uint32_t ChannelLanes::NumberOfThisThread() const {
  const uint32_t lane = OfThisEngine();
  return lane != kNone ? lane : SeatOfThread() % static_cast<uint32_t>(lanes_.size());
}

WEFT_APART Channel& ChannelLanes::OfThisThread() const { return *lanes_[NumberOfThisThread()]; }

WEFT_APART Channel& ChannelLanes::ForCall(const CallOptions& options, bool blocks) const {
  const uint32_t own = OfThisEngine();
  if (own != kNone) return *lanes_[own];
  const uint32_t home = SeatOfThread() % static_cast<uint32_t>(lanes_.size());
  if (!states_->IsAway(home) || options.bulk != nullptr) [[likely]]
    return *lanes_[home];
  return *lanes_[StandIn(home, blocks)];
}

WEFT_COLD uint32_t ChannelLanes::StandIn(uint32_t home, bool blocks) const {
  // Callers drive the engine, perhaps, and none comes while its calls go elsewhere: a turn with
  // each of these brings it back. (Callbacks may run inside of a call that blocks.)
  if (blocks) engines_[home]->Poll();
  if (!states_->IsAway(home)) return home;
  // Behind writes that wait for the connection, which a call must not overtake.
  if (internal::ConnectionOf(*lanes_[home]).calls().calls_held()) return home;
  const uint32_t other = states_->ReadyBehind(home);
  const EngineCore& engine = *engines_[other];
  return blocks || engine.drives_itself() || engine.is_external() ? other : home;
}

}  // namespace weft
