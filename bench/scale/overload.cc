#include "bench/scale/overload.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "bench/machine/cpu.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/polled_server.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/operation/executor.h"
#include "rpc/server/server.h"
#include "transport/engine.h"

namespace weft::bench {
namespace {

constexpr double kLeastGoodput = 0.9;
constexpr double kMostP99Ratio = 3;
constexpr uint32_t kWorkers = 4;
// Long beside what it takes to wake a worker (some 60 us), short beside a leg.
constexpr std::chrono::microseconds kWork(2000);
// Who calls waits for so long: ten times what a call takes alone.
constexpr uint64_t kDeadlineUs = 20'000;
// A fixed limit that somebody has chosen well: each worker has one call, and one waits for it.
constexpr uint32_t kFixedLimit = 2 * kWorkers;
constexpr double kLoads[] = {1.0 / 3, 1, 3};
// At three times the load, what comes in a leg of the longest usual length (1 s) and its warm-up.
constexpr uint32_t kMostOutstanding = 4096;
// Before a leg, and not counted, in parts of it: queues fill, and limits find their places, which
// takes the adaptive one some hundred calls that are refused. No longer than a second.
constexpr double kWarmUp = 0.5;
constexpr double kWarmUpOfOverload = 4;
constexpr double kLongestWarmUpSeconds = 1;
// There are nine legs in a round.
constexpr int kMostRounds = 3;
// Of a leg: then something is wrong.
constexpr uint64_t kMostLegNs = 60 * kNsPerSec;
// Of what the workers can do: on a busy machine no call of a short leg may be answered in time.
constexpr int kMostTries = 10;

enum class Limit : uint8_t { kNone = 0, kFixed = 1, kAdaptive = 2 };
constexpr Limit kLimits[] = {Limit::kNone, Limit::kFixed, Limit::kAdaptive};
constexpr std::string_view kNames[] = {"unlimited", "fixed", "adaptive"};

// Waits out the work.
class Work final : public Perf::Service {
  absl::Status Echo(ServerContext&, const EchoMessage& request, EchoMessage* reply) override {
    std::this_thread::sleep_for(kWork);
    *reply = request;
    return absl::OkStatus();
  }
};

// Workers, and a queue without an end in front of them.
class Workers final : public Executor {
 public:
  explicit Workers(int cpu) {
    for (std::thread& thread : threads_) {
      thread = std::thread([this, cpu] {
        PinThisThread(cpu).IgnoreError();
        RunTasks();
      });
    }
  }
  ~Workers() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool Run(Function<void()> task) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return true;
  }

 private:
  void RunTasks() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      Function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Function<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;               // guarded by mutex_
  std::array<std::thread, kWorkers> threads_;
};

// What one leg has seen.
struct Leg {
  double goodput = 0;  // calls that were answered in time, in a second
  double p50_us = 0;   // of the calls that were not refused
  double p99_us = 0;
};

// Calls that come as they like: each at a time of its own, whatever became of the others.
class Callers {
 public:
  static absl::StatusOr<std::unique_ptr<Callers>> Open(const std::string& address, PathKind path) {
    auto callers = std::make_unique<Callers>();
    WEFT_ASSIGN_OR_RETURN(
        callers->engine_,
        OpenNetworkEngine({.drive = EngineOptions::Drive::kCaller, .spin_ns = kSpinForever}));
    ChannelOptions options;
    options.link = OnlyPath(path);
    options.max_outstanding_calls = kMostOutstanding;
    options.max_queued_calls = kMostOutstanding;
    WEFT_ASSIGN_OR_RETURN(callers->channel_, Channel::Open(*callers->engine_, address, options));
    callers->stub_ = std::make_unique<Perf::Stub>(*callers->channel_);
    return callers;
  }

