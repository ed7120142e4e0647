#include <sched.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "core/strings.h"
#include "transport/devices/rdma_choice.h"
#include "transport/devices/sysfs.h"

namespace weft {
namespace {

constexpr int kCapIpcLock = 14;

bool HasCapability(int number) {
  std::ifstream status("/proc/self/status");
  constexpr char kField[] = "CapEff:";
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, kField)) continue;
    const uint64_t set = std::strtoull(line.c_str() + sizeof(kField), nullptr, 16);
    return (set >> number & 1) != 0;
  }
  return false;
}

// Whether one of `allowed` is in a list as the kernel writes it: "0-3,8-11".
bool HasOneOf(const std::string& list, const cpu_set_t& allowed) {
  const char* at = list.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const uint64_t first = std::strtoul(at, &end, 10);
    const uint64_t last = *end == '-' ? std::strtoul(end + 1, &end, 10) : first;
    for (uint64_t cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) return true;
    }
    at = *end == ',' ? end + 1 : end;
  }
  return false;
}

std::vector<int> NodesOfAllowedProcessors() {
  std::vector<int> nodes;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails on hosts with more than CPU_SETSIZE processors: then the nodes are unknown.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return nodes;
  const SysfsFolder all("/sys/devices/system/node");
  for (const std::string& name : all.Names()) {
    if (!absl::StartsWith(name, "node")) continue;
    if (!HasOneOf((all / name).Line("cpulist"), allowed)) continue;
    nodes.push_back(static_cast<int>(std::strtol(name.c_str() + 4, nullptr, 10)));
  }
  return nodes;
}

}  // namespace

RdmaProcessFacts ReadRdmaProcessFacts(uint64_t wanted_lock_bytes) {
  RdmaProcessFacts facts;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
  }
  facts.may_lock_any = HasCapability(kCapIpcLock);
  facts.wanted_lock_bytes = wanted_lock_bytes;
  facts.near_nodes = NodesOfAllowedProcessors();
  return facts;
}

}  // namespace weft
