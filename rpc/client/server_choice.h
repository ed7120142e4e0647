// The arithmetic of choosing among many servers: keys and the ring that they lie on, a client's
// part of a long list, and whose rate of success is far from the others'. No connection, no state
// but the ring's points.
//
// Threads: one at a time. Errors: none.
// Invariants: the same input gives the same result in every process and version.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "rpc/client/balancing.h"

namespace weft {

// Consistent hashing (D. Karger et al., "Consistent hashing and random trees", STOC 1997): each
// server has kPoints points on a ring of hashes, and a key belongs to the next point.
class HashRing {
 public:
  // With 128 points a server's share differs from the mean by 9 % (one standard deviation).
  static constexpr uint32_t kPoints = 128;

  // At most 65536 servers, by their numbers 0, 1, ... in `addresses`.
  void Build(absl::Span<const std::string_view> addresses);

  uint32_t size() const { return static_cast<uint32_t>(points_.size()); }
  // The place of the key's point, and the server there. REQUIRES: size() > 0.
  uint32_t Find(uint64_t key) const;
  uint32_t ServerAt(uint32_t place) const { return static_cast<uint32_t>(points_[place] & 0xFFFF); }

 private:
  std::vector<uint64_t> points_;  // sorted: 48 bits of hash, 16 of the server's number
};

// Which of `addresses` the client with that number connects to, `most` of them; all, if there are
// no more. In the order in which they are given.
std::vector<uint32_t> SubsetOf(absl::Span<const std::string_view> addresses, uint32_t most,
                               uint32_t client_number);

// Of one server in one interval.
struct SuccessCount {
  uint64_t ok = 0;
  uint64_t failed = 0;
};
// Whose rate is so low that it is ejected (docs/balancing.md, "Ejection").
std::vector<uint32_t> LowRates(absl::Span<const SuccessCount> servers);

}  // namespace weft