  // `per_second` calls at random times, or, if it is 0, one after the other from `at_once` callers.
  absl::StatusOr<Leg> Run(double seconds, double warm_up, double per_second, uint32_t at_once = 0) {
    const uint64_t warm_up_ns = ToNs(std::min(seconds * warm_up, kLongestWarmUpSeconds));
    times_ = LatencyHistogram();
    served_ = 0;
    failure_ = absl::OkStatus();
    counted_from_ns_ = Clock::Real().NowNs() + warm_up_ns;
    counted_until_ns_ = counted_from_ns_ + ToNs(seconds);
    at_once_ = at_once;
    EngineCore& engine = CoreOf(*engine_);
    engine.Enter();
    for (uint32_t i = 0; i < at_once; ++i) Call();
    uint64_t next_ns = Clock::Real().NowNs();
    uint64_t now_ns = next_ns;
    for (; IsGoingOn(now_ns) && failure_.ok(); now_ns = Clock::Real().NowNs()) {
      while (per_second > 0 && next_ns <= now_ns) {
        next_ns += ToNs(-std::log(1 - random_.UniformDouble()) / per_second);
        if (outstanding_ < kMostOutstanding) Call();
      }
      engine.Poll();
    }
    at_once_ = 0;
    const uint64_t counted_ns = now_ns - counted_from_ns_;
    while (outstanding_ > 0) engine.Poll();
    engine.Leave();
    WEFT_RETURN_IF_ERROR(failure_);
    if (times_.count() == 0) {
      return absl::DeadlineExceededError(
          StrCat("no call ended but by a refusal, in ", kMostLegNs / kNsPerSec, " s"));
    }
    return Leg{static_cast<double>(served_) * 1e9 / static_cast<double>(counted_ns),
               static_cast<double>(times_.Percentile(50)) / 1e3,
               static_cast<double>(times_.Percentile(99)) / 1e3};
  }

 private:
  struct Lane {
    EchoMessage request;
    EchoMessage reply;
    uint64_t from_ns = 0;
  };

  // A leg ends with a call that counts, however late: a busy machine may end none in a short one.
  // Where all are refused none counts.
  bool IsGoingOn(uint64_t now_ns) const {
    if (times_.count() == 0) return now_ns < counted_until_ns_ + kMostLegNs;
    return now_ns < counted_until_ns_;
  }

  static uint64_t ToNs(double seconds) { return static_cast<uint64_t>(seconds * 1e9); }

  void Call() {
    ++outstanding_;
    if (spare_.empty()) {
      lanes_.push_back(std::make_unique<Lane>());
      lanes_.back()->request.set_payload(std::string(64, 'o'));
      spare_.push_back(lanes_.back().get());
    }
    Lane* const lane = spare_.back();
    spare_.pop_back();
    lane->from_ns = Clock::Real().NowNs();
    stub_->Echo(lane->request, &lane->reply, {.timeout_us = kDeadlineUs},
                [this, lane](const absl::Status& status) { Ended(*lane, status); });
  }

  void Ended(Lane& lane, const absl::Status& status) {
    --outstanding_;
    spare_.push_back(&lane);
    const uint64_t now_ns = Clock::Real().NowNs();
    if (now_ns >= counted_from_ns_ && IsGoingOn(now_ns)) Count(status, now_ns - lane.from_ns);
    if (at_once_ > 0) Call();
  }

