#include "bench/scale/round_trips.h"

#include <algorithm>
#include <string>

#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/polled_server.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/network.h"

namespace weft::bench {
namespace {

constexpr uint32_t kCallBytes = 64;
// Of a call that should take microseconds: an end of the wait for a peer that hangs.
constexpr uint64_t kPatienceUs = 10'000'000;

// Sleeping would cost a wake-up of its own.
void SpinFor(uint32_t us) {
  const uint64_t end_ns = Clock::Real().NowNs() + uint64_t{us} * 1000;
  while (us > 0 && Clock::Real().NowNs() < end_ns) {
  }
}

}  // namespace

absl::StatusOr<Clients> Clients::Open(const EngineOptions& engine, PathKind path) {
  Clients clients;
  clients.path_ = path;
  WEFT_ASSIGN_OR_RETURN(clients.engine_, OpenNetworkEngine(engine));
  return clients;
}

absl::Status Clients::Connect(const std::string& address, uint32_t connections) {
  ChannelOptions options;
  options.link = OnlyPath(path_);
  for (uint32_t i = 0; i < connections; ++i) {
    absl::StatusOr<std::unique_ptr<Channel>> channel = Channel::Open(*engine_, address, options);
    if (!channel.ok()) return Annotate(channel.status(), StrCat("connection ", i + 1));
    channels_.push_back(*std::move(channel));
  }
  return absl::OkStatus();
}

absl::StatusOr<LatencyHistogram> Clients::RoundTrips(double seconds, uint32_t pause_us) {
  return RoundTripsOver(channels_, seconds, pause_us);
}

absl::StatusOr<LatencyHistogram> Clients::RoundTripsOverOne(double seconds) {
  return RoundTripsOver(absl::MakeConstSpan(channels_).last(1), seconds, /*pause_us=*/0);
}

absl::StatusOr<LatencyHistogram> Clients::RoundTripsOver(
    absl::Span<const std::unique_ptr<Channel>> channels, double seconds, uint32_t pause_us) {
  std::vector<Perf::Stub> stubs;
  for (const auto& channel : channels) stubs.emplace_back(*channel);
  EchoMessage request, reply;
  request.set_payload(std::string(kCallBytes, 'x'));
  LatencyHistogram latency;
  const RunClock run(seconds);
  uint64_t now_ns = 0;
  for (size_t i = 0; !run.IsOver(now_ns) || latency.count() == 0; ++i) {
    SpinFor(pause_us);
    const uint64_t start_ns = Clock::Real().NowNs();
    WEFT_RETURN_IF_ERROR(
        stubs[i % stubs.size()].Echo(request, &reply, {.timeout_us = kPatienceUs}));
    now_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(now_ns - start_ns);
  }
  return latency;
}

void Clients::LookAfter() {
  if (!CoreOf(*engine_).Enter()) return;
  while (engine_->Poll() > 0) {
  }
  CoreOf(*engine_).Leave();
}

}  // namespace weft::bench
