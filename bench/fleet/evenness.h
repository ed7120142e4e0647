// How evenly clients' choice of servers spreads a load that servers can just do, on the simulated
// network: each server has `workers`, a call takes one of them for `service_us`, and calls come at
// random times, so many that a `load` of all workers is at work in the mean. What waits, waits
// because some servers had more calls than others while workers of others were idle. The same
// options give the same run, event by event.
//
// Where servers have little to do, each policy spreads calls as chance does; and where a client
// has few calls under way, it does not know much of its servers (docs/balancing.md, "Figures").
//
// Threads: one. Lifetime: nothing is left behind.
// Errors: INVALID_ARGUMENT names the option; a run that does not come to its end says where it is.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft::bench {

// Who gets a call.
enum class FleetChoice : uint8_t {
  kRandom = 1,      // one of the client's servers, drawn: for comparison, no BalancingPolicy
  kRoundRobin = 2,  // these three: BalancingPolicy
  kLeastLoaded = 3,
  kConsistentHash = 4,  // with a key of its own for each call
};

struct EvennessOptions {
  uint32_t servers = 1000;
  uint32_t clients = 10'000;
  uint32_t part = 20;  // servers that each client connects to
  FleetChoice choice = FleetChoice::kLeastLoaded;
  double load = 0.75;  // of what the servers can do; with less than 1 no queue grows for ever
  uint32_t workers = 4;
  uint32_t service_us = 50'000;  // of a worker's time, each call
  double seconds = 5;            // of virtual time, behind kEvennessWarmUpNs
  uint32_t outstanding = 64;     // calls of one client at one server
  uint32_t machines = 16;        // for clients, and as many for servers
  uint64_t seed = 1;
};

// Before anything is counted: until queues are as long as they will be.
inline constexpr uint64_t kEvennessWarmUpNs = 2'000'000'000;

struct EvennessFigures {
  uint64_t calls = 0;  // that ended well
  uint64_t failed = 0;
  // Of a call, from its start at the client to its end there; at an idle server it takes
  // `service_us`.
  double p50_ms = 0;
  double p99_ms = 0;
  // Calls that are at a server, those that wait there included.
  double mean_here = 0;    // over all servers and the time
  double most_loaded = 0;  // the mean over the time, at the server where it is largest
  uint64_t most_here = 0;  // at one server at one time
  uint64_t trace_hash = 0;
};

absl::StatusOr<EvennessFigures> RunEvenness(const EvennessOptions& options);

// "least_loaded".
std::string FleetChoiceName(FleetChoice choice);

// For people: a head, and a line for each run.
std::string EvennessHead(const EvennessOptions& options);
std::string EvennessText(const EvennessOptions& options, const EvennessFigures& figures);

}  // namespace weft::bench
