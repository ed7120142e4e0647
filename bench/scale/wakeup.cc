#include "bench/scale/wakeup.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/scale/echo_server.h"
#include "bench/scale/event_ping.h"
#include "bench/scale/round_trips.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr double kMostRatio = 1.2;
// Longer than going to sleep takes, and short enough for thousands of calls in a second.
constexpr uint32_t kPauseUs = 200;

// A server and its client, each sleeping or spinning for its work.
struct Pair {
  std::unique_ptr<EchoServer> server;
  std::unique_ptr<Clients> clients;
};

absl::StatusOr<Pair> OpenPair(PathKind path, int server_cpu, uint64_t server_spin_ns,
                              uint64_t client_spin_ns) {
  EchoServerOptions options;
  options.path = path;
  options.waiting = EchoServerOptions::Waiting::kAdaptive;
  options.spin_ns = server_spin_ns;
  options.cpu = server_cpu;
  Pair pair;
  WEFT_ASSIGN_OR_RETURN(pair.server, EchoServer::Start(options));
  WEFT_ASSIGN_OR_RETURN(
      Clients clients,
      Clients::Open({.drive = EngineOptions::Drive::kCaller, .spin_ns = client_spin_ns}, path));
  pair.clients = std::make_unique<Clients>(std::move(clients));
  WEFT_RETURN_IF_ERROR(pair.clients->Connect(pair.server->address(), 1));
  return pair;
}

// The server is opened for each measurement: one that spins would be in the way of all others.
absl::StatusOr<double> P50Us(PathKind path, const ScaleOptions& options, uint64_t server_spin_ns,
                             uint64_t client_spin_ns) {
  WEFT_ASSIGN_OR_RETURN(const Pair pair,
                        OpenPair(path, options.server_cpu, server_spin_ns, client_spin_ns));
  WEFT_ASSIGN_OR_RETURN(const LatencyHistogram latency,
                        pair.clients->RoundTrips(options.seconds, kPauseUs));
  return static_cast<double>(latency.Percentile(50)) / 1e3;
}

struct EventFd {
  double one_us = 0;  // one wake-up
  double two_us = 0;  // there and back
};

absl::StatusOr<EventFd> MeasureEventFd(const ScaleOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const auto ping, EventPing::Start(options.server_cpu));
  EventFd result;
  result.one_us =
      static_cast<double>(ping->AskAwake(options.seconds, kPauseUs).Percentile(50)) / 1e3;
  result.two_us =
      static_cast<double>(ping->AskAsleep(options.seconds, kPauseUs).Percentile(50)) / 1e3;
  return result;
}

absl::Status MeasurePath(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  std::vector<double> awake, asleep, both, one_event, two_events, ratios, both_ratios;
  for (int round = 0; round < options.rounds; ++round) {
    WEFT_ASSIGN_OR_RETURN(const EventFd event, MeasureEventFd(options));
    WEFT_ASSIGN_OR_RETURN(const double spinning, P50Us(path, options, kSpinForever, kSpinForever));
    WEFT_ASSIGN_OR_RETURN(const double sleeping, P50Us(path, options, 0, kSpinForever));
    WEFT_ASSIGN_OR_RETURN(const double both_sleeping, P50Us(path, options, 0, 0));
    awake.push_back(spinning);
    asleep.push_back(sleeping);
    both.push_back(both_sleeping);
    one_event.push_back(event.one_us);
    two_events.push_back(event.two_us);
    ratios.push_back((sleeping - spinning) / event.one_us);
    both_ratios.push_back((both_sleeping - spinning) / event.two_us);
  }
  const std::string name(PathKindName(path));
  const std::string stem = "scale." + name + ".wakeup.";
  const auto add = [&](const char* metric, const char* what, const std::vector<double>& values) {
    report->Add({stem + metric, name + ": " + what, MedianOf(values), "us", {}, {}});
  };
  add("awake_us", "64 B call, p50, both spin", awake);
  add("asleep_us", "64 B call, p50, the server sleeps", asleep);
  add("both_asleep_us", "64 B call, p50, both sleep", both);
  add("eventfd_us", "an eventfd's wake-up of a sleeping thread", one_event);
  add("eventfd_round_trip_us", "an eventfd's round trip between sleeping threads", two_events);
  report->Add({stem + "ratio",
               name + ": what a sleeping server adds / an eventfd's wake-up",
               MedianOf(ratios),
               "",
               kMostRatio,
               {}});
  report->Add({stem + "both_ratio",
               name + ": what both add / an eventfd's round trip",
               MedianOf(both_ratios),
               "",
               kMostRatio,
               {}});
  return absl::OkStatus();
}

}  // namespace

void MeasureWakeup(const ScaleOptions& options, ScaleReport* report) {
  for (const PathKind path : options.paths) {
    const absl::Status status = MeasurePath(path, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("wakeup, ", PathKindName(path), ": ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
