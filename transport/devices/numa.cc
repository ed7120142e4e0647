#include "transport/devices/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "core/strings.h"
#include "transport/devices/sysfs.h"

namespace weft {
namespace {

constexpr char kNodes[] = "devices/system/node";

// Processors of one host that are looked at; the kernel is built for 8192 at most.
constexpr uint64_t kMaxProcessors = 8192;

// A list as the kernel writes it: "0-3,8-11".
std::vector<int> ParseList(const std::string& list) {
  std::vector<int> numbers;
  const char* at = list.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const uint64_t first = std::strtoul(at, &end, 10);
    const uint64_t last = *end == '-' ? std::strtoul(end + 1, &end, 10) : first;
    for (uint64_t number = first; number <= last && number < kMaxProcessors; ++number) {
      numbers.push_back(static_cast<int>(number));
    }
    at = *end == ',' ? end + 1 : end;
  }
  return numbers;
}

}  // namespace

std::vector<int> AllowedProcessors() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails on hosts with more than CPU_SETSIZE processors.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> ProcessorsOfNode(const std::string& sysfs, int node) {
  if (node < 0) return {};
  return ParseList((SysfsFolder(sysfs) / kNodes / StrCat("node", node)).Line("cpulist"));
}

int NodeOfProcessor(const std::string& sysfs, int cpu) {
  const std::vector<int> nodes = NodesOfProcessors(sysfs, {cpu});
  return nodes.empty() ? -1 : nodes.front();
}

std::vector<int> NodesOfProcessors(const std::string& sysfs, const std::vector<int>& cpus) {
  constexpr size_t kPrefixBytes = 4;  // "node"
  std::vector<int> nodes;
  for (const std::string& name : (SysfsFolder(sysfs) / kNodes).Names()) {
    if (name.compare(0, kPrefixBytes, "node") != 0) continue;
    const int node = static_cast<int>(std::strtol(name.c_str() + kPrefixBytes, nullptr, 10));
    const std::vector<int> of_node = ProcessorsOfNode(sysfs, node);
    if (std::find_first_of(of_node.begin(), of_node.end(), cpus.begin(), cpus.end()) !=
        of_node.end()) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

int NodeOfInterface(const std::string& sysfs, const std::string& name) {
  const SysfsFolder device = SysfsFolder(sysfs) / "class/net" / name / "device";
  // A card of a virtual machine (virtio) is a device of one on the bus, which has the node.
  const std::optional<int64_t> own = device.Number("numa_node");
  return static_cast<int>(own.has_value() ? *own : device.Number("../numa_node").value_or(-1));
}

NearMemory::NearMemory(int node) {
  constexpr int kWordBits = 8 * sizeof(unsigned long);
  constexpr int kMostNodes = 1024;  // that a kernel may be built for
  if (node < 0 || node >= kMostNodes) return;
  if (syscall(SYS_get_mempolicy, &before_, nullptr, 0UL, nullptr, 0UL) != 0) return;
  if (before_ != MPOL_DEFAULT && before_ != MPOL_LOCAL) return;
  unsigned long nodes[kMostNodes / kWordBits] = {};
  nodes[node / kWordBits] = 1UL << (node % kWordBits);
  changed_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, kMostNodes + 1UL) == 0;
}

NearMemory::~NearMemory() {
  if (changed_) syscall(SYS_set_mempolicy, before_, nullptr, 0UL);
}

}  // namespace weft
