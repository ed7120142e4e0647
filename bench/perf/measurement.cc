#include "bench/perf/measurement.h"

#include <sstream>

#include "core/clock.h"

namespace weft::bench {
namespace {

constexpr struct {
  Measurement measurement;
  std::string_view name;
} kNames[] = {
    {Measurement::kRoundTrip, "round_trip"},
    {Measurement::kRate, "rate"},
    {Measurement::kOneWay, "one_way"},
    {Measurement::kRead, "read"},
    {Measurement::kReadRate, "read_rate"},
    {Measurement::kWrite, "write"},
    {Measurement::kBulk, "bulk"},
    {Measurement::kBulkChecked, "bulk_checked"},
};

double Us(uint64_t ns) { return static_cast<double>(ns) / kNsPerUs; }

}  // namespace

Figures RoundTripFigures(const LatencyHistogram& latency) {
  Figures figures;
  figures.p50_us = Us(latency.Percentile(50));
  figures.p99_us = Us(latency.Percentile(99));
  figures.p999_us = Us(latency.Percentile(99.9));
  figures.per_s = latency.mean() > 0 ? kNsPerSec / latency.mean() : 0;
  return figures;
}

std::string_view NameOf(Measurement measurement) {
  for (const auto& row : kNames) {
    if (row.measurement == measurement) return row.name;
  }
  return "";
}

std::optional<Measurement> MeasurementNamed(std::string_view name) {
  for (const auto& row : kNames) {
    if (row.name == name) return row.measurement;
  }
  return std::nullopt;
}

std::string ToLine(const Figures& figures) {
  std::ostringstream line;
  line.precision(17);
  line << figures.p50_us << ' ' << figures.p99_us << ' ' << figures.p999_us << ' ' << figures.per_s
       << ' ' << figures.gbytes_per_s;
  return line.str();
}

std::optional<Figures> FiguresFrom(const std::string& line) {
  std::istringstream in(line);
  Figures figures;
  in >> figures.p50_us >> figures.p99_us >> figures.p999_us >> figures.per_s >>
      figures.gbytes_per_s;
  if (!in) return std::nullopt;
  return figures;
}

}  // namespace weft::bench
