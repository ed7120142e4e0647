// weft_fleet: a simulated fleet of servers and clients, for ./dev fleet (fleet.h).

#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/fleet/fleet.h"

namespace {

const weft::bench::FleetOptions kDefaults;

}  // namespace

ABSL_FLAG(uint32_t, servers, kDefaults.servers, "servers");
ABSL_FLAG(uint32_t, clients, kDefaults.clients, "clients");
ABSL_FLAG(uint32_t, part, kDefaults.part, "servers that a client connects to");
ABSL_FLAG(std::string, policy, "least_loaded", "round_robin, least_loaded or consistent_hash");
ABSL_FLAG(std::string, naming, "list", "how clients find servers: by a list or by a watched file");
ABSL_FLAG(double, calls_per_s, kDefaults.calls_per_s, "calls of each client in a second");
ABSL_FLAG(double, seconds, kDefaults.seconds, "virtual time of each phase");
ABSL_FLAG(uint32_t, killed, kDefaults.killed, "servers that die");
ABSL_FLAG(uint32_t, hung, kDefaults.hung, "servers that never answer any more");
ABSL_FLAG(uint32_t, drained, kDefaults.drained, "servers that leave the list");
ABSL_FLAG(uint32_t, restarted, kDefaults.restarted, "servers that shut down and serve again");
ABSL_FLAG(uint32_t, keys, kDefaults.keys, "with consistent_hash: what calls are about");
ABSL_FLAG(uint64_t, seed, kDefaults.seed, "of all that is random");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  weft::bench::FleetOptions options;
  options.servers = absl::GetFlag(FLAGS_servers);
  options.clients = absl::GetFlag(FLAGS_clients);
  options.part = absl::GetFlag(FLAGS_part);
  options.calls_per_s = absl::GetFlag(FLAGS_calls_per_s);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.killed = absl::GetFlag(FLAGS_killed);
  options.hung = absl::GetFlag(FLAGS_hung);
  options.drained = absl::GetFlag(FLAGS_drained);
  options.restarted = absl::GetFlag(FLAGS_restarted);
  options.keys = absl::GetFlag(FLAGS_keys);
  options.seed = absl::GetFlag(FLAGS_seed);
  const std::string policy = absl::GetFlag(FLAGS_policy);
  if (policy == "round_robin") {
    options.policy = weft::BalancingPolicy::kRoundRobin;
  } else if (policy == "consistent_hash") {
    options.policy = weft::BalancingPolicy::kConsistentHash;
  } else if (policy != "least_loaded") {
    std::cerr << "--policy is round_robin, least_loaded or consistent_hash" << std::endl;
    return 2;
  }
  const std::string naming = absl::GetFlag(FLAGS_naming);
  if (naming == "file") {
    options.naming = weft::bench::FleetNaming::kFile;
  } else if (naming != "list") {
    std::cerr << "--naming is list or file" << std::endl;
    return 2;
  }
  const auto figures = weft::bench::RunFleet(options);
  if (!figures.ok()) {
    std::cerr << figures.status() << std::endl;
    return absl::IsInvalidArgument(figures.status()) ? 2 : 1;
  }
  std::cout << weft::bench::FleetText(options, *figures);
  return 0;
}
