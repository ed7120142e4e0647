#include "bench/scale/engines.h"

#include <time.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/machine/cpu.h"
#include "bench/perf/ends/call_loops.h"
#include "bench/perf/ends/echo_service.h"
#include "bench/perf/ends/polled_server.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "transport/network.h"

namespace weft::bench {
namespace {

// Of twice one pair's rate.
constexpr double kLeastScaling = 0.9;
constexpr uint32_t kCallBytes = 64;
constexpr uint32_t kOutstanding = 64;
// Turns of both engines between two looks at the clock.
constexpr int kTurnsPerLook = 64;
constexpr uint64_t kMostLegNs = 60 * kNsPerSec;  // then something is wrong

// Of calls.
struct Rates {
  double per_s = 0;
  double per_cpu_s = 0;  // of the thread's processor time: what others run does not count
};

double PerSecond(uint64_t calls, uint64_t ns) {
  return static_cast<double>(calls) * kNsPerSec / static_cast<double>(ns);
}

uint64_t ThreadCpuNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSec + static_cast<uint64_t>(time.tv_nsec);
}

// A client's and a server's engine, driven by the thread that opened them.
class EnginePair {
 public:
  absl::Status Open(PathKind path) {
    ServerOptions server;
    server.link = OnlyPath(path);
    WEFT_ASSIGN_OR_RETURN(server_, PolledServer::Open(&service_, server));
    WEFT_ASSIGN_OR_RETURN(client_engine_,
                          OpenNetworkEngine({.drive = EngineOptions::Drive::kExternal}));
    ChannelOptions channel;
    channel.link = OnlyPath(path);
    channel.connect_at_once = false;
    WEFT_ASSIGN_OR_RETURN(channel_, Channel::Open(*client_engine_, server_.address(), channel));
    stub_ = std::make_unique<Perf::Stub>(*channel_);
    calls_ = std::make_unique<CallLoops>(stub_.get(), kOutstanding, kCallBytes);
    calls_->Start();
    // The first calls wait for the connection.
    while (calls_->finished() < kOutstanding && calls_->status().ok()) Turn();
    return calls_->status();
  }

  absl::StatusOr<Rates> Run(double seconds) {
    RunFor(seconds * kWarmUpShare);
    const uint64_t start_ns = Clock::Real().NowNs();
    const uint64_t start_cpu_ns = ThreadCpuNs();
    const uint64_t before = calls_->finished();
    uint64_t elapsed_ns = 0;
    // On a busy machine a short leg may be over before a call has ended.
    while (elapsed_ns == 0 ||
           (calls_->finished() == before && elapsed_ns < kMostLegNs && calls_->status().ok())) {
      RunFor(seconds);
      elapsed_ns = Clock::Real().NowNs() - start_ns;
    }
    const uint64_t cpu_ns = ThreadCpuNs() - start_cpu_ns;
    const uint64_t calls = calls_->finished() - before;
    WEFT_RETURN_IF_ERROR(calls_->status());
    if (calls == 0) {
      return absl::DeadlineExceededError(StrCat("no call ended in ", kMostLegNs / kNsPerSec, " s"));
    }
    return Rates{PerSecond(calls, elapsed_ns), PerSecond(calls, cpu_ns)};
  }

  void Close() {
    if (calls_ == nullptr) return;
    calls_->Stop();
    while (!calls_->idle()) Turn();
    channel_.reset();
    server_.server.reset();
  }

 private:
  void Turn() {
    client_engine_->Poll();
    server_.Poll();
  }
  void RunFor(double seconds) {
    const uint64_t end_ns =
        Clock::Real().NowNs() + static_cast<uint64_t>(seconds * static_cast<double>(kNsPerSec));
    while (Clock::Real().NowNs() < end_ns && calls_->status().ok()) {
      for (int i = 0; i < kTurnsPerLook; ++i) Turn();
    }
  }

  EchoService service_;
  PolledServer server_;
  std::unique_ptr<Engine> client_engine_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Perf::Stub> stub_;
  std::unique_ptr<CallLoops> calls_;
};

// Pairs that run at the same time, one for each of `cpus`: the sum of their rates, and the mean of
// those by processor time.
absl::StatusOr<Rates> RatesOf(const std::vector<int>& cpus, PathKind path, double seconds) {
  std::atomic<size_t> opened{0};
  std::vector<absl::StatusOr<Rates>> rates(cpus.size(), Rates{});
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cpus.size(); ++i) {
    threads.emplace_back([&, i] {
      EnginePair pair;
      absl::Status status = PinThisThread(cpus[i]);
      if (status.ok()) status = pair.Open(path);
      // All run, or none: the others' rates would be of an emptier machine.
      ++opened;
      while (opened.load() < cpus.size()) std::this_thread::yield();
      if (status.ok()) {
        rates[i] = pair.Run(seconds);
      } else {
        rates[i] = status;
      }
      pair.Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Rates all;
  for (const absl::StatusOr<Rates>& rate : rates) {
    WEFT_RETURN_IF_ERROR(rate.status());
    all.per_s += rate->per_s;
    all.per_cpu_s += rate->per_cpu_s / static_cast<double>(rates.size());
  }
  return all;
}

absl::Status MeasurePath(PathKind path, const std::vector<int>& cpus, const ScaleOptions& options,
                         ScaleReport* report) {
  std::vector<double> ones, twos, ratios, cpu_ratios;
  for (int round = 0; round < options.rounds; ++round) {
    // Each processor in turn: they need not be equally fast.
    const std::vector<int> alone = {cpus[static_cast<size_t>(round) % cpus.size()]};
    WEFT_ASSIGN_OR_RETURN(const Rates one, RatesOf(alone, path, options.seconds));
    WEFT_ASSIGN_OR_RETURN(const Rates two, RatesOf(cpus, path, options.seconds));
    ones.push_back(one.per_s / 1e6);
    twos.push_back(two.per_s / 1e6);
    ratios.push_back(two.per_s / (2 * one.per_s));
    cpu_ratios.push_back(two.per_cpu_s / one.per_cpu_s);
  }
  const std::string name(PathKindName(path));
  const std::string stem = "scale." + name + ".";
  report->Add({stem + "engines_1.Mper_s",
               name + ": calls of one pair of engines, one processor",
               MedianOf(ones),
               "M/s",
               {},
               {}});
  report->Add({stem + "engines_2.Mper_s",
               name + ": calls of two pairs, two processors",
               MedianOf(twos),
               "M/s",
               {},
               {}});
  report->Add({stem + "engines.scaling",
               name + ": two pairs / twice one pair",
               MedianOf(ratios),
               "",
               {},
               {}});
  report->Add({stem + "engines.cpu_scaling",
               name + ": the same by processor time, where others run, too",
               MedianOf(cpu_ratios),
               "",
               {},
               kLeastScaling});
  return absl::OkStatus();
}

}  // namespace

void MeasureEngines(const ScaleOptions& options, ScaleReport* report) {
  if (options.client_cpu == options.server_cpu) {
    report->Note("engines: skipped, there is one processor only");
    return;
  }
  const std::vector<int> cpus = {options.client_cpu, options.server_cpu};
  for (const PathKind path : options.paths) {
    const absl::Status status = MeasurePath(path, cpus, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("engines, ", PathKindName(path), ": ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
