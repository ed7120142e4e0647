// weft_breakdown: where the nanoseconds of one 64 B call go, by time stamps on both sides.
//
//   weft_breakdown [--calls N] [--connections N] [PATH...]
//                                            (built with --config=trace: ./dev breakdown)
//
// A client and a server process on two processors, one call at a time, both spinning. Each point
// that a call passes stores the time stamp counter; both processors' counters are compared first.
// With more than one connection, each call goes over the next. Exit code 1: something could not be
// measured; 2: wrong arguments, or built without time stamps.

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/breakdown/segments.h"
#include "bench/machine/cpu.h"
#include "bench/perf/ends/echo_service.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/polled_server.h"
#include "bench/scale/process_usage.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/trace.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "transport/network.h"

namespace weft::bench {
namespace {

#ifdef WEFT_TRACE

constexpr uint32_t kMostCalls = 200'000;
constexpr uint32_t kWarmUpCalls = 20'000;
constexpr uint32_t kOffsetTrials = 20'000;
constexpr size_t kAddressBytes = 64;
constexpr uint32_t kMostConnections = 4000;  // two descriptors each, and Poller::kMaxDescriptors

struct Options {
  uint32_t calls = 100'000;
  uint32_t connections = 1;
  std::vector<PathKind> paths;
};

// What both processes see. Zero-filled memory is its first state.
struct Shared {
  char address[kAddressBytes];
  std::atomic<uint32_t> listening;  // 1: `address` is set; 2: the server has failed
  std::atomic<uint32_t> tracing;    // 1: wanted; 2: the server does
  std::atomic<uint32_t> over;
  alignas(64) std::atomic<uint64_t> ping;  // for comparing the counters
  alignas(64) std::atomic<uint64_t> pong;
  alignas(64) TracedCall calls[kMostCalls + 1];
};

uint64_t Ticks() { return __builtin_ia32_rdtsc(); }

// --- server -------------------------------------------------------------------------------------

class TracedService final : public EchoService {
 public:
  absl::Status Echo(ServerContext& context, const EchoMessage& request,
                    EchoMessage* reply) override {
    Trace(TracePoint::kHandler);
    handled_ = true;
    return EchoService::Echo(context, request, reply);
  }
  // Whether a call was handled since this was asked last.
  bool TakeHandled() { return std::exchange(handled_, false); }

