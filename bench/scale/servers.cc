#include "bench/scale/servers.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
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
#include "core/cache_line.h"
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
// Of as many times one engine's calls in a second.
constexpr double kLeastScaling = 0.9;
// The leg with a word that all engines write is of so many: then each has a processor on any
// machine with two.
constexpr uint32_t kEnginesWithWord = 2;
constexpr uint32_t kCallBytes = 64;
constexpr uint32_t kOutstanding = 64;
constexpr uint64_t kMostNs = 60 * kNsPerSec;  // of a leg, or until engines are even

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
  // `server_engine`: which of the server's.
  absl::Status Open(const std::string& address, PathKind path, int cpu,
                    uint32_t server_engine = kAnyEngine) {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kOwnThread;
    options.spin_ns = 0;
    options.cpu = cpu;
    WEFT_ASSIGN_OR_RETURN(engine_, OpenNetworkEngine(options));
    ChannelOptions channel;
    channel.link = OnlyPath(path);
    channel.link.server_engine = server_engine;
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

// Calls that end in a leg, one at least: on a busy machine a short leg goes on until then.
absl::StatusOr<uint64_t> CountCalls(double seconds, std::vector<Load>* loads) {
  const uint64_t before = FinishedBy(loads);
  const uint64_t start_ns = Clock::Real().NowNs();
  while (true) {
    SleepFor(seconds);
    const uint64_t calls = FinishedBy(loads) - before;
    if (calls > 0) return calls;
    if (Clock::Real().NowNs() - start_ns > kMostNs) {
      return absl::DeadlineExceededError(StrCat("no call ended in ", kMostNs / kNsPerSec, " s"));
    }
  }
}

// Counts calls in one word, whatever engine they are on.
class CountingService final : public EchoService {
 public:
  absl::Status Echo(ServerContext& context, const EchoMessage& request,
                    EchoMessage* reply) override {
    count_.fetch_add(1, std::memory_order_relaxed);
    return EchoService::Echo(context, request, reply);
  }

 private:
  alignas(kCacheLineBytes) std::atomic<uint64_t> count_{0};
};

// How the engines that answer are spread over servers.
struct Shape {
  uint32_t servers = 1;
  uint32_t engines = 1;  // of each server
};

// The processors of pairs: the first is on the first of these, and when all have one it begins
// again.
using Cpus = std::vector<int>;

// The server of the pairs from `first_pair` on.
absl::StatusOr<std::unique_ptr<Server>> EchoServerWith(uint32_t engines, size_t first_pair,
                                                       PathKind path, const Cpus& cpus,
                                                       EchoService* service) {
  ServerOptions options;
  options.link = OnlyPath(path);
  options.engines = engines;
  options.max_sessions = 0;
  options.spin_ns = 0;
  for (uint32_t i = 0; i < engines; ++i) {
    options.cpus.push_back(cpus[(first_pair + i) % cpus.size()]);
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Create(options));
  WEFT_RETURN_IF_ERROR(server->AddService(service));
  WEFT_RETURN_IF_ERROR(server->Listen(kAnyPort));
  return server;
}

absl::StatusOr<Cost> CostWith(Shape shape, PathKind path, const Cpus& cpus, EchoService* service,
                              const ScaleOptions& options) {
  std::vector<std::unique_ptr<Server>> servers(shape.servers);
  std::vector<Load> loads(shape.servers * shape.engines);
  for (size_t i = 0; i < loads.size(); ++i) {
    std::unique_ptr<Server>& server = servers[i / shape.engines];
    if (server == nullptr) {
      WEFT_ASSIGN_OR_RETURN(server, EchoServerWith(shape.engines, i, path, cpus, service));
    }
    WEFT_RETURN_IF_ERROR(loads[i].Open(server->address(), path, cpus[i % cpus.size()],
                                       static_cast<uint32_t>(i % shape.engines)));
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
  const absl::StatusOr<uint64_t> counted = CountCalls(options.seconds, &loads);
  const auto cpu_ns = static_cast<double>(ProcessCpuNs() - start_cpu_ns);
  const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
  absl::Status status;
  for (Load& load : loads) status.Update(load.Stop());
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(counted.status());
  const auto calls = static_cast<double>(*counted);
  return Cost{cpu_ns / calls, calls * kNsPerSec / elapsed_ns};
}

// A server with several engines, and as many servers with one.
struct Compared {
  Cost one;
  Cost many;
};

absl::StatusOr<Compared> Compare(uint32_t engines, PathKind path, const Cpus& cpus, bool many_first,
                                 const ScaleOptions& options) {
  EchoService service;
  Compared compared;
  for (const bool is_many : {many_first, !many_first}) {
    const Shape shape =
        is_many ? Shape{.servers = engines, .engines = 1} : Shape{.servers = 1, .engines = engines};
    Cost& cost = is_many ? compared.many : compared.one;
    WEFT_ASSIGN_OR_RETURN(cost, CostWith(shape, path, cpus, &service, options));
  }
  return compared;
}

// What the rounds have of one number of engines.
struct Series {
  std::vector<double> cpu_ns, cpu_ratio, shared;  // all on one processor
  std::vector<double> spread_cpu_ns, spread_cpu_ratio, spread_shared, spread_word;
  std::vector<double> rate, rate_ratio, rate_shared;  // spread
};

// `of_one`: one pair. It has a processor of its own in any case.
absl::Status MeasureSeveral(uint32_t engines, const Cost& of_one, PathKind path, const Cpus& cpus,
                            bool many_first, const ScaleOptions& options, Series* series) {
  WEFT_ASSIGN_OR_RETURN(const Compared together,
                        Compare(engines, path, {cpus.front()}, many_first, options));
  series->cpu_ns.push_back(together.one.cpu_ns);
  series->cpu_ratio.push_back(together.one.cpu_ns / of_one.cpu_ns);
  series->shared.push_back(together.one.cpu_ns / together.many.cpu_ns);
  if (cpus.size() == 1) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Compared spread, Compare(engines, path, cpus, many_first, options));
  series->spread_cpu_ns.push_back(spread.one.cpu_ns);
  series->spread_cpu_ratio.push_back(spread.one.cpu_ns / of_one.cpu_ns);
  series->spread_shared.push_back(spread.one.cpu_ns / spread.many.cpu_ns);
  series->rate.push_back(spread.one.per_s / 1e6);
  series->rate_ratio.push_back(spread.one.per_s / (engines * of_one.per_s));
  series->rate_shared.push_back(spread.one.per_s / spread.many.per_s);
  if (engines != kEnginesWithWord) return absl::OkStatus();
  CountingService counting;
  const Shape one_server = {.servers = 1, .engines = engines};
  WEFT_ASSIGN_OR_RETURN(const Cost with_word, CostWith(one_server, path, cpus, &counting, options));
  series->spread_word.push_back(with_word.cpu_ns / spread.one.cpu_ns);
  return absl::OkStatus();
}

std::string EnginesOn(uint32_t engines, size_t cpus) {
  return StrCat(engines, engines == 1 ? " engine on " : " engines on ",
                cpus == 1 ? std::string("one processor") : StrCat(cpus, " processors"));
}

void AddTogether(const std::string& name, uint32_t engines, const Series& series,
                 ScaleReport* report) {
  const std::string stem = StrCat("scale.", name, ".server_engines_", engines, ".");
  const std::string what = StrCat(name, ": ", EnginesOn(engines, 1), ": ");
  report->Add({stem + "cpu_ns",
               what + "time of a call, both sides",
               MedianOf(series.cpu_ns),
               "ns",
               {},
               {}});
  if (engines == 1) return;
  report->Add({stem + "cpu_ratio",
               what + "the same / with one engine",
               MedianOf(series.cpu_ratio),
               "",
               kMostGrowth,
               {}});
  report->Add({stem + "shared_ratio",
               StrCat(what, "the same / with ", engines, " servers"),
               MedianOf(series.shared),
               "",
               kMostGrowth,
               {}});
}

// On `cpus` processors.
void AddSpread(const std::string& name, uint32_t engines, size_t cpus, const Series& series,
               ScaleReport* report) {
  const std::string stem = StrCat("scale.", name, ".server_engines_", engines, ".");
  // Where pairs take turns the caches are in the time of a call, and no rate can grow with them.
  const bool have_one_each = engines <= cpus;
  const std::string on = EnginesOn(engines, std::min<size_t>(engines, cpus));
  const std::string what = StrCat(name, ": ", on, have_one_each ? ": " : ", too few: ");
  const std::string servers = StrCat(engines, " servers");
  report->Add({stem + "Mper_s", what + "calls", MedianOf(series.rate), "M/s", {}, {}});
  if (engines == 1) return;
  ScaleRow rate_ratio = {stem + "rate_ratio",
                         StrCat(what, "the same / ", engines, " times that with one"),
                         MedianOf(series.rate_ratio),
                         "",
                         {},
                         {}};
  if (have_one_each) rate_ratio.at_least = kLeastScaling;
  report->Add(std::move(rate_ratio));
  report->Add({stem + "rate_shared_ratio",
               StrCat(what, "the same / with ", servers),
               MedianOf(series.rate_shared),
               "",
               {},
               {}});
  report->Add({stem + "spread_cpu_ns",
               what + "time of a call",
               MedianOf(series.spread_cpu_ns),
               "ns",
               {},
               {}});
  ScaleRow cpu_ratio = {stem + "spread_cpu_ratio",
                        what + "the same / with one engine",
                        MedianOf(series.spread_cpu_ratio),
                        "",
                        {},
                        {}};
  if (have_one_each) cpu_ratio.at_most = kMostGrowth;
  report->Add(std::move(cpu_ratio));
  report->Add({stem + "spread_shared_ratio",
               StrCat(what, "the same / with ", servers),
               MedianOf(series.spread_shared),
               "",
               kMostGrowth,
               {}});
  if (engines != kEnginesWithWord) return;
  report->Add({stem + "spread_word_ratio",
               what + "the same, with a shared word / without",
               MedianOf(series.spread_word),
               "",
               {},
               {}});
}

absl::Status MeasurePath(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  std::array<Series, kEngines.size()> series;
  Cpus cpus = options.cpus;
  for (int round = 0; round < options.rounds; ++round) {
    EchoService service;
    const Cpus first = {cpus.front()};
    WEFT_ASSIGN_OR_RETURN(const Cost of_one, CostWith(Shape{}, path, first, &service, options));
    series[0].cpu_ns.push_back(of_one.cpu_ns);
    series[0].rate.push_back(of_one.per_s / 1e6);
    for (size_t i = 1; i < kEngines.size(); ++i) {
      WEFT_RETURN_IF_ERROR(
          MeasureSeveral(kEngines[i], of_one, path, cpus, round % 2 == 1, options, &series[i]));
    }
    // Each processor in turn: they need not be equally fast.
    std::rotate(cpus.begin(), cpus.begin() + 1, cpus.end());
  }
  const std::string name(PathKindName(path));
  for (size_t i = 0; i < kEngines.size(); ++i) {
    AddTogether(name, kEngines[i], series[i], report);
    if (i == 0 || cpus.size() > 1) AddSpread(name, kEngines[i], cpus.size(), series[i], report);
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
    if (Clock::Real().NowNs() - left_ns > kMostNs) {
      return absl::DeadlineExceededError("the engines have not become even");
    }
  }
  Evening evening;
  evening.after_ms = static_cast<double>(Clock::Real().NowNs() - left_ns) / 1e6;
  SleepFor(options.seconds * kWarmUpShare);
  const uint64_t start_ns = Clock::Real().NowNs();
  const absl::StatusOr<uint64_t> calls = CountCalls(options.seconds, &staying);
  const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
  evening.fuller = fuller();
  absl::Status status;
  for (Load& load : staying) status.Update(load.Stop());
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(calls.status());
  evening.per_s = static_cast<double>(*calls) * kNsPerSec / elapsed_ns;
  return evening;
}

absl::Status MeasureUneven(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  const std::array<int, 2> apart = {options.server_cpu, options.client_cpu};
  constexpr uint64_t kRebalanceUs = 50'000;  // a twentieth of the default, for the report's time
  const uint64_t default_us = ServerOptions().rebalance_us;
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
  // Once: it takes seconds, and they are the looks'.
  WEFT_ASSIGN_OR_RETURN(const Evening by_default, EvenAfter(default_us, path, apart, options));
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
               StrCat(what, "until they are even, looks ", kRebalanceUs / 1000, " ms apart"),
               MedianOf(times),
               "ms",
               {},
               {}});
  report->Add({stem + "default_even_ms",
               StrCat(what, "the same, looks ", default_us / 1000, " ms apart (the default), once"),
               by_default.after_ms,
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
  if (options.cpus.size() < kEngines.back()) {
    report->Note(StrCat("servers: there are ", options.cpus.size(), " processors for ",
                        kEngines.back(), " engines: their rate is at most that of so many"));
  }
  for (const PathKind path : options.paths) {
    absl::Status status = MeasurePath(path, options, report);
    if (status.ok()) status = MeasureUneven(path, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("servers, ", PathKindName(path), ": ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
