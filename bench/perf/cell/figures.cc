#include "bench/perf/cell/figures.h"

#include <sstream>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

double Us(uint64_t ns) { return static_cast<double>(ns) / kNsPerUs; }

}  // namespace

Figures FiguresOf(const LatencyHistogram& latency) {
  Figures figures;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    figures.latency_us[i] = Us(latency.Percentile(kPercentiles[i]));
  }
  figures.per_s = latency.mean() > 0 ? kNsPerSec / latency.mean() : 0;
  return figures;
}

double FigureNamed(std::string_view name, const Cell& cell, const Figures& figures) {
  if (name == "per_s") return figures.per_s;
  if (name == "GBps") return figures.per_s * cell.bytes / 1e9;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    if (name == PercentileName(kPercentiles[i]) + "_us") return figures.latency_us[i];
  }
  WEFT_CHECK(false);
  return 0;
}

std::string PercentileName(double percent) { return StrCat("p", percent); }

std::string ToLine(const Figures& figures) {
  std::ostringstream line;
  line.precision(17);
  line << figures.per_s;
  for (const double us : figures.latency_us) line << ' ' << us;
  return line.str();
}

std::optional<Figures> FiguresFrom(const std::string& line) {
  std::istringstream in(line);
  Figures figures;
  in >> figures.per_s;
  for (double& us : figures.latency_us) in >> us;
  if (!in) return std::nullopt;
  return figures;
}

}  // namespace weft::bench
