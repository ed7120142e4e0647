#include "bench/perf/plan/plan.h"

#include <algorithm>

namespace weft::bench {
namespace {

// For all rounds together: with what repeated turns take, ten minutes, or twenty seconds.
constexpr double kMatrixSeconds = 480;
constexpr double kQuickSeconds = 18;
// A longer leg only finds more of what disturbs it.
constexpr double kLongestLegSeconds = 1;
// Below, starting and ending a leg is most of it.
constexpr double kShortestLegSeconds = 0.02;

double SecondsPerLeg(const Plan& plan, const PerfOptions& options) {
  if (options.seconds_per_leg > 0) return options.seconds_per_leg;
  const double total = options.quick ? kQuickSeconds : kMatrixSeconds;
  const auto legs = static_cast<double>(std::max<size_t>(plan.legs(), 1));
  const double others =
      kSecondsPerLook * static_cast<double>(plan.turns.size()) + kSecondsPerStart * legs;
  return std::clamp((total / options.rounds - others) / legs, kShortestLegSeconds,
                    kLongestLegSeconds);
}

}  // namespace

size_t Plan::legs() const {
  size_t legs = 0;
  for (const Turn& turn : turns) legs += turn.kinds.size();
  return legs;
}

double Plan::EstimatedSeconds(int rounds) const {
  const auto legs_of_a_round = static_cast<double>(legs());
  return rounds * (legs_of_a_round * (seconds_per_leg + kSecondsPerStart) +
                   kSecondsPerLook * static_cast<double>(turns.size()));
}

Plan MakePlan(const PerfOptions& options, const std::vector<PerfPath>& paths,
              const std::vector<EndKind>& kinds) {
  Plan plan;
  for (const Cell& cell : options.cells) {
    if (const std::string reason = WhyNoCell(cell); !reason.empty()) {
      plan.left_out.push_back({"", cell, "", reason});
      continue;
    }
    for (size_t path = 0; path < paths.size(); ++path) {
      Turn turn = {path, cell, {}};
      for (const EndKind& kind : kinds) {
        if (kind.is_peer && !options.with_peers) continue;
        const std::string reason = kind.why_not(cell, paths[path]);
        if (reason.empty()) {
          turn.kinds.emplace_back(kind.name);
        } else {
          plan.left_out.push_back({paths[path].name, cell, std::string(kind.name), reason});
        }
      }
      if (!turn.kinds.empty()) plan.turns.push_back(turn);
    }
  }
  plan.seconds_per_leg = SecondsPerLeg(plan, options);
  return plan;
}

}  // namespace weft::bench
