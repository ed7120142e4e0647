// What a process costs the machine, as the kernel counts it.
//
// Threads: any. Errors: UNAVAILABLE where /proc does not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace weft::bench {

struct ProcessUsage {
  uint64_t cpu_ns = 0;          // user and system, all threads
  uint64_t resident_bytes = 0;  // all pages present, shared ones counted whole (Rss)
  uint64_t mapped_bytes = 0;    // address space
  uint64_t descriptors = 0;
};

// Of this process, now.
absl::StatusOr<ProcessUsage> UsageOfThisProcess();

// One line for pipes between processes, and back. nullopt: not such a line.
std::string ToLine(const ProcessUsage& usage);
std::optional<ProcessUsage> UsageFrom(const std::string& line);

// As many descriptors as the system allows this process, instead of the soft limit.
void RaiseDescriptorLimit();

}  // namespace weft::bench
