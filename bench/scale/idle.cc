#include "bench/scale/idle.h"

#include <poll.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "bench/scale/echo_server.h"
#include "bench/scale/process_usage.h"
#include "bench/scale/round_trips.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr double kMostPercent = 1;
// Longer than any engine spins.
constexpr int kSettleMs = 200;

absl::Status MeasurePath(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  EchoServerOptions server_options;
  server_options.path = path;
  server_options.waiting = EchoServerOptions::Waiting::kAdaptive;
  server_options.cpu = options.server_cpu;
  WEFT_ASSIGN_OR_RETURN(const auto server, EchoServer::Start(server_options));
  // The clients' engine has a thread of its own, too: it promises heartbeats, and sleeps.
  WEFT_ASSIGN_OR_RETURN(Clients clients, Clients::Open({}, path));
  const uint32_t connections = options.connections;
  WEFT_RETURN_IF_ERROR(clients.Connect(server->address(), connections));
  WEFT_RETURN_IF_ERROR(clients.RoundTrips(/*seconds=*/0.1).status());
  poll(nullptr, 0, kSettleMs);

  WEFT_ASSIGN_OR_RETURN(const ProcessUsage server_before, server->Usage());
  WEFT_ASSIGN_OR_RETURN(const ProcessUsage client_before, UsageOfThisProcess());
  const uint64_t start_ns = Clock::Real().NowNs();
  poll(nullptr, 0, static_cast<int>(options.idle_seconds * 1e3));
  WEFT_ASSIGN_OR_RETURN(const ProcessUsage server_after, server->Usage());
  WEFT_ASSIGN_OR_RETURN(const ProcessUsage client_after, UsageOfThisProcess());
  const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);

  const auto percent = [&](const ProcessUsage& before, const ProcessUsage& after) {
    return 100 * static_cast<double>(after.cpu_ns - before.cpu_ns) / elapsed_ns;
  };
  const std::string name(PathKindName(path));
  const std::string stem = "scale." + name + ".";
  report->Add({stem + "idle.server_percent",
               StrCat(name, ": processor of an idle server, ", connections, " connections"),
               percent(server_before, server_after),
               "%",
               kMostPercent,
               {}});
  report->Add({stem + "idle.client_percent",
               StrCat(name, ": processor of its idle client, with an engine thread"),
               percent(client_before, client_after),
               "%",
               kMostPercent,
               {}});
  return absl::OkStatus();
}

}  // namespace

void MeasureIdle(const ScaleOptions& options, ScaleReport* report) {
  for (const PathKind path : options.paths) {
    const absl::Status status = MeasurePath(path, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("idle, ", PathKindName(path), ": ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