 private:
  bool handled_ = false;
};

void AnswerPings(Shared& shared) {
  for (uint64_t i = 1; i <= kOffsetTrials; ++i) {
    while (shared.ping.load(std::memory_order_acquire) != i) {
    }
    shared.calls[0].server.at[0] = Ticks();
    shared.pong.store(i, std::memory_order_release);
  }
}

absl::Status Serve(Shared& shared, PathKind path, uint32_t connections, int cpu) {
  WEFT_RETURN_IF_ERROR(PinThisThread(cpu));
  AnswerPings(shared);
  ServerOptions options;
  options.link = OnlyPath(path);
  options.max_connections = connections;
  options.max_connections_of_one = connections;  // all are this host's
  TracedService service;
  WEFT_ASSIGN_OR_RETURN(PolledServer server, PolledServer::Open(&service, options));
  std::snprintf(shared.address, kAddressBytes, "%s", server.address().c_str());
  shared.listening.store(1, std::memory_order_release);
  uint32_t call = 0;
  while (shared.over.load(std::memory_order_relaxed) == 0) {
    if (shared.tracing.load(std::memory_order_relaxed) == 1) {
      TraceInto(&shared.calls[0].server);
      service.TakeHandled();
      shared.tracing.store(2, std::memory_order_release);
    }
    server.Poll();
    // The turn has sent the reply, too.
    if (service.TakeHandled() && shared.tracing.load(std::memory_order_relaxed) == 2) {
      call = std::min(call + 1, kMostCalls);
      TraceInto(&shared.calls[call].server);
    }
  }
  return absl::OkStatus();
}

// --- client -------------------------------------------------------------------------------------

// How far the server's counter is ahead of this one, at most as wrong as half of the fastest round
// trip of a cache line.
struct Offset {
  double ahead_ticks = 0;
  uint64_t round_trip_ticks = ~uint64_t{0};
};

Offset CompareCounters(Shared& shared) {
  Offset best;
  for (uint64_t i = 1; i <= kOffsetTrials; ++i) {
    const uint64_t before = Ticks();
    shared.ping.store(i, std::memory_order_release);
    while (shared.pong.load(std::memory_order_acquire) != i) {
    }
    const uint64_t after = Ticks();
    if (after - before >= best.round_trip_ticks) continue;
    best.round_trip_ticks = after - before;
    best.ahead_ticks =
        static_cast<double>(shared.calls[0].server.at[0]) - static_cast<double>(before + after) / 2;
  }
  return best;
}

absl::Status Echo(Perf::Stub& stub, const EchoMessage& request, EchoMessage* reply) {
  return stub.Echo(request, reply, {.timeout_us = 10'000'000});
}

absl::Status Call(Shared& shared, PathKind path, const Options& asked) {
  while (shared.listening.load(std::memory_order_acquire) == 0) usleep(1000);
  if (shared.listening.load() != 1) return absl::UnavailableError("the server does not start");
  WEFT_ASSIGN_OR_RETURN(
      const auto engine,
      OpenNetworkEngine({.drive = EngineOptions::Drive::kCaller, .spin_ns = kSpinForever}));
  ChannelOptions options;
  options.link = OnlyPath(path);
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<Perf::Stub> stubs;
  for (uint32_t i = 0; i < asked.connections; ++i) {
    WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(*engine, shared.address, options));
    stubs.emplace_back(*channel);
    channels.push_back(std::move(channel));
  }
  auto next_stub = [&, next = size_t{0}]() mutable -> Perf::Stub& {
    if (++next >= stubs.size()) next = 0;
    return stubs[next];
  };
  EchoMessage request, reply;
  request.set_payload(std::string(64, 'x'));
  for (uint32_t i = 0; i < kWarmUpCalls; ++i) {
    WEFT_RETURN_IF_ERROR(Echo(next_stub(), request, &reply));
  }
  shared.tracing.store(1, std::memory_order_release);
  while (shared.tracing.load(std::memory_order_acquire) != 2) {
  }
  for (uint32_t i = 0; i < asked.calls; ++i) {
    Perf::Stub& stub = next_stub();
    TraceInto(&shared.calls[i].client);
    Trace(TracePoint::kStarted);
    const absl::Status status = Echo(stub, request, &reply);
    Trace(TracePoint::kReturned);
    WEFT_RETURN_IF_ERROR(status);
  }
  TraceInto(nullptr);
  return absl::OkStatus();
}

// --- both ---------------------------------------------------------------------------------------

double TicksPerNs() {
  const uint64_t start_ns = Clock::Real().NowNs();
  const uint64_t start = Ticks();
  usleep(50'000);
  return static_cast<double>(Ticks() - start) /
         static_cast<double>(Clock::Real().NowNs() - start_ns);
}

// What storing a time stamp costs, in ns.
double TraceCostNs(double ticks_per_ns) {
  constexpr int kTraces = 100'000;
  TraceRow row;
  TraceInto(&row);
  const uint64_t start = Ticks();
  for (int i = 0; i < kTraces; ++i) Trace(TracePoint::kStarted);
  const uint64_t end = Ticks();
  TraceInto(nullptr);
  return static_cast<double>(end - start) / kTraces / ticks_per_ns;
}

absl::Status Measure(PathKind path, const Options& asked, const std::vector<int>& cpus) {
  if (cpus.size() < 2) return absl::UnavailableError("two processors are needed");
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError("no memory for the time stamps");
  auto* const shared = new (memory) Shared;
  const pid_t server = fork();
  if (server < 0) return absl::ResourceExhaustedError("fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const absl::Status status = Serve(*shared, path, asked.connections, cpus.back());
    if (!status.ok()) std::fprintf(stderr, "server: %s\n", std::string(status.message()).c_str());
    shared->listening.store(2);
    _exit(0);
  }
  absl::Status status = PinThisThread(cpus.front());
  const Offset offset = CompareCounters(*shared);
  if (status.ok()) status = Call(*shared, path, asked);
  shared->over.store(1);
  waitpid(server, nullptr, 0);
  if (status.ok()) {
    const double ticks_per_ns = TicksPerNs();
    const Breakdown breakdown = Divide({shared->calls, asked.calls}, ticks_per_ns);
    std::printf("%s: 64 B call, one outstanding, connections: %u, %zu calls (%zu left out)\n",
                std::string(PathKindName(path)).c_str(), asked.connections, breakdown.calls,
                breakdown.incomplete);
    std::fputs(ToTable(breakdown).c_str(), stdout);
    std::printf("counters: the server's is %.0f ns ahead, +- %.0f; a time stamp costs %.1f ns\n\n",
                offset.ahead_ticks / ticks_per_ns,
                static_cast<double>(offset.round_trip_ticks) / 2 / ticks_per_ns,
                TraceCostNs(ticks_per_ns));
  }
  munmap(memory, sizeof(Shared));
  return status;
}

// In a process of its own: it forks, and no child has libfabric when its parent has had it before.
bool MeasureApart(PathKind path, const Options& asked, const std::vector<int>& cpus) {
  std::fflush(nullptr);
  const pid_t client = fork();
  if (client == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const absl::Status status = Measure(path, asked, cpus);
    if (!status.ok())
      std::fprintf(stderr, "weft_breakdown: %s\n", std::string(status.message()).c_str());
    std::fflush(nullptr);
    _exit(status.ok() ? 0 : 1);
  }
  int status = -1;
  return client > 0 && waitpid(client, &status, 0) == client && status == 0;
}

absl::Status SetNumber(const std::string& name, const std::string& value, uint32_t most,
                       uint32_t* number) {
  const int given = std::atoi(value.c_str());
  if (given < 1 || static_cast<uint32_t>(given) > most) {
    return absl::InvalidArgumentError(StrCat(name, ": a number from 1 to ", most));
  }
  *number = static_cast<uint32_t>(given);
  return absl::OkStatus();
}

absl::StatusOr<Options> Parse(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (arguments[i] == "--calls") {
      WEFT_RETURN_IF_ERROR(SetNumber(arguments[i++], value, kMostCalls, &options.calls));
    } else if (arguments[i] == "--connections") {
      WEFT_RETURN_IF_ERROR(
          SetNumber(arguments[i++], value, kMostConnections, &options.connections));
    } else {
      WEFT_ASSIGN_OR_RETURN(const PathKind path, ParsePathKind(arguments[i]));
      options.paths.push_back(path);
    }
  }
  if (options.paths.empty()) options.paths = {PathKind::kShm, PathKind::kTcp};
  return options;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Options> options = Parse(arguments);
  if (!options.ok()) {
    std::fprintf(stderr, "weft_breakdown: %s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  RaiseDescriptorLimit();
  const std::vector<int> cpus = AllowedCpus();  // before this thread is pinned
  for (const PathKind path : options->paths) {
    if (!MeasureApart(path, *options, cpus)) return 1;
  }
  return 0;
}

#else

int Main(const std::vector<std::string>&) {
  std::fputs("weft_breakdown: built without time stamps; ./dev breakdown builds it with them\n",
             stderr);
  return 2;
}

#endif

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::Main(std::vector<std::string>(argv + 1, argv + argc));
}
