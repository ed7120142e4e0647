#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "core/strings.h"
#include "transport/devices/numa.h"
#include "transport/devices/rdma_choice.h"

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

}  // namespace

RdmaProcessFacts ReadRdmaProcessFacts(uint64_t wanted_lock_bytes, int numa_node) {
  RdmaProcessFacts facts;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
  }
  facts.may_lock_any = HasCapability(kCapIpcLock);
  facts.wanted_lock_bytes = wanted_lock_bytes;
  facts.near_nodes =
      numa_node >= 0 ? std::vector<int>{numa_node} : NodesOfProcessors(kSysfs, AllowedProcessors());
  return facts;
}

}  // namespace weft
