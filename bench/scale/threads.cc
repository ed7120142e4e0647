#include "bench/scale/threads.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/machine/cpu.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/run_clock.h"
#include "bench/scale/echo_server.h"
#include "bench/scale/round_trips.h"
#include "core/cache_line.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "transport/engine.h"

namespace weft::bench {
namespace {

constexpr int kCounts[] = {1, 4, 16};
constexpr uint32_t kCallBytes = 64;
// Of a call that should take microseconds: an end of the wait for a server that hangs.
constexpr uint64_t kPatienceUs = 10'000'000;

using Drive = EngineOptions::Drive;
constexpr Drive kDrives[] = {Drive::kCaller, Drive::kOwnThread};

std::string NameOf(Drive drive) { return drive == Drive::kCaller ? "caller" : "own_thread"; }

// A thread that calls all the time, until it is told to stop or a call fails.
//
// Threads: one; finished() any. Lifetime: the destructor stops it.
class alignas(kCacheLineBytes) Caller {
 public:
  explicit Caller(Channel& channel) : thread_([this, &channel] { Run(channel); }) {}
  ~Caller() { Stop().IgnoreError(); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  uint64_t finished() const { return finished_.load(std::memory_order_relaxed); }
  absl::Status Stop() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  void Run(Channel& channel) {
    const Perf::Stub stub(channel);
    EchoMessage request, reply;
    request.set_payload(std::string(kCallBytes, 'x'));
    while (!stop_.load(std::memory_order_relaxed) && status_.ok()) {
      status_ = stub.Echo(request, &reply, {.timeout_us = kPatienceUs});
      finished_.store(finished() + 1, std::memory_order_relaxed);
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> finished_{0};  // those that failed, too: they end it all
  absl::Status status_;                // the thread's, until it is joined
  std::thread thread_;
};

// Calls per second of `count` threads together.
absl::StatusOr<double> RateOf(Channel& channel, int count, double seconds) {
  std::deque<Caller> callers;
  for (int i = 0; i < count; ++i) callers.emplace_back(channel);
  const auto finished = [&] {
    uint64_t sum = 0;
    for (const Caller& caller : callers) sum += caller.finished();
    return sum;
  };
  const auto rest = [](double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); };
  rest(seconds * kWarmUpShare);
  const uint64_t before = finished();
  const uint64_t start_ns = Clock::Real().NowNs();
  do {
    rest(seconds);
  } while (finished() == before);  // a call that hangs ends by its timeout, and counts
  const uint64_t ended = finished() - before;
  const uint64_t elapsed_ns = Clock::Real().NowNs() - start_ns;
  for (Caller& caller : callers) WEFT_RETURN_IF_ERROR(caller.Stop());
  return static_cast<double>(ended) * kNsPerSec / static_cast<double>(elapsed_ns);
}

absl::Status MeasureDrive(Drive drive, PathKind path, const ScaleOptions& options,
                          ScaleReport* report) {
  EchoServerOptions server_options;
  server_options.path = path;
  server_options.waiting = EchoServerOptions::Waiting::kAdaptive;
  server_options.cpu = options.server_cpu;
  WEFT_ASSIGN_OR_RETURN(const auto server, EchoServer::Start(server_options));
  WEFT_ASSIGN_OR_RETURN(Clients clients, Clients::Open({.drive = drive}, path));
  WEFT_RETURN_IF_ERROR(clients.Connect(server->address(), 1));
  std::map<int, std::vector<double>> rates;
  std::map<int, std::vector<double>> ratios;
  for (int round = 0; round < options.rounds; ++round) {
    double one = 0;
    for (const int count : kCounts) {
      WEFT_ASSIGN_OR_RETURN(const double rate, RateOf(clients.channel(0), count, options.seconds));
      if (count == 1) one = rate;
      rates[count].push_back(rate / 1e3);
      ratios[count].push_back(rate / one);
    }
  }
  const std::string stem = StrCat("scale.", PathKindName(path), ".threads.", NameOf(drive));
  const std::string whose = StrCat(
      PathKindName(path), drive == Drive::kCaller ? ", callers drive" : ", an engine's own thread");
  for (const int count : kCounts) {
    report->Add({StrCat(stem, "_", count, ".kper_s"),
                 StrCat(whose, ": calls of ", count, count == 1 ? " thread" : " threads"),
                 MedianOf(rates[count]),
                 "k/s",
                 {},
                 {}});
    if (count == 1) continue;
    report->Add({StrCat(stem, "_", count, ".ratio"),
                 StrCat(whose, ": of ", count, " threads / of one"),
                 MedianOf(ratios[count]),
                 "",
                 {},
                 {}});
  }
  return absl::OkStatus();
}

}  // namespace

void MeasureThreads(const ScaleOptions& options, ScaleReport* report) {
  // What is started by a thread may run where that thread may: the callers, and the engine.
  std::thread([&] {
    const absl::Status free = LimitThisThread({options.client_cpu, options.server_cpu});
    for (const PathKind path : options.paths) {
      for (const Drive drive : kDrives) {
        const absl::Status status = free.ok() ? MeasureDrive(drive, path, options, report) : free;
        if (status.ok()) continue;
        report->Fail(StrCat("threads, ", PathKindName(path), ", ", NameOf(drive), ": ",
                            ToStd(status.message())));
      }
    }
  }).join();
}

}  // namespace weft::bench
