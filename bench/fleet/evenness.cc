#include "bench/fleet/evenness.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/fleet/fleet_client.h"
#include "bench/fleet/fleet_server.h"
#include "core/check.h"
#include "core/histogram.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/server_choice.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft::bench {
namespace {

// Of a call: nobody gives up meanwhile.
constexpr uint32_t kTimeoutUs = 60'000'000;
constexpr uint64_t kMostConnectNs = 60 * kNsPerSec;

BalancingPolicy PolicyOf(FleetChoice choice) {
  switch (choice) {
    case FleetChoice::kRandom:
      break;
    case FleetChoice::kRoundRobin:
      return BalancingPolicy::kRoundRobin;
    case FleetChoice::kLeastLoaded:
      return BalancingPolicy::kLeastLoaded;
    case FleetChoice::kConsistentHash:
      return BalancingPolicy::kConsistentHash;
  }
  WEFT_CHECK(!"a policy");  // Ours: kRandom has none
  return BalancingPolicy::kRoundRobin;
}

class Evenness {
 public:
  explicit Evenness(const EvennessOptions& options)
      : options_(options),
        network_(options.seed, {.slot_bytes = kFleetSlotBytes}),
        random_(options.seed) {}
  ~Evenness() {
    for (const auto& client : clients_) client->Close();
    for (const auto& server : servers_) server->Stop();
  }

  absl::StatusOr<EvennessFigures> Run() {
    WEFT_RETURN_IF_ERROR(StartServers());
    WEFT_RETURN_IF_ERROR(OpenClients());
    WEFT_RETURN_IF_ERROR(Connect());
    for (const auto& client : clients_) client->Begin();
    network_.RunFor(kEvennessWarmUpNs);
    const auto latency = std::make_unique<LatencyHistogram>();
    const uint64_t failed_before = Failed();
    for (const auto& server : servers_) server->ResetLoad();
    for (const auto& client : clients_) client->RecordIn(latency.get());
    network_.RunFor(static_cast<uint64_t>(options_.seconds * 1e9));
    for (const auto& client : clients_) client->RecordIn(nullptr);
    EvennessFigures figures;
    figures.calls = latency->count();
    figures.failed = Failed() - failed_before;
    figures.p50_ms = static_cast<double>(latency->Percentile(50)) / 1e6;
    figures.p99_ms = static_cast<double>(latency->Percentile(99)) / 1e6;
    for (const auto& server : servers_) {
      figures.mean_here += server->mean_here() / options_.servers;
      figures.most_loaded = std::max(figures.most_loaded, server->mean_here());
      figures.most_here = std::max(figures.most_here, server->most_here());
    }
    figures.trace_hash = network_.trace_hash();
    return figures;
  }

 private:
  EngineCore& Machine(const std::string& kind, uint32_t number) {
    return CoreOf(network_.Node(StrCat(kind, "-", number % options_.machines)));
  }

  absl::Status StartServers() {
    const FleetWork work = {.service_us = options_.service_us,
                            .always_as_long = true,
                            .workers = options_.workers,
                            .outstanding = options_.outstanding};
    for (uint32_t i = 0; i < options_.servers; ++i) {
      servers_.push_back(
          std::make_unique<FleetServer>(Machine("servers", i), i, work, random_.Next64()));
      WEFT_RETURN_IF_ERROR(servers_.back()->Start());
      addresses_.push_back(servers_.back()->address());
    }
    return absl::OkStatus();
  }

  double CallsPerSecond() const {
    return options_.load * options_.servers * options_.workers * 1e6 / options_.service_us;
  }

  absl::Status OpenClients() {
    const ChannelOptions channel = FleetChannelOptions(options_.outstanding);
    for (uint32_t i = 0; i < options_.clients; ++i) {
      clients_.push_back(std::make_unique<FleetClient>(Machine("clients", i),
                                                       CallsPerSecond() / options_.clients,
                                                       kTimeoutUs, random_.Next64()));
      FleetClient& client = *clients_.back();
      if (options_.choice == FleetChoice::kRandom) {
        WEFT_RETURN_IF_ERROR(client.OpenEach(PartOf(i), channel));
        continue;
      }
      if (options_.choice == FleetChoice::kConsistentHash) client.UseNewKeys();
      BalancingOptions balancing;
      balancing.policy = PolicyOf(options_.choice);
      balancing.max_servers = options_.part;
      balancing.client_number = i;
      WEFT_RETURN_IF_ERROR(client.Open("list:", channel, balancing));
      std::vector<ListedServer> servers;
      for (const std::string& address : addresses_) servers.push_back({address});
      WEFT_RETURN_IF_ERROR(SetServers(client.channel(), std::move(servers)));
    }
    return absl::OkStatus();
  }

