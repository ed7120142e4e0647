#include "bench/perf/perf_path.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "core/check.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

struct KnownPath {
  std::string_view name;
  PathKind kind;
  bool is_emulated;
  std::string_view what;  // RDMA: the device that it needs
};

constexpr KnownPath kKnownPaths[] = {
    {"shm", PathKind::kShm, false, ""},
    {"tcp", PathKind::kTcp, false, ""},
    {"verbs", PathKind::kVerbs, false, "RDMA hardware"},
    {"rxe", PathKind::kVerbs, true, "Soft-RoCE device"},
    {"siw", PathKind::kVerbs, true, "Soft-iWARP device"},
};

// The memory that raw legs write to, on each side, and room for queues. (Weft asks for more, and
// says so itself.)
constexpr uint64_t kLockedBytes = uint64_t{20} << 20;

const KnownPath* Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kKnownPaths), std::end(kKnownPaths),
                                   [&](const KnownPath& known) { return known.name == name; });
  return found == std::end(kKnownPaths) ? nullptr : found;
}

const KnownPath& Known(std::string_view name) {
  const KnownPath* known = Find(name);
  WEFT_CHECK(known != nullptr);
  return *known;
}

bool IsSoftware(const RdmaPort& port) { return port.driver.empty(); }

bool IsMeant(const RdmaPort& port, const KnownPath& path) {
  if (IsSoftware(port) != path.is_emulated) return false;
  return !path.is_emulated || (port.link == LinkKind::kIwarp) == (path.name == "siw");
}

absl::Status NotHere(const KnownPath& path, const std::string& why) {
  const std::string advice =
      path.is_emulated
          ? StrCat("; `./dev lab perf --device ", path.name,
                   "` measures in a virtual machine that has one")
          : "; for devices in software there are the paths rxe and siw (./dev lab perf)";
  return absl::UnavailableError(StrCat("path ", path.name, ": ", why, advice));
}

}  // namespace

PathKind PerfPath::kind() const { return Known(name).kind; }

std::vector<std::string> PerfPathNames() {
  std::vector<std::string> names;
  for (const KnownPath& known : kKnownPaths) names.emplace_back(known.name);
  return names;
}

bool IsPerfPath(std::string_view name) { return Find(name) != nullptr; }

bool IsEmulated(std::string_view name) { return Known(name).is_emulated; }

absl::StatusOr<PerfPath> ChoosePerfPath(const std::string& name, const std::vector<RdmaPort>& ports,
                                        const RdmaProcessFacts& process) {
  const KnownPath& path = Known(name);
  PerfPath chosen;
  chosen.name = name;
  if (path.kind != PathKind::kVerbs) return chosen;
  std::vector<RdmaPort> meant;
  std::copy_if(ports.begin(), ports.end(), std::back_inserter(meant),
               [&](const RdmaPort& port) { return IsMeant(port, path); });
  const std::vector<RdmaOffer> offers = ChooseRdma(meant, RdmaFilter{}, process);
  if (offers.empty()) return NotHere(path, StrCat("there is no ", path.what, " here"));
  const RdmaOffer& best = offers[0];
  if (!best.unusable.empty()) return NotHere(path, StrCat(best.device, ": ", best.unusable));
  chosen.device = best.device;
  chosen.host = best.address.host;
  return chosen;
}

absl::StatusOr<PerfPath> FindPerfPath(const std::string& name) {
  if (Known(name).kind != PathKind::kVerbs) return ChoosePerfPath(name, {}, {});
  RdmaSources sources;
  sources.interfaces = ReadInterfaceAddresses();
  return ChoosePerfPath(name, ReadRdmaPorts(sources), ReadRdmaProcessFacts(kLockedBytes));
}

}  // namespace weft::bench
