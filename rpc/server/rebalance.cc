#include "rpc/server/rebalance.h"

#include <algorithm>

#include "core/client_shares.h"
#include "core/log.h"
#include "rpc/operation/on_engine.h"
#include "rpc/server/server_core.h"

namespace weft {

void Rebalance::Start(std::vector<ServerCore*> all) {
  if (all_.empty()) {
    own_.engine().counter_set().Register("rebalance.looks", &looks_);
    own_.engine().counter_set().Register("rebalance.asked", &asked_);
  }
  all_ = std::move(all);
  ScheduleIn(own_.engine(), *this, own_.options().rebalance_us);
}

Rebalance::~Rebalance() {
  own_.engine().counter_set().Unregister(&looks_);
  own_.engine().counter_set().Unregister(&asked_);
}

void Rebalance::Stop() { own_.engine().timers().Cancel(this); }

uint32_t Rebalance::Excess(uint32_t own, uint32_t least, uint64_t all, uint32_t most) {
  constexpr uint32_t kFewEnough = 4;  // a quarter: less is not worth the handshakes
  constexpr uint32_t kStep = 4;       // others ask at the same time, for the same engine's room
  if (own <= least || own - least <= std::max(kLeastGap, own / kFewEnough)) return 0;
  const uint32_t wanted = std::clamp((own - least) / kStep, uint32_t{1}, kMostAtOnce);
  return all + 2 * uint64_t{wanted} <= most ? wanted : 0;
}

void Rebalance::OnTimer() {
  looks_.Increment();
  uint64_t all = 0;
  uint32_t least = ~uint32_t{0};
  for (ServerCore* const core : all_) {
    const uint32_t count = core->stats().connections;
    all += count;
    least = std::min(least, count);
  }
  const uint32_t count = own_.stats().connections;
  // Who connects again has two connections for a moment: none of the reserved ones, and none at all
  // where there is a number for each client, who may be at it and would dial in vain.
  const uint32_t places = own_.options().max_connections;
  const uint32_t of_one = own_.options().max_connections_of_one;
  const uint32_t most = of_one == 0        ? static_cast<uint32_t>(AllButReserve(places))
                        : of_one == places ? places
                                           : 0;
  uint32_t excess = Excess(count, least, all, most);
  // Of an even server nobody looks at the single connections.
  if (excess > 0) {
    const uint32_t leaving = own_.LookForLeaving(kPatientLooks);
    excess = Excess(count - std::min(leaving, count), least, all, most);
  }
  uneven_looks_ = excess > 0 ? uneven_looks_ + 1 : 0;
  if (uneven_looks_ >= kLooks) {
    const uint32_t asked = own_.MoveConnections(excess);
    asked_.Add(asked);
    if (asked > 0) {
      WEFT_LOG(kInfo, "an engine with ", count, " connections, where another one has ", least,
               ", asks ", asked, " clients to connect again");
    }
  }
  ScheduleIn(own_.engine(), *this, own_.options().rebalance_us);
}

}  // namespace weft
