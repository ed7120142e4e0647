// Counts what a hot path must not do: allocations and locks.
//
//   const HotPathMeter meter;
//   for (int i = 0; i < 100; ++i) ASSERT_TRUE(stub.Echo(request, &reply).ok());
//   EXPECT_EQ(meter.counts(), HotPathCounts());
//
// A program that links this has malloc and its kin, and pthread's mutexes, rwlocks and spin locks,
// replaced by functions that count and pass on. operator new ends in malloc, std::mutex in pthread.
// Calls that come out of a network provider's library (libfabric and what it is built on) are told
// by their return address, and are not counted: they are not Weft's to change.
//
// Threads:  counts those of the thread that made it; no two at a time on one thread.
// Lifetime: counts from its construction on.
#pragma once

#include <cstdint>
#include <ostream>

namespace weft::test {

struct HotPathCounts {
  uint64_t allocations = 0;
  uint64_t locks = 0;

  bool operator==(const HotPathCounts&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const HotPathCounts& counts) {
  return out << counts.allocations << " allocations, " << counts.locks << " locks";
}

class HotPathMeter {
 public:
  HotPathMeter();
  ~HotPathMeter();
  HotPathMeter(const HotPathMeter&) = delete;
  HotPathMeter& operator=(const HotPathMeter&) = delete;

  HotPathCounts counts() const;
};

}  // namespace weft::test