  // The servers that a balanced channel of that client would have.
  std::vector<std::string> PartOf(uint32_t client) const {
    const std::vector<std::string_view> all(addresses_.begin(), addresses_.end());
    std::vector<std::string> part;
    for (const uint32_t at : SubsetOf(all, options_.part, client)) part.push_back(addresses_[at]);
    return part;
  }

  absl::Status Connect() {
    if (options_.choice == FleetChoice::kRandom) return absl::OkStatus();  // OpenEach() has waited
    const uint64_t begin_ns = network_.clock().NowNs();
    for (const auto& client : clients_) {
      while (!IsConnected(*client)) {
        if (network_.clock().NowNs() - begin_ns > kMostConnectNs) {
          return absl::DeadlineExceededError(
              "a client of the fleet has no connection to one of its servers within a minute");
        }
        network_.RunFor(10 * kNsPerMs);
      }
    }
    return absl::OkStatus();
  }

  bool IsConnected(FleetClient& client) const {
    const std::vector<ServerFacts> facts = ServersOf(client.channel());
    return facts.size() == std::min(options_.part, options_.servers) &&
           std::all_of(facts.begin(), facts.end(),
                       [](const ServerFacts& one) { return one.state == ChannelState::kReady; });
  }

  uint64_t Failed() const {
    uint64_t failed = 0;
    for (const auto& client : clients_) failed += client->failed();
    return failed;
  }

  const EvennessOptions options_;
  SimNetwork network_;
  Random random_;
  std::vector<std::unique_ptr<FleetServer>> servers_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<FleetClient>> clients_;
};

absl::Status Check(const EvennessOptions& options) {
  const auto bounded = [](const char* name, double value, double least, double most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s is %g; %g to %g are possible", name, value, least, most));
  };
  WEFT_RETURN_IF_ERROR(bounded("servers", options.servers, 1, kMaxServersListed));
  WEFT_RETURN_IF_ERROR(bounded("clients", options.clients, 1, 1'000'000));
  WEFT_RETURN_IF_ERROR(bounded("part", options.part, 1, kMaxServers));
  WEFT_RETURN_IF_ERROR(bounded("load", options.load, 0.01, 0.99));
  WEFT_RETURN_IF_ERROR(bounded("workers", options.workers, 1, 1000));
  WEFT_RETURN_IF_ERROR(bounded("service_us", options.service_us, 100, 1'000'000));
  WEFT_RETURN_IF_ERROR(bounded("seconds", options.seconds, 0.1, 3600));
  WEFT_RETURN_IF_ERROR(bounded("outstanding", options.outstanding, 1, 4096));
  return bounded("machines", options.machines, 1, 1000);
}

}  // namespace

absl::StatusOr<EvennessFigures> RunEvenness(const EvennessOptions& options) {
  WEFT_RETURN_IF_ERROR(Check(options));
  return Evenness(options).Run();
}

std::string FleetChoiceName(FleetChoice choice) {
  switch (choice) {
    case FleetChoice::kRandom:
      return "random";
    case FleetChoice::kRoundRobin:
      return "round_robin";
    case FleetChoice::kLeastLoaded:
      return "least_loaded";
    case FleetChoice::kConsistentHash:
      return "consistent_hash";
  }
  return "?";
}

std::string EvennessHead(const EvennessOptions& options) {
  return absl::StrFormat(
      "%d servers with %d workers each, at work for %.0f %% of the time; %d clients with %d "
      "servers each; a call takes %.1f ms where no other one waits; seed %d\n",
      options.servers, options.workers, 100 * options.load, options.clients, options.part,
      options.service_us / 1e3, options.seed);
}

std::string EvennessText(const EvennessOptions& options, const EvennessFigures& figures) {
  return absl::StrFormat(
      "%-15s %8d calls, %d failed: p50 %.1f ms, p99 %.1f ms; at a server %.2f calls in the mean, "
      "%.2f at that with most (%.2f times), and %d at the most at one time (%.1f times)\n",
      FleetChoiceName(options.choice), figures.calls, figures.failed, figures.p50_ms,
      figures.p99_ms, figures.mean_here, figures.most_loaded,
      figures.most_loaded / figures.mean_here, figures.most_here,
      static_cast<double>(figures.most_here) / figures.mean_here);
}

}  // namespace weft::bench
