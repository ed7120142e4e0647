#include "bench/scale/connections.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/scale/echo_server.h"
#include "bench/scale/process_usage.h"
#include "bench/scale/round_trips.h"
#include "bench/scale/socket_ping.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr double kMostRatio = 1.3;
constexpr double kMostKibPerConnection = 64;
constexpr double kBytesPerKib = 1024;
// A little more than fits: those that close while others open.
constexpr uint32_t kSpareConnections = 16;

// A server, and all connections to it.
struct Group {
  std::unique_ptr<EchoServer> server;
  std::unique_ptr<Clients> clients;
};

absl::StatusOr<Group> OpenGroup(PathKind path, uint32_t connections, int server_cpu) {
  EchoServerOptions server;
  server.path = path;
  server.cpu = server_cpu;
  server.max_connections = connections + kSpareConnections;
  Group group;
  WEFT_ASSIGN_OR_RETURN(group.server, EchoServer::Start(server));
  WEFT_ASSIGN_OR_RETURN(
      Clients clients,
      Clients::Open({.drive = EngineOptions::Drive::kCaller, .spin_ns = kSpinForever}, path));
  group.clients = std::make_unique<Clients>(std::move(clients));
  return group;
}

absl::Status Connect(Group& group, uint32_t connections) {
  WEFT_RETURN_IF_ERROR(group.server->Serve());
  WEFT_RETURN_IF_ERROR(group.clients->Connect(group.server->address(), connections));
  // What a connection allocates with its first call is counted, too.
  WEFT_RETURN_IF_ERROR(group.clients->RoundTrips(/*seconds=*/0.2).status());
  return group.server->Rest(group.clients->channel(0));
}

// Round all connections, or over one of them.
absl::StatusOr<LatencyHistogram> Measure(Group& group, double seconds, bool only_one) {
  WEFT_RETURN_IF_ERROR(group.server->Serve());
  WEFT_ASSIGN_OR_RETURN(
      const LatencyHistogram latency,
      only_one ? group.clients->RoundTripsOverOne(seconds) : group.clients->RoundTrips(seconds));
  WEFT_RETURN_IF_ERROR(group.server->Rest(group.clients->channel(0)));
  return latency;
}

double P50Us(const LatencyHistogram& latency) {
  return static_cast<double>(latency.Percentile(50)) / 1e3;
}

// Of each of the connections that came in between.
void AddUsage(const std::string& metric, const std::string& what, const ProcessUsage& before,
              const ProcessUsage& after, uint32_t connections, ScaleReport* report) {
  const auto each = [&](uint64_t ProcessUsage::*part) {
    return (static_cast<double>(after.*part) - static_cast<double>(before.*part)) / connections;
  };
  report->Add({metric + "_resident_KiB",
               what + ", resident",
               each(&ProcessUsage::resident_bytes) / kBytesPerKib,
               "KiB",
               kMostKibPerConnection,
               {}});
  report->Add({metric + "_mapped_KiB",
               what + ", mapped",
               each(&ProcessUsage::mapped_bytes) / kBytesPerKib,
               "KiB",
               kMostKibPerConnection,
               {}});
  report->Add({metric + "_descriptors",
               what + ", descriptors",
               each(&ProcessUsage::descriptors),
               "",
               {},
               {}});
}

