// What this process holds of the system: what grows is a leak.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace kv::witness {

struct ProcessFacts {
  uint64_t descriptors = 0;
  uint64_t threads = 0;
  uint64_t pinned_kib = 0;    // memory registered with RDMA devices
  uint64_t resident_kib = 0;  // memory in use
};

ProcessFacts ReadProcessFacts();

}  // namespace kv::witness
