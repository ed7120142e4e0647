// A fleet in one process: many servers of one service, and many clients with a channel over them
// each (docs/balancing.md), on the simulated network. Servers die, vanish, fail, hang, leave the
// list and are started anew while clients call; figures say for how long a server that is no good
// is called, and what ejection has to do with it. The same options give the same run, event by
// event. (How evenly load lies where there is much of it: evenness.h.)
//
// Machines are simulated engines. A machine of the fleet is host to many servers, or to many
// clients; a server that is to die or to vanish has a machine of its own.
//
//   1. all clients connect, and call for `seconds`
//   2. `killed` servers die at once, as processes do, of whose end the kernel tells; `seconds`
//   3. `vanished` servers' hosts are cut off: what is sent there is lost, and nobody tells;
//      `seconds`
//   4. `failing` servers answer each call with an error, at once; the clients call more often, for
//      `seconds`; then the servers are well again
//   5. `hung` servers take calls and never answer, which is as long and as often; then they answer
//   6. a list without `drained` servers reaches each client; half of `seconds`
//   7. `restarted` servers shut down with grace, one after the other, and each serves again at its
//      address; half of `seconds`, or longer if that takes longer
//
// Threads: one. Lifetime: RunFleet() leaves nothing behind; a file for clients to watch is in a
//   folder of its own, in that for temporary files, meanwhile.
// Errors: INVALID_ARGUMENT names the option; a run that does not come to its end says where it is;
//   what the system says of the file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "rpc/client/balancing.h"

namespace weft::bench {

// How often a client looks at the file, with FleetNaming::kFile: soon beside the length of a phase,
// and seldom beside what else it does.
inline constexpr uint64_t kFleetRefreshUs = 500'000;

// How clients find servers.
enum class FleetNaming : uint8_t {
  kList = 1,  // SetServers() tells each of them
  kFile = 2,  // each watches a file that names them, the target "file:"
};

struct FleetOptions {
  uint32_t servers = 1000;
  uint32_t clients = 10'000;
  uint32_t part = 20;  // servers that each client connects to: BalancingOptions::max_servers
  BalancingPolicy policy = BalancingPolicy::kLeastLoaded;
  FleetNaming naming = FleetNaming::kList;
  double calls_per_s = 2;  // of each client, at random times
  // While servers fail or hang: so often that a client meets one of them several times.
  double busy_calls_per_s = 40;
  double seconds = 5;             // of virtual time, each phase
  uint32_t service_us = 5000;     // what a call takes at a server, in the mean
  uint32_t timeout_us = 200'000;  // of a call
  uint32_t outstanding = 8;       // calls of one client at one server: beyond, it has no room
  bool ejection = true;           // as EjectionOptions stand; false: no server is ejected
  uint64_t peer_timeout_us = 3'000'000;  // LinkOptions::peer_timeout_ns, as that stands
  uint32_t killed = 10;
  uint32_t vanished = 10;
  uint32_t failing = 10;
  uint32_t hung = 10;
  uint32_t drained = 10;
  uint32_t restarted = 10;
  // kConsistentHash: each call is about one of these, at random, which are the same for all
  // clients.
  uint32_t keys = 100;
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
  uint64_t moved = 0;    // kConsistentHash: that another server has answered than the last one of
                         // the same client and key
};

// What servers that fail, or hang, got meanwhile.
struct FleetTrouble {
  double calls_first_s = 0;  // of one of them, from all clients, in the first second
  double calls_last_s = 0;   // in the last second of the phase
  uint64_t ejections = 0;    // by all clients' channels
};

struct FleetFigures {
  uint64_t connections = 0;
  uint32_t fewest_clients = 0;  // of one server
  uint32_t most_clients = 0;
  double connected_ms = 0;  // virtual time until all clients have all their connections
  FleetPhase steady;
  FleetPhase killed;
  double last_client_knew_ms = 0;  // after the deaths: then no client's channel chooses a dead one
  FleetPhase vanished;
  // After the hosts have vanished: then no client's channel chooses one of them.
  double last_client_gave_up_ms = 0;
  FleetPhase failing;
  FleetTrouble of_failing;
  FleetPhase hung;
  FleetTrouble of_hung;
  FleetPhase drained;
  double last_drained_ms = 0;  // until no client has a connection to a server that left the list
  FleetPhase restarted;
  double longest_shutdown_ms = 0;    // Server::Shutdown(), whose grace is kFleetGraceUs
  uint64_t running_at_shutdown = 0;  // calls, when their server began to shut down
  // Calls that had left when their server said goodbye, and did not run there.
  uint64_t refused_by_shutdown = 0;
  uint64_t cut_by_shutdown = 0;     // calls that ran, and whose connection was gone at their end
  uint64_t fewest_calls_again = 0;  // of a restarted server, since it serves again
  uint64_t trace_hash = 0;          // of all events
};

absl::StatusOr<FleetFigures> RunFleet(const FleetOptions& options);

// For people, with a line for each figure.
std::string FleetText(const FleetOptions& options, const FleetFigures& figures);

}  // namespace weft::bench
