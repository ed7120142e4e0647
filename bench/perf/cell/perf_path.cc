#include "bench/perf/cell/perf_path.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "core/check.h"
#include "core/status.h"
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
    {"ofi_tcp", PathKind::kOfiTcp, false, ""},
    {"verbs", PathKind::kVerbs, false, "RDMA hardware"},
    {"rxe", PathKind::kVerbs, true, "Soft-RoCE device"},
    {"siw", PathKind::kVerbs, true, "Soft-iWARP device"},
};

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

bool IsSoftware(const HostPath& path) { return path.driver.empty(); }

bool IsMeant(const HostPath& here, const KnownPath& path) {
  if (here.kind != PathKind::kVerbs || IsSoftware(here) != path.is_emulated) return false;
  return !path.is_emulated || (here.link == LinkKind::kIwarp) == (path.name == "siw");
}

// Those that connections would use before the others, in their order.
bool IsBetter(const HostPath& a, const HostPath& b) {
  return a.place > 0 && (b.place == 0 || a.place < b.place);
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

absl::StatusOr<PerfPath> ChoosePerfPath(const std::string& name, const HostPaths& host) {
  const KnownPath& path = Known(name);
  PerfPath chosen;
  chosen.name = name;
  if (path.kind != PathKind::kVerbs) return chosen;
  const HostPath* best = nullptr;
  for (const HostPath& here : host.paths) {
    if (IsMeant(here, path) && (best == nullptr || IsBetter(here, *best))) best = &here;
  }
  if (best == nullptr) return NotHere(path, StrCat("there is no ", path.what, " here"));
  const std::string port = StrCat(best->device, ":", best->port);
  if (best->place == 0) return NotHere(path, StrCat(port, ": ", best->reason));
  chosen.device = port;
  chosen.host = best->address.substr(0, best->address.find('/'));
  return chosen;
}

absl::StatusOr<PerfPath> FindPerfPath(const std::string& name) {
  if (Known(name).kind != PathKind::kVerbs) return ChoosePerfPath(name, {});
  LinkOptions link;
  link.paths = {PathKind::kVerbs};
  WEFT_ASSIGN_OR_RETURN(const HostPaths host, ListHostPaths(link));
  return ChoosePerfPath(name, host);
}

}  // namespace weft::bench