  void Count(const absl::Status& status, uint64_t took_ns) {
    if (absl::IsResourceExhausted(status)) return;
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) failure_.Update(status);
    served_ += status.ok();
    times_.Record(took_ns);
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Perf::Stub> stub_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Lane*> spare_;
  Random random_{1};
  LatencyHistogram times_;
  uint64_t served_ = 0;
  uint64_t counted_from_ns_ = 0;
  uint64_t counted_until_ns_ = 0;
  uint32_t outstanding_ = 0;
  uint32_t at_once_ = 0;
  absl::Status failure_;
};

// A server with that limit, and its callers. Those go first.
struct Pair {
  std::unique_ptr<Work> work;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Server> server;
  std::unique_ptr<Callers> callers;
};

absl::StatusOr<Pair> OpenPair(Limit limit, PathKind path, const ScaleOptions& options) {
  Pair pair;
  pair.work = std::make_unique<Work>();
  pair.workers = std::make_unique<Workers>(options.server_cpu);
  ServerOptions server;
  server.link = OnlyPath(path);
  server.cpu = options.server_cpu;
  server.spin_ns = 0;
  server.executor = pair.workers.get();
  server.max_outstanding_calls = kMostOutstanding;
  if (limit == Limit::kFixed) server.limits.per_method = {{"weft.bench.Perf/Echo", kFixedLimit}};
  server.limits.adaptive = limit == Limit::kAdaptive;
  WEFT_ASSIGN_OR_RETURN(pair.server, Server::Create(server));
  WEFT_RETURN_IF_ERROR(pair.server->AddService(pair.work.get()));
  WEFT_RETURN_IF_ERROR(pair.server->Listen(kAnyPort));
  WEFT_ASSIGN_OR_RETURN(pair.callers, Callers::Open(pair.server->address(), path));
  return pair;
}

// The results of all rounds, by limit and load.
using Legs = std::array<std::array<std::vector<Leg>, std::size(kLoads)>, std::size(kLimits)>;

double MedianOver(const std::vector<Leg>& legs, double Leg::*figure) {
  std::vector<double> values;
  values.reserve(legs.size());
  for (const Leg& leg : legs) values.push_back(leg.*figure);
  return MedianOf(std::move(values));
}

absl::Status Measure(PathKind path, const ScaleOptions& options, Legs* legs) {
  double capacity = 0;
  for (int round = 0; round < std::min(options.rounds, kMostRounds); ++round) {
    for (size_t limit = 0; limit < std::size(kLimits); ++limit) {
      WEFT_ASSIGN_OR_RETURN(Pair pair, OpenPair(kLimits[limit], path, options));
      for (int i = 0; capacity == 0 && i < kMostTries; ++i) {
        WEFT_ASSIGN_OR_RETURN(const Leg busy,
                              pair.callers->Run(options.seconds, kWarmUp, 0, 2 * kWorkers));
        capacity = busy.goodput;
      }
      if (capacity == 0) return absl::UnavailableError("no call was answered in time");
      for (size_t load = 0; load < std::size(kLoads); ++load) {
        const double warm_up = kLoads[load] > 1 ? kWarmUpOfOverload : kWarmUp;
        WEFT_ASSIGN_OR_RETURN(const Leg leg,
                              pair.callers->Run(options.seconds, warm_up, kLoads[load] * capacity));
        (*legs)[limit][load].push_back(leg);
      }
    }
  }
  return absl::OkStatus();
}

std::string Bar(double part) {
  constexpr double kWidth = 40;
  return std::string(static_cast<size_t>(std::clamp(part, 0.0, 1.0) * kWidth + 0.5), '#');
}

void Report(const std::string& path, const Legs& legs, ScaleReport* report) {
  double peak = 0;
  for (const auto& of_limit : legs) {
    for (const auto& of_load : of_limit) peak = std::max(peak, MedianOver(of_load, &Leg::goodput));
  }
  if (peak == 0) return report->Fail(StrCat("overload, ", path, ": no call was answered in time"));
  const double unloaded_us = MedianOver(legs[0][0], &Leg::p99_us);
  const std::string stem = StrCat("scale.", path, ".overload.");
  report->Add(
      {stem + "peak_per_s", path + ": most calls that are answered in time", peak, "/s", {}, {}});
  report->Add({stem + "unloaded_p99_us",
               path + ": p99 at a third of the load, no limit",
               unloaded_us,
               "us",
               {},
               {}});
  report->Note(path +
               ": calls answered in time, of the most that can be, and p99 of those admitted");
  for (size_t limit = 0; limit < std::size(kLimits); ++limit) {
    const std::string name(kNames[limit]);
    const bool has_goals = kLimits[limit] == Limit::kAdaptive;
    for (size_t load = 0; load < std::size(kLoads); ++load) {
      const std::vector<Leg>& some = legs[limit][load];
      const double goodput = MedianOver(some, &Leg::goodput);
      const double p99_us = MedianOver(some, &Leg::p99_us);
      const std::string at = absl::StrFormat("%.1fx", kLoads[load]);
      const std::string here = StrCat(stem, name,
                                      load == 0   ? "_third"
                                      : load == 1 ? "_full"
                                                  : "_triple");
      report->Note(absl::StrFormat("  %-10s%5s  %-40s %5.1f %%  %8.2f ms", name, at,
                                   Bar(goodput / peak), 100 * goodput / peak, p99_us / 1e3));
      const bool is_overload = load + 1 == std::size(kLoads);
      const std::string what = StrCat(path, ": ", name, ", ", at, " load: ");
      ScaleRow part = {here + ".goodput", what + "goodput / peak", goodput / peak, "", {}, {}};
      ScaleRow ratio = {
          here + ".p99_ratio", what + "p99 / unloaded", p99_us / unloaded_us, "", {}, {}};
      if (has_goals && is_overload) {
        part.at_least = kLeastGoodput;
        ratio.at_most = kMostP99Ratio;
      }
      report->Add(std::move(part));
      report->Add(std::move(ratio));
      report->Add({here + ".p50_us", what + "p50", MedianOver(some, &Leg::p50_us), "us", {}, {}});
      report->Add({here + ".p99_us", what + "p99", p99_us, "us", {}, {}});
    }
  }
}

}  // namespace

void MeasureOverload(const ScaleOptions& options, ScaleReport* report) {
  const PathKind path = options.paths.front();
  const std::string name(PathKindName(path));
  Legs legs;
  const absl::Status status = Measure(path, options, &legs);
  if (!status.ok()) return report->Fail(StrCat("overload, ", name, ": ", ToStd(status.message())));
  Report(name, legs, report);
}

}  // namespace weft::bench
