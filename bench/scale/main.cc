// weft_scale: see kScaleUsage. Exit code 1: something could not be measured; 2: wrong arguments.

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/machine/cpu.h"
#include "bench/scale/connections.h"
#include "bench/scale/echo_server.h"
#include "bench/scale/engines.h"
#include "bench/scale/idle.h"
#include "bench/scale/overload.h"
#include "bench/scale/process_usage.h"
#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"
#include "bench/scale/servers.h"
#include "bench/scale/threads.h"
#include "bench/scale/transfers.h"
#include "bench/scale/wakeup.h"

namespace weft::bench {
namespace {

void RunProgram(const std::string& name, const ScaleOptions& options, ScaleReport* report) {
  if (name == "connections") MeasureConnections(options, report);
  if (name == "engines") MeasureEngines(options, report);
  if (name == "idle") MeasureIdle(options, report);
  if (name == "overload") MeasureOverload(options, report);
  if (name == "servers") MeasureServers(options, report);
  if (name == "threads") MeasureThreads(options, report);
  if (name == "transfers") MeasureTransfers(options, report);
  if (name == "wakeup") MeasureWakeup(options, report);
}

int FailWith(const std::string& text, int code) {
  std::fprintf(stderr, "weft_scale: %s\n", text.c_str());
  return code;
}

// The kernel's word for the least that cores are apart, before and after.
void NoteMachine(const ScaleOptions& options, double before_ns, ScaleReport* report) {
  char text[120];
  std::snprintf(text, sizeof(text), "core to core: %.0f ns before, %.0f ns after (fit: <= %.0f)",
                before_ns, CoreToCoreNs(options.client_cpu, options.server_cpu), kFitCoreToCoreNs);
  report->Note(text);
}

int Main(const std::vector<std::string>& arguments) {
  int exit_code = 0;
  if (RunEchoServer(arguments, &exit_code)) return exit_code;
  absl::StatusOr<ScaleOptions> options = ParseScaleOptions(arguments);
  if (!options.ok()) return FailWith(std::string(options.status().message()), 2);
  if (options->help) {
    std::fputs(kScaleUsage, stdout);
    return 0;
  }
  RaiseDescriptorLimit();
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.empty()) return FailWith("this process may run on no processor", 1);
  options->client_cpu = cpus.front();
  options->server_cpu = cpus.back();
  options->cpus = cpus;
  const double before_ns = CoreToCoreNs(options->client_cpu, options->server_cpu);
  if (!PinThisThread(options->client_cpu).ok()) return FailWith("cannot pin to a processor", 1);
  ScaleReport report;
  for (const std::string& program : options->programs) RunProgram(program, *options, &report);
  NoteMachine(*options, before_ns, &report);
  std::fputs(report.ToTable().c_str(), stdout);
  if (!options->json_file.empty()) {
    std::ofstream file(options->json_file);
    file << report.ToJsonLines();
    if (!file.flush()) return FailWith("cannot write " + options->json_file, 1);
  }
  return report.complete() ? 0 : 1;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::Main(std::vector<std::string>(argv + 1, argv + argc));
}
