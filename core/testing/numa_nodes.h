// What lies on which NUMA node, and who runs there.
//
// Threads: any. Errors: what the kernel does not say is -1, or not among the nodes.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace weft {

using Nodes = std::set<int>;

inline constexpr size_t kNumaPageBytes = 4096;

// The node that this page lies on; below 0: an errno, as -ENOENT where this process has not touched
// it.
inline int NodeOfPage(const void* memory) {
  void* page = const_cast<void*>(memory);
  int node = -1;
  const long failed = syscall(SYS_move_pages, /*pid=*/0, 1UL, &page, nullptr, &node, 0);
  return failed == 0 ? node : -1;
}

// Of what is there of this memory.
inline Nodes NodesOf(const std::byte* memory, size_t bytes) {
  Nodes nodes;
  for (size_t at = 0; at < bytes; at += kNumaPageBytes) {
    if (const int node = NodeOfPage(memory + at); node >= 0) nodes.insert(node);
  }
  return nodes;
}

// Of each file in memory with such a name ("weft-link") that this process has mapped, once for each
// mapping. Those that nobody has touched are left out.
inline std::vector<Nodes> NodesOfFiles(const char* name) {
  std::vector<Nodes> files;
  FILE* const maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  while (maps != nullptr && std::fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long first = 0;
    unsigned long end = 0;
    const char* const file = std::strstr(line, "/memfd:");
    if (file == nullptr || std::strstr(file, name) == nullptr) continue;
    if (std::sscanf(line, "%lx-%lx", &first, &end) != 2) continue;
    Nodes nodes = NodesOf(reinterpret_cast<const std::byte*>(first), end - first);
    if (!nodes.empty()) files.push_back(std::move(nodes));
  }
  if (maps != nullptr) std::fclose(maps);
  return files;
}

// Where this thread runs.
inline int NodeOfThread() {
  unsigned cpu = 0;
  unsigned node = 0;
  return syscall(SYS_getcpu, &cpu, &node, nullptr) == 0 ? static_cast<int>(node) : -1;
}

// REQUIRES: there is such a processor, and this thread may use it.
inline void RunOnProcessor(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(cpu), &cpus);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus), 0);
}

// One processor that this thread may use of each node that has some: as the kernel says on each.
inline std::map<int, int> FindProcessorsByNode() {
  std::map<int, int> processors;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed);
  std::thread([&] {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(static_cast<size_t>(cpu), &allowed)) continue;
      RunOnProcessor(cpu);
      processors.emplace(NodeOfThread(), cpu);
    }
  }).join();
  return processors;
}
inline const std::map<int, int>& ProcessorsByNode() {
  static const std::map<int, int> processors = FindProcessorsByNode();
  return processors;
}
inline std::vector<int> NodesOfMachine() {
  std::vector<int> nodes;
  for (const auto& [node, processor] : ProcessorsByNode()) nodes.push_back(node);
  return nodes;
}
inline int ProcessorOf(int node) { return ProcessorsByNode().at(node); }

// Another one. REQUIRES: there are two.
inline int FarFrom(int node) {
  const std::vector<int> nodes = NodesOfMachine();
  return *std::find_if(nodes.begin(), nodes.end(), [&](int other) { return other != node; });
}

// Runs it on a thread of its own that runs on this node.
template <class Run>
void OnNode(int node, Run run) {
  std::thread([&] {
    RunOnProcessor(ProcessorOf(node));
    run();
  }).join();
}

inline constexpr char kOneNode[] =
    "this machine has one NUMA node, or its kernel knows none; `./dev lab --numa 2` has two";

}  // namespace weft
