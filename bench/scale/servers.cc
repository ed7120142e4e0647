#include "bench/scale/servers.h"

#include <time.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
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

absl::StatusOr<Cost> CostWith(uint32_t engines, PathKind path, const std::array<int, 2>& cpus,
                              const ScaleOptions& options) {
  EchoService service;
  ServerOptions server_options;
  server_options.link = OnlyPath(path);
  server_options.engines = engines;
  server_options.max_sessions = 0;
  server_options.spin_ns = 0;
  for (uint32_t i = 0; i < engines; ++i) server_options.cpus.push_back(cpus[i % 2]);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Create(server_options));
  WEFT_RETURN_IF_ERROR(server->AddService(&service));
  WEFT_RETURN_IF_ERROR(server->Listen(kAnyPort));
  std::vector<Load> loads(engines);
  for (uint32_t i = 0; i < engines; ++i) {
    WEFT_RETURN_IF_ERROR(loads[i].Open(server->address(), path, cpus[(i + 1) % 2]));
  }
  for (const ServerStats& stats : server->stats_by_engine()) {
    if (stats.connections == 1) continue;
    return absl::InternalError("the clients are not spread evenly over the server's engines");
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
  std::array<std::vector<double>, kEngines.size()> costs, rates, growths;
  for (int round = 0; round < options.rounds; ++round) {
    double of_one = 0;
    for (size_t i = 0; i < kEngines.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const Cost cost, CostWith(kEngines[i], path, together, options));
      WEFT_ASSIGN_OR_RETURN(const Cost spread, CostWith(kEngines[i], path, apart, options));
      if (i == 0) of_one = cost.cpu_ns;
      costs[i].push_back(cost.cpu_ns);
      rates[i].push_back(spread.per_s / 1e6);
      growths[i].push_back(cost.cpu_ns / of_one);
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
  }
  return absl::OkStatus();
}

}  // namespace

void MeasureServers(const ScaleOptions& options, ScaleReport* report) {
  for (const PathKind path : options.paths) {
    const absl::Status status = MeasurePath(path, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("servers, ", PathKindName(path), ": ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
