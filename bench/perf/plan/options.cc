#include "bench/perf/plan/options.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/perf/cell/perf_path.h"
#include "bench/perf/results/summary.h"
#include "core/status.h"

namespace weft::bench {
namespace {

constexpr int kMaxRounds = 1000;
constexpr double kMinSeconds = 0.01;  // below, start and end of a leg are most of it
constexpr double kMaxSeconds = 600;
constexpr int kQuickRounds = 3;

absl::Status SetPaths(const std::string& list, PerfOptions* options) {
  options->paths = absl::StrSplit(list, ',', absl::SkipEmpty());
  for (const std::string& path : options->paths) {
    if (IsPerfPath(path)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--paths: no path is called \"", path,
                                                   "\"; there are ",
                                                   absl::StrJoin(PerfPathNames(), ", ")));
  }
  if (!options->paths.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--paths: no path given");
}

absl::Status SetCells(const std::string& filters, PerfOptions* options) {
  absl::StatusOr<std::vector<Cell>> cells = CellsOnly(filters);
  if (!cells.ok()) return Annotate(cells.status(), "--only");
  options->cells = *std::move(cells);
  return absl::OkStatus();
}

absl::Status SetRounds(const std::string& text, PerfOptions* options) {
  if (absl::SimpleAtoi(text, &options->rounds) && options->rounds >= 1 &&
      options->rounds <= kMaxRounds) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--repeat: \"", text, "\" is not a number from 1 to ", kMaxRounds));
}

absl::Status SetSeconds(const std::string& text, PerfOptions* options) {
  if (absl::SimpleAtod(text, &options->seconds_per_leg) &&
      options->seconds_per_leg >= kMinSeconds && options->seconds_per_leg <= kMaxSeconds) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--seconds: \"", text, "\" is not a number from ",
                                                 kMinSeconds, " to ", kMaxSeconds));
}

absl::Status SetValue(const std::string& name, const std::string& value, PerfOptions* options) {
  if (name == "--paths") return SetPaths(value, options);
  if (name == "--only") return SetCells(value, options);
  if (name == "--repeat") return SetRounds(value, options);
  if (name == "--seconds") return SetSeconds(value, options);
  options->json_file = value;
  return absl::OkStatus();
}

bool TakesValue(const std::string& name) {
  return name == "--paths" || name == "--only" || name == "--repeat" || name == "--seconds" ||
         name == "--json";
}

}  // namespace

absl::StatusOr<PerfOptions> ParsePerfOptions(const std::vector<std::string>& arguments) {
  PerfOptions options;
  const auto has = [&](const char* flag) {
    return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
  };
  options.quick = has("--quick");
  options.cells = options.quick ? SummaryCells() : AllCells();
  if (options.quick) options.rounds = kQuickRounds;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::vector<std::string> parts = absl::StrSplit(arguments[i], absl::MaxSplits('=', 1));
    const std::string name = parts[0];
    if (name == "--help" || name == "-h") {
      options.help = true;
    } else if (name == "--peers") {
      options.with_peers = true;
    } else if (TakesValue(name)) {
      if (parts.size() == 1 && i + 1 < arguments.size()) parts.push_back(arguments[++i]);
      if (parts.size() == 1 || parts[1].empty()) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": a value is missing"));
      }
      if (absl::Status status = SetValue(name, parts[1], &options); !status.ok()) return status;
    } else if (name != "--quick") {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", arguments[i]));
    }
  }
  return options;
}

}  // namespace weft::bench