absl::Status MeasurePath(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  const std::string name(PathKindName(path));
  WEFT_ASSIGN_OR_RETURN(Group one, OpenGroup(path, 1, options.server_cpu));
  WEFT_RETURN_IF_ERROR(Connect(one, 1));

  // The first few bring what all share: pools, tables, the provider.
  const uint32_t first = options.connections / 10 + 1;
  const uint32_t further = options.connections - first;
  WEFT_ASSIGN_OR_RETURN(Group many, OpenGroup(path, options.connections, options.server_cpu));
  WEFT_RETURN_IF_ERROR(Connect(many, first));
  WEFT_ASSIGN_OR_RETURN(const ProcessUsage server_before, many.server->Usage());
  WEFT_ASSIGN_OR_RETURN(const ProcessUsage client_before, UsageOfThisProcess());
  WEFT_RETURN_IF_ERROR(Connect(many, further));
  WEFT_ASSIGN_OR_RETURN(const ProcessUsage server_after, many.server->Usage());
  WEFT_ASSIGN_OR_RETURN(const ProcessUsage client_after, UsageOfThisProcess());

  std::vector<double> one_us, many_us, active_us, ratios, active_ratios;
  for (int round = 0; round < options.rounds; ++round) {
    WEFT_ASSIGN_OR_RETURN(const LatencyHistogram of_one, Measure(one, options.seconds, false));
    WEFT_ASSIGN_OR_RETURN(const LatencyHistogram of_many, Measure(many, options.seconds, false));
    WEFT_ASSIGN_OR_RETURN(const LatencyHistogram active, Measure(many, options.seconds, true));
    one_us.push_back(P50Us(of_one));
    many_us.push_back(P50Us(of_many));
    active_us.push_back(P50Us(active));
    ratios.push_back(many_us.back() / one_us.back());
    active_ratios.push_back(active_us.back() / one_us.back());
  }
  const std::string stem = "scale." + name + ".";
  const std::string count = StrCat(options.connections, " connections");
  const auto add_us = [&](const char* metric, const std::string& what,
                          const std::vector<double>& values) {
    report->Add(
        {stem + metric, name + ": 64 B call, p50, " + what, MedianOf(values), "us", {}, {}});
  };
  add_us("one.p50_us", "one connection", one_us);
  add_us("many.p50_us", "round " + count, many_us);
  add_us("active.p50_us", "one that is used among " + count, active_us);
  report->Add({stem + "many.p50_ratio",
               name + ": the second / the first",
               MedianOf(ratios),
               "",
               kMostRatio,
               {}});
  report->Add({stem + "active.p50_ratio",
               name + ": the third / the first",
               MedianOf(active_ratios),
               "",
               {},
               {}});
  AddUsage(stem + "server", name + ": each connection, server", server_before, server_after,
           further, report);
  AddUsage(stem + "client", name + ": each connection, client", client_before, client_after,
           further, report);
  return absl::OkStatus();
}

// The same with nothing but sockets: what of it the kernel takes.
absl::Status MeasureSockets(const ScaleOptions& options, ScaleReport* report) {
  WEFT_ASSIGN_OR_RETURN(const auto one, SocketPing::Start(options.server_cpu, 1));
  WEFT_ASSIGN_OR_RETURN(const auto many,
                        SocketPing::Start(options.server_cpu, options.connections));
  const auto ask = [&](SocketPing& ping) -> absl::StatusOr<double> {
    ping.Serve();
    WEFT_ASSIGN_OR_RETURN(const LatencyHistogram latency, ping.Ask(options.seconds));
    ping.Rest();
    return P50Us(latency);
  };
  std::vector<double> one_us, many_us, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    WEFT_ASSIGN_OR_RETURN(const double of_one, ask(*one));
    WEFT_ASSIGN_OR_RETURN(const double of_many, ask(*many));
    one_us.push_back(of_one);
    many_us.push_back(of_many);
    ratios.push_back(of_many / of_one);
  }
  const std::string many_sockets = StrCat("tcp sockets: 64 B, p50, round ", options.connections);
  report->Add(
      {"scale.sockets.one.p50_us", "tcp sockets: 64 B, p50, one", MedianOf(one_us), "us", {}, {}});
  report->Add({"scale.sockets.many.p50_us", many_sockets, MedianOf(many_us), "us", {}, {}});
  report->Add({"scale.sockets.many.p50_ratio",
               "tcp sockets: the second / the first",
               MedianOf(ratios),
               "",
               {},
               {}});
  return absl::OkStatus();
}

}  // namespace

void MeasureConnections(const ScaleOptions& options, ScaleReport* report) {
  for (const PathKind path : options.paths) {
    const absl::Status status = MeasurePath(path, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("connections, ", PathKindName(path), ": ", ToStd(status.message())));
  }
  if (std::find(options.paths.begin(), options.paths.end(), PathKind::kTcp) == options.paths.end())
    return;
  if (const absl::Status status = MeasureSockets(options, report); !status.ok()) {
    report->Fail(StrCat("connections, sockets: ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
