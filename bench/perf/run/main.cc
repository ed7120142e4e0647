// weft_perf: see kPerfUsage. Exit code 1: something could not be measured; 2: wrong arguments.

#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "bench/machine/description.h"
#include "bench/perf/plan/end_kinds.h"
#include "bench/perf/plan/options.h"
#include "bench/perf/results/peers_table.h"
#include "bench/perf/results/summary.h"
#include "bench/perf/run/document.h"
#include "bench/perf/run/perf.h"
#include "bench/perf/run/worker.h"
#include "bench/raw/raw_ends.h"

namespace weft::bench {
namespace {

int FailWith(const absl::Status& status, int code) {
  std::fprintf(stderr, "weft_perf: %s\n", std::string(status.message()).c_str());
  return code;
}

std::vector<std::string> PeerNames() {
  std::vector<std::string> names;
  for (const EndKind& kind : EndKinds()) {
    if (kind.is_peer) names.emplace_back(kind.name);
  }
  return names;
}

bool WriteFile(const std::string& name, const std::string& text) {
  std::ofstream file(name);
  file << text;
  return static_cast<bool>(file.flush());
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc));
}

int Main(const std::vector<std::string>& arguments) {
  WorkerOptions worker;
  if (ParseWorkerArguments(arguments, &worker)) return RunWorker(worker);

  const absl::StatusOr<PerfOptions> options = ParsePerfOptions(arguments);
  if (!options.ok()) return FailWith(options.status(), 2);
  if (options->help) {
    std::fputs(kPerfUsage, stdout);
    return 0;
  }
  const absl::StatusOr<PerfReport> report = RunPerf(*options);
  if (!report.ok()) return FailWith(report.status(), 1);
  std::fputs(ToTable(Summarize(report->results, options->paths)).c_str(), stdout);
  std::fputs(PeersTable(report->results, PeerNames()).c_str(), stdout);
  std::fputs(PeerGoals(report->results).c_str(), stdout);
  for (const std::string& note : report->notes) std::printf("%s\n", note.c_str());
  if (!options->json_file.empty()) {
    const DocumentFacts facts = {DescribeMachine(), FabricLibraryVersion(), UtcNow()};
    if (!WriteFile(options->json_file, ToDocument(*options, *report, facts))) {
      return FailWith(absl::UnavailableError("cannot write " + options->json_file), 1);
    }
  }
  return report->complete ? 0 : 1;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::Main(std::vector<std::string>(argv + 1, argv + argc));
}
