#include "bench/scale/servers.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/ends/call_loops.h"
#include "bench/perf/ends/echo_service.h"
#include "bench/perf/ends/polled_server.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/operation/on_engine.h"
#include "rpc/server/server.h"
#include "transport/network.h"

namespace weft::bench {
namespace {

constexpr std::array<uint32_t, 3> kEngines = {1, 2, 4};
// Of one engine's processor time for a call.
constexpr double kMostGrowth = 1.05;
constexpr uint32_t kCallBytes = 64;
constexpr uint32_t kOutstanding = 64;
constexpr uint64_t kMostEveningNs = 60 * kNsPerSec;  // then something is wrong

struct Cost {
  double cpu_ns = 0;  // of one call
  double per_s = 0;
};

uint64_t ProcessCpuNs() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSec + static_cast<uint64_t>(time.tv_nsec);
}

void SleepFor(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// One client, whose calls go on by themselves.
class Load {
 public:
  absl::Status Open(const std::string& address, PathKind path, int cpu) {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kOwnThread;
    options.spin_ns = 0;
    options.cpu = cpu;
    WEFT_ASSIGN_OR_RETURN(engine_, OpenNetworkEngine(options));
    ChannelOptions channel;
    channel.link = OnlyPath(path);
    WEFT_ASSIGN_OR_RETURN(channel_, Channel::Open(*engine_, address, channel));
    stub_ = std::make_unique<Perf::Stub>(*channel_);
    calls_ = std::make_unique<CallLoops>(stub_.get(), kOutstanding, kCallBytes);
    return absl::OkStatus();
  }
  void Start() {
    RunOnEngine(CoreOf(*engine_), [this] { calls_->Start(); });
  }
  uint64_t Finished() {
    uint64_t finished = 0;
    RunOnEngine(CoreOf(*engine_), [&] { finished = calls_->finished(); });
    return finished;
  }
  absl::Status Stop() {
    RunOnEngine(CoreOf(*engine_), [this] { calls_->Stop(); });
    for (bool idle = false; !idle;) {
      RunOnEngine(CoreOf(*engine_), [&] { idle = calls_->idle(); });
      if (!idle) std::this_thread::yield();
    }
    return calls_->status();
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Perf::Stub> stub_;
  std::unique_ptr<CallLoops> calls_;
};

uint64_t FinishedBy(std::vector<Load>* loads) {
  uint64_t finished = 0;
  for (Load& load : *loads) finished += load.Finished();
  return finished;
}

// How the engines that answer are spread over servers.
struct Shape {
  uint32_t servers = 1;
  uint32_t engines = 1;  // of each server
};

absl::StatusOr<std::unique_ptr<Server>> EchoServerWith(uint32_t engines, PathKind path,
                                                       const std::array<int, 2>& cpus,
                                                       EchoService* service) {
  ServerOptions options;
  options.link = OnlyPath(path);
  options.engines = engines;
  options.max_sessions = 0;
  options.spin_ns = 0;
  for (uint32_t i = 0; i < engines; ++i) options.cpus.push_back(cpus[i % 2]);
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Create(options));
  WEFT_RETURN_IF_ERROR(server->AddService(service));
  WEFT_RETURN_IF_ERROR(server->Listen(kAnyPort));
  return server;
}

absl::StatusOr<Cost> CostWith(Shape shape, PathKind path, const std::array<int, 2>& cpus,
                              const ScaleOptions& options) {
  EchoService service;
  std::vector<std::unique_ptr<Server>> servers(shape.servers);
  std::vector<Load> loads(shape.servers * shape.engines);
  for (size_t i = 0; i < loads.size(); ++i) {
    std::unique_ptr<Server>& server = servers[i / shape.engines];
    if (server == nullptr) {
      WEFT_ASSIGN_OR_RETURN(server, EchoServerWith(shape.engines, path, cpus, &service));
    }
    WEFT_RETURN_IF_ERROR(loads[i].Open(server->address(), path, cpus[(i + 1) % 2]));
  }
  for (const std::unique_ptr<Server>& server : servers) {
    for (const ServerStats& stats : server->stats_by_engine()) {
      if (stats.connections == 1) continue;
      return absl::InternalError("the clients are not spread evenly over the server's engines");
    }
  }
  for (Load& load : loads) load.Start();
  SleepFor(options.seconds * kWarmUpShare);
  const uint64_t start_ns = Clock::Real().NowNs();
  const uint64_t start_cpu_ns = ProcessCpuNs();
  const uint64_t before = FinishedBy(&loads);
  SleepFor(options.seconds);
  const auto calls = static_cast<double>(FinishedBy(&loads) - before);
  const auto cpu_ns = static_cast<double>(ProcessCpuNs() - start_cpu_ns);
  const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
  absl::Status status;
  for (Load& load : loads) status.Update(load.Stop());
  WEFT_RETURN_IF_ERROR(status);
  if (calls == 0) return absl::InternalError("no call has ended");
  return Cost{cpu_ns / calls, calls * kNsPerSec / elapsed_ns};
}

absl::Status MeasurePath(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  const std::array<int, 2> together = {options.server_cpu, options.server_cpu};
  const std::array<int, 2> apart = {options.server_cpu, options.client_cpu};
  std::array<std::vector<double>, kEngines.size()> costs, rates, growths, shared;
  for (int round = 0; round < options.rounds; ++round) {
    double of_one = 0;
    for (size_t i = 0; i < kEngines.size(); ++i) {
      const Shape one_server = {.servers = 1, .engines = kEngines[i]};
      WEFT_ASSIGN_OR_RETURN(const Cost cost, CostWith(one_server, path, together, options));
      WEFT_ASSIGN_OR_RETURN(const Cost spread, CostWith(one_server, path, apart, options));
      if (i == 0) of_one = cost.cpu_ns;
      costs[i].push_back(cost.cpu_ns);
      rates[i].push_back(spread.per_s / 1e6);
      growths[i].push_back(cost.cpu_ns / of_one);
      if (i == 0) continue;
      const Shape many = {.servers = kEngines[i], .engines = 1};
      WEFT_ASSIGN_OR_RETURN(const Cost alone, CostWith(many, path, together, options));
      shared[i].push_back(cost.cpu_ns / alone.cpu_ns);
    }
  }
  const std::string name(PathKindName(path));
  for (size_t i = 0; i < kEngines.size(); ++i) {
    const std::string stem = StrCat("scale.", name, ".server_engines_", kEngines[i], ".");
    const std::string what =
        StrCat(name, ": a server with ", kEngines[i], kEngines[i] == 1 ? " engine" : " engines");
    report->Add({stem + "Mper_s", StrCat(what, ": calls"), MedianOf(rates[i]), "M/s", {}, {}});
    report->Add({stem + "cpu_ns",
                 StrCat(what, ": processor time of a call, both sides"),
                 MedianOf(costs[i]),
                 "ns",
                 {},
                 {}});
    if (i == 0) continue;
    report->Add({stem + "cpu_ratio",
                 StrCat(what, ": the same / with one engine"),
                 MedianOf(growths[i]),
                 "",
                 kMostGrowth,
                 {}});
    report->Add({stem + "shared_ratio",
                 StrCat(what, ": the same / with ", kEngines[i], " servers of one engine"),
                 MedianOf(shared[i]),
                 "",
                 kMostGrowth,
                 {}});
  }
  return absl::OkStatus();
}

// --- uneven connections ------------------------------------------------------------------------

struct Evening {
  double per_s = 0;
  double after_ms = 0;  // until the engines were even
  uint32_t fuller = 0;  // connections of the engine that has more
};

// The clients of one of two engines leave, and the others' go on.
absl::StatusOr<Evening> EvenAfter(uint64_t rebalance_us, PathKind path,
                                  const std::array<int, 2>& cpus, const ScaleOptions& options) {
  constexpr size_t kClients = 8;  // of each engine
  EchoService service;
  ServerOptions server_options;
  server_options.link = OnlyPath(path);
  server_options.engines = 2;
  server_options.max_sessions = 0;
  server_options.spin_ns = 0;
  server_options.cpus = {cpus[0], cpus[1]};
  server_options.rebalance_us = rebalance_us;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Create(server_options));
  WEFT_RETURN_IF_ERROR(server->AddService(&service));
  WEFT_RETURN_IF_ERROR(server->Listen(kAnyPort));
  // One after the other: every second one is the second engine's.
  std::vector<Load> loads(2 * kClients);
  for (size_t i = 0; i < loads.size(); ++i) {
    WEFT_RETURN_IF_ERROR(loads[i].Open(server->address(), path, cpus[i % 2]));
  }
  std::vector<Load> staying;
  for (size_t i = 0; i < loads.size(); i += 2) staying.push_back(std::move(loads[i]));
  loads.clear();
  for (Load& load : staying) load.Start();
  const auto fuller = [&] {
    const std::vector<ServerStats> stats = server->stats_by_engine();
    return std::max(stats[0].connections, stats[1].connections);
  };
  const uint64_t left_ns = Clock::Real().NowNs();
  // A client that moves has two connections for a while: even is what stays so.
  const auto all = [&] { return server->stats().connections; };
  while (rebalance_us != 0 && (fuller() > kClients / 2 + 1 || all() > kClients)) {
    SleepFor(/*seconds=*/0.001);
    if (Clock::Real().NowNs() - left_ns > kMostEveningNs) {
      return absl::DeadlineExceededError("the engines have not become even");
    }
  }
  Evening evening;
  evening.after_ms = static_cast<double>(Clock::Real().NowNs() - left_ns) / 1e6;
  SleepFor(options.seconds * kWarmUpShare);
  const uint64_t start_ns = Clock::Real().NowNs();
  const uint64_t before = FinishedBy(&staying);
  SleepFor(options.seconds);
  const auto calls = static_cast<double>(FinishedBy(&staying) - before);
  evening.per_s = calls * kNsPerSec / static_cast<double>(Clock::Real().NowNs() - start_ns);
  evening.fuller = fuller();
  absl::Status status;
  for (Load& load : staying) status.Update(load.Stop());
  WEFT_RETURN_IF_ERROR(status);
  return evening;
}

absl::Status MeasureUneven(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  const std::array<int, 2> apart = {options.server_cpu, options.client_cpu};
  constexpr uint64_t kRebalanceUs = 50'000;  // a twentieth of the default, for the report's time
  std::vector<double> uneven, even, ratios, times, fuller;
  for (int round = 0; round < options.rounds; ++round) {
    WEFT_ASSIGN_OR_RETURN(const Evening without, EvenAfter(0, path, apart, options));
    WEFT_ASSIGN_OR_RETURN(const Evening with, EvenAfter(kRebalanceUs, path, apart, options));
    uneven.push_back(without.per_s / 1e6);
    even.push_back(with.per_s / 1e6);
    ratios.push_back(with.per_s / without.per_s);
    times.push_back(with.after_ms);
    fuller.push_back(with.fuller);
  }
  const std::string name(PathKindName(path));
  const std::string stem = StrCat("scale.", name, ".uneven.");
  const std::string what = StrCat(name, ": two engines, and one's clients have left: ");
  report->Add({stem + "fuller",
               what + "connections of the fuller of both, of 8, after",
               MedianOf(fuller),
               "",
               {},
               {}});
  report->Add({stem + "even_ms",
               what + "until they are even, looks 50 ms apart",
               MedianOf(times),
               "ms",
               {},
               {}});
  report->Add({stem + "Mper_s", what + "calls, uneven", MedianOf(uneven), "M/s", {}, {}});
  report->Add({stem + "even_Mper_s", what + "calls, even again", MedianOf(even), "M/s", {}, {}});
  report->Add({stem + "ratio", what + "even / uneven", MedianOf(ratios), "", {}, {}});
  return absl::OkStatus();
}

}  // namespace

void MeasureServers(const ScaleOptions& options, ScaleReport* report) {
  for (const PathKind path : options.paths) {
    absl::Status status = MeasurePath(path, options, report);
    if (status.ok()) status = MeasureUneven(path, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("servers, ", PathKindName(path), ": ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
