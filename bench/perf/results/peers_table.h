// Weft beside what users would take instead: for each cell that a peer has, everybody's figure, and
// in words who wins.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/perf/results/results.h"

namespace weft::bench {

// Empty where no peer was measured. `kinds`: the peers' names, in the order of the columns. Raw
// libfabric stands beside them and does not compete; nor do those with TLS, Weft or others.
std::string PeersTable(const Results& results, const std::vector<std::string>& kinds);

// Goals against peers, a line each, for what was measured: "tcp, 64 B calls, 64 outstanding: 9.10
// times gRPC's (>= 8: met)", "..., 64 B round trip, both with TLS: gRPC takes 7.50 times as long".
std::string PeerGoals(const Results& results);

}  // namespace weft::bench
