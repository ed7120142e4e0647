// A fleet in one process: many servers of one service, and many clients with a channel over them
// each (docs/balancing.md), on the simulated network. Servers die, hang and leave the list while
// clients call; figures say how evenly load lies, and for how long a server that is no good is
// called. The same options give the same run, event by event.
//
// Machines are simulated engines. A machine of the fleet is host to many servers, or to many
// clients; a server that is to die has a machine of its own.
//
//   1. all clients connect, and call for `seconds`
//   2. `killed` servers die at once, and the clients call on for `seconds`
//   3. `hung` servers take calls and never answer; `seconds`
//   4. a list without `drained` servers reaches each client; `seconds`
//
// Threads: one. Lifetime: RunFleet() leaves nothing behind.
// Errors: INVALID_ARGUMENT names the option; a run that does not come to its end says where it is.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "rpc/client/balancing.h"

namespace weft::bench {

struct FleetOptions {
  uint32_t servers = 1000;
  uint32_t clients = 10'000;
  uint32_t part = 20;  // servers that each client connects to: BalancingOptions::max_servers
  BalancingPolicy policy = BalancingPolicy::kLeastLoaded;
  double calls_per_s = 2;         // of each client, at random times
  double seconds = 5;             // of virtual time, each phase
  uint32_t service_us = 5000;     // what a call takes at a server, in the mean
  uint32_t timeout_us = 200'000;  // of a call
  uint32_t killed = 10;
  uint32_t hung = 10;
  uint32_t drained = 10;
  uint32_t machines = 16;  // for clients, and as many for servers
  uint64_t seed = 1;
};

// Calls that the servers have answered in one phase: of those that are well.
struct FleetLoad {
  uint64_t calls = 0;
  uint64_t least = 0;
  double mean = 0;
  uint64_t most = 0;
  double deviation = 0;  // standard, as a part of the mean
  // Of calls that fall on servers by chance alone, for comparison: 1 / sqrt(mean).
  double deviation_of_chance = 0;
};

struct FleetPhase {
  FleetLoad load;
  uint64_t failed = 0;   // calls, after all attempts
  uint64_t retries = 0;  // attempts after the first
};

struct FleetFigures {
  uint64_t connections = 0;
  uint32_t fewest_clients = 0;  // of one server
  uint32_t most_clients = 0;
  double connected_ms = 0;  // virtual time until all clients have all their connections
  FleetPhase steady;
  FleetPhase killed;
  double last_client_knew_ms = 0;  // after the deaths: then no client's channel chooses a dead one
  FleetPhase hung;
  double hung_calls_first_s = 0;  // that one hung server got from all clients, in the first second
  double hung_calls_last_s = 0;   // in the last second of the phase
  uint64_t ejections = 0;
  FleetPhase drained;
  double last_drained_ms = 0;  // until no client has a connection to a server that left the list
  uint64_t trace_hash = 0;     // of all events
};

absl::StatusOr<FleetFigures> RunFleet(const FleetOptions& options);

// For people, with a line for each figure.
std::string FleetText(const FleetOptions& options, const FleetFigures& figures);

}  // namespace weft::bench
