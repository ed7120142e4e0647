// Which processors are of which NUMA node, as sysfs says.
//
// Threads: pure functions of the files below `sysfs` ("/sys"), but for AllowedProcessors() and
// NearMemory, which are about the thread that calls them. Errors: what is not there, or cannot be
// read, is empty; a kernel without NUMA has no nodes at all.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Of the running system.
inline constexpr char kSysfs[] = "/sys";

// Those that this thread may run on; empty: unknown.
std::vector<int> AllowedProcessors();

// The processors of this node; empty: there is no such node, or it has only memory.
std::vector<int> ProcessorsOfNode(const std::string& sysfs, int node);

// The node of this processor; -1: unknown.
int NodeOfProcessor(const std::string& sysfs, int cpu);

// The node of this network interface's card; -1: unknown, or it has no card.
int NodeOfInterface(const std::string& sysfs, const std::string& name);

// The nodes that have one of these processors.
std::vector<int> NodesOfProcessors(const std::string& sysfs, const std::vector<int>& cpus);

// As long as it is there, pages that this thread touches first lie on the node, as far as it has
// room: who makes something for another thread may be far from that. Where the thread, or whoever
// started the program (numactl), has asked for other nodes already, these it is. Best effort:
// containers may forbid it.
//
// Threads: made and destroyed on one.
class NearMemory {
 public:
  // Below 0: no node; nothing is changed.
  explicit NearMemory(int node);
  ~NearMemory();
  NearMemory(const NearMemory&) = delete;
  NearMemory& operator=(const NearMemory&) = delete;

 private:
  int before_ = 0;  // what the thread had asked for
  bool changed_ = false;
};

}  // namespace weft
