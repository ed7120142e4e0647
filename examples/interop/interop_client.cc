// interop_client: runs the scenarios of scenarios.h against interop_server, over each path in turn.
//
// A line for each scenario and path; the last one is "N passed, N failed". Exit status: 0 all
// passed, 1 some failed, 2 the command line is wrong.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/interop/expectations.h"
#include "examples/interop/scenarios.h"
#include "weft/channel.h"
#include "weft/path.h"
#include "weft/security.h"

ABSL_FLAG(std::string, server, "", "address of the server, as interop_server prints it");
ABSL_FLAG(std::string, paths, "shm,tcp", "paths to run the scenarios over, each for itself");

namespace interop {
namespace {

// No scenario is about how long something takes: this is for machines that stand still for seconds.
constexpr uint64_t kPatienceUs = 60'000'000;
constexpr uint64_t kNsPerUs = 1'000;

struct Count {
  int passed = 0;
  int failed = 0;
};

using Security = std::optional<weft::SecurityOptions>;

absl::StatusOr<std::unique_ptr<weft::Channel>> OpenOver(weft::PathKind path,
                                                        const Security& security) {
  weft::ChannelOptions options;
  options.security = security;
  options.default_timeout_us = kPatienceUs;
  options.link.paths = {path};
  options.link.connect_timeout_ns = kPatienceUs * kNsPerUs;
  options.link.path_timeout_ns = options.link.connect_timeout_ns / 2;
  return weft::Channel::Open(absl::GetFlag(FLAGS_server), options);
}

Expectations Run(const Scenario& scenario,
                 const absl::StatusOr<std::unique_ptr<weft::Channel>>& channel) {
  Expectations expect;
  expect.Ok("connecting", channel.status());
  if (channel.ok()) scenario.run(**channel, expect);
  return expect;
}

void Report(weft::PathKind path, const Scenario& scenario, const Expectations& expect) {
  const bool passed = expect.failures().empty();
  absl::PrintF("%-5s  %-28s  %s\n", std::string(weft::PathKindName(path)), scenario.name,
               passed ? "ok" : "FAILED");
  for (const std::string& failure : expect.failures()) absl::PrintF("       %s\n", failure);
  std::fflush(stdout);
}

// All scenarios share the path's connection: what one leaves behind would meet the next.
void RunOver(weft::PathKind path, const Security& security, Count* count) {
  const auto channel = OpenOver(path, security);
  for (const Scenario& scenario : Scenarios()) {
    const Expectations expect = Run(scenario, channel);
    Report(path, scenario, expect);
    ++(expect.failures().empty() ? count->passed : count->failed);
  }
}

int RunAll(const std::vector<weft::PathKind>& paths, const Security& security) {
  Count count;
  for (const weft::PathKind path : paths) RunOver(path, security, &count);
  absl::PrintF("%d passed, %d failed\n", count.passed, count.failed);
  return count.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace interop

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(absl::StrCat(
      "interop_client: calls interop_server (examples/README.md)\n\n", weft::kSecurityFlagsHelp));
  const auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) {
    absl::FPrintF(stderr, "interop_client: %s\n", security.status().ToString());
    return 2;
  }
  if (absl::ParseCommandLine(argc, argv).size() > 1 || absl::GetFlag(FLAGS_server).empty()) {
    absl::FPrintF(stderr, "usage: interop_client --server=ADDRESS [--paths=shm,tcp]\n");
    return 2;
  }
  const auto paths = weft::ParsePathList(absl::GetFlag(FLAGS_paths));
  if (!paths.ok()) {
    absl::FPrintF(stderr, "interop_client: --paths: %s\n", paths.status().ToString());
    return 2;
  }
  return interop::RunAll(*paths, *security);
}
