// weft_fleet: a simulated fleet of servers and clients, for ./dev fleet (fleet.h);
// weft_fleet evenness: how evenly each policy spreads much load over it (evenness.h).

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/fleet/evenness.h"
#include "bench/fleet/fleet.h"

namespace {

using weft::bench::EvennessOptions;
using weft::bench::FleetChoice;
using weft::bench::FleetOptions;

const FleetOptions kDefaults;
const EvennessOptions kOfEvenness;

}  // namespace

ABSL_FLAG(uint32_t, servers, kDefaults.servers, "servers");
ABSL_FLAG(uint32_t, clients, kDefaults.clients, "clients");
ABSL_FLAG(uint32_t, part, kDefaults.part, "servers that a client connects to");
ABSL_FLAG(std::string, policy, "least_loaded", "round_robin, least_loaded or consistent_hash");
ABSL_FLAG(std::string, naming, "list", "how clients find servers: by a list or by a watched file");
ABSL_FLAG(double, calls_per_s, kDefaults.calls_per_s, "calls of each client in a second");
ABSL_FLAG(double, busy_calls_per_s, kDefaults.busy_calls_per_s, "those while servers fail or hang");
ABSL_FLAG(double, seconds, kDefaults.seconds, "virtual time of each phase");
ABSL_FLAG(bool, ejection, kDefaults.ejection, "servers that keep failing are ejected");
ABSL_FLAG(uint64_t, peer_timeout_us, kDefaults.peer_timeout_us,
          "silence until a client gives a server up");
ABSL_FLAG(uint32_t, killed, kDefaults.killed, "servers that die");
ABSL_FLAG(uint32_t, vanished, kDefaults.vanished, "servers whose hosts are cut off");
ABSL_FLAG(uint32_t, failing, kDefaults.failing, "servers that answer with errors");
ABSL_FLAG(uint32_t, hung, kDefaults.hung, "servers that never answer any more");
ABSL_FLAG(uint32_t, drained, kDefaults.drained, "servers that leave the list");
ABSL_FLAG(uint32_t, restarted, kDefaults.restarted, "servers that shut down and serve again");
ABSL_FLAG(uint32_t, keys, kDefaults.keys, "with consistent_hash: what calls are about");
ABSL_FLAG(uint64_t, seed, kDefaults.seed, "of all that is random");

ABSL_FLAG(double, load, kOfEvenness.load, "evenness: of what the servers can do");
ABSL_FLAG(uint32_t, workers, kOfEvenness.workers, "evenness: calls that a server does at a time");
ABSL_FLAG(uint32_t, service_us, kOfEvenness.service_us, "evenness: what each call takes there");

namespace {

// 2: what was asked for makes no sense; 1: it went wrong.
int Failed(const absl::Status& why) {
  std::cerr << why << std::endl;
  return absl::IsInvalidArgument(why) ? 2 : 1;
}

// With each choice of servers, one after the other.
int CompareEvenness() {
  EvennessOptions options;
  options.servers = absl::GetFlag(FLAGS_servers);
  options.clients = absl::GetFlag(FLAGS_clients);
  options.part = absl::GetFlag(FLAGS_part);
  options.load = absl::GetFlag(FLAGS_load);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.service_us = absl::GetFlag(FLAGS_service_us);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.seed = absl::GetFlag(FLAGS_seed);
  std::cout << EvennessHead(options);
  for (const FleetChoice choice : {FleetChoice::kRandom, FleetChoice::kRoundRobin,
                                   FleetChoice::kLeastLoaded, FleetChoice::kConsistentHash}) {
    options.choice = choice;
    const auto figures = RunEvenness(options);
    if (!figures.ok()) return Failed(figures.status());
    std::cout << EvennessText(options, *figures) << std::flush;
  }
  return 0;
}

int SimulateFleet() {
  FleetOptions options;
  options.servers = absl::GetFlag(FLAGS_servers);
  options.clients = absl::GetFlag(FLAGS_clients);
  options.part = absl::GetFlag(FLAGS_part);
  options.calls_per_s = absl::GetFlag(FLAGS_calls_per_s);
  options.busy_calls_per_s = absl::GetFlag(FLAGS_busy_calls_per_s);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.ejection = absl::GetFlag(FLAGS_ejection);
  options.peer_timeout_us = absl::GetFlag(FLAGS_peer_timeout_us);
  options.killed = absl::GetFlag(FLAGS_killed);
  options.vanished = absl::GetFlag(FLAGS_vanished);
  options.failing = absl::GetFlag(FLAGS_failing);
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
  const auto figures = RunFleet(options);
  if (!figures.ok()) return Failed(figures.status());
  std::cout << FleetText(options, *figures);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() == 1) return SimulateFleet();
  if (words.size() == 2 && std::string(words[1]) == "evenness") return CompareEvenness();
  std::cerr << "usage: weft_fleet [evenness] [--servers=N ...]" << std::endl;
  return 2;
}
