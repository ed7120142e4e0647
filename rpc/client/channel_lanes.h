// The lanes of a channel on several engines: a channel on each, and which of them have a
// connection. So calls of a lane whose connection is lost, with its card or its wire, go by another
// one until it is back.
//
//   State of a lane   Who moves it (ClientConnection, on the lane's engine)
//     idle    no connection, and nobody wants one; or one is being made, and no other lane has one.
//             Calls that begin go by it, and connect it. -> ready, away
//     ready   its connection is open, or a bridge goes on for it. -> away: it is lost, and another
//             lane is ready; -> idle: and none is; -> leaving: its server is about to shut down
//     leaving what is under way goes on. Calls that begin go by it, and end or wait as those of a
//             channel on one engine do. -> ready: a bridge is open; -> away, idle: its connection
//             is closed, as above
//     away    it tries to connect all the time, with pauses, for its threads' calls go by the lanes
//             that are ready. -> ready; -> idle: an attempt has failed, or a pause is over, and no
//             other lane is ready; or the channel ends
//
// Of a channel over many servers each lane has them all (its list, its connections, its ejections),
// and is ready while one of them is: then Balancer moves it, when its state changes and, while it
// is not ready, with each attempt that fails; and of the states above it has idle, ready and away.
//
// Which lane a call goes by is settled when it begins. What was begun on a lane stays there: calls
// that were sent end as channel.h says, and attempts of calls that are sent again wait there.
//
// On the way of a call threads share the word that says who is away, which is written when
// connections are lost and made, and not otherwise.
//
// Threads: any, but for Set...(), which is the lane's engine's.
// Lifetime: LaneStates is its channel's and that of its connections, which may outlive it.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rpc/client/channel.h"
#include "transport/options.h"

namespace weft {

class LaneStates {
 public:
  bool IsReady(uint32_t lane) const { return (ready_.load(std::memory_order_relaxed) & Bit(lane)); }
  bool IsAway(uint32_t lane) const { return (away_.load(std::memory_order_relaxed) & Bit(lane)); }
  // The first ready one behind this lane, going round; this one, if no other is.
  uint32_t ReadyBehind(uint32_t lane) const {
    const uint64_t others = ready_.load(std::memory_order_relaxed) & ~Bit(lane);
    if (others == 0) return lane;
    const uint32_t steps =
        static_cast<uint32_t>(std::countr_zero(std::rotr(others, static_cast<int>(lane))));
    return (lane + steps) % kMaxEngines;
  }

  void SetReady(uint32_t lane, bool ready) {
    Set(ready_, lane, ready);
    if (ready) Set(away_, lane, false);
  }
  // It has no connection. `may_stand_aside`: it is away, if another lane is ready. (Of two that
  // lose theirs at once, each has said so before it looks at the other.)
  void SetAway(uint32_t lane, bool may_stand_aside) {
    Set(away_, lane, may_stand_aside && (ready_.load() & ~Bit(lane)) != 0);
  }

 private:
  static_assert(kMaxEngines == 64);  // bits of a word
  static constexpr uint64_t Bit(uint32_t lane) { return uint64_t{1} << lane; }
  static void Set(std::atomic<uint64_t>& lanes, uint32_t lane, bool is) {
    is ? lanes.fetch_or(Bit(lane)) : lanes.fetch_and(~Bit(lane));
  }

  std::atomic<uint64_t> ready_{0};
  std::atomic<uint64_t> away_{0};
};

class ChannelLanes {
 public:
  // REQUIRES: not empty; lane `i` tells `states` of itself under this number.
  ChannelLanes(std::vector<std::unique_ptr<Channel>> lanes, std::shared_ptr<LaneStates> states);

  const std::vector<std::unique_ptr<Channel>>& all() const { return lanes_; }
  const std::vector<EngineCore*>& engines() const { return engines_; }
  const LaneStates& states() const { return *states_; }
  // Held while all lanes are told a list of servers: of two lists, all have the same one in the
  // end. REQUIRES: inside no callback of theirs, and no child of fork(), whose parent may hold it.
  std::mutex& list_mutex() const { return list_mutex_; }

  // The lane of this thread: in a callback of one of the engines that one's, as on its thread; else
  // always the same.
  Channel& OfThisThread() const;
  uint32_t NumberOfThisThread() const;

  // The lane by which a call of this thread goes that begins now: its own, unless that is away. A
  // call that lends memory stays, for that is one engine's; so does one on an engine's thread,
  // where its callback belongs, and one behind a write of remote memory that waits for the
  // connection. `blocks`: its caller waits. Otherwise it goes by no engine that
  // callers drive, for nobody may be driving that one.
  Channel& ForCall(const CallOptions& options, bool blocks) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t Find(const Engine* engine) const;  // kNone: none
  uint32_t OfThisEngine() const;              // kNone: this thread is none's
  uint32_t StandIn(uint32_t home, bool blocks) const;

  const std::vector<std::unique_ptr<Channel>> lanes_;
  const std::vector<EngineCore*> engines_;  // the lanes'
  const std::shared_ptr<LaneStates> states_;
  mutable std::mutex list_mutex_;
};

}  // namespace weft
