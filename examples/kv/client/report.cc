#include "examples/kv/client/report.h"

#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/strings.h"

namespace kv::client {

std::string WithCommas(uint64_t number) {
  std::string text = weft::StrCat(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string Duration(uint64_t ns) {
  if (ns < weft::kNsPerUs) return absl::StrFormat("%d ns", ns);
  const auto scaled = [ns](uint64_t unit_ns, const char* unit) {
    const double value = static_cast<double>(ns) / static_cast<double>(unit_ns);
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return absl::StrFormat("%.*f %s", digits, value, unit);
  };
  if (ns < weft::kNsPerMs) return scaled(weft::kNsPerUs, "us");
  if (ns < weft::kNsPerSec) return scaled(weft::kNsPerMs, "ms");
  return scaled(weft::kNsPerSec, "s");
}

std::string LatencyHead() {
  return absl::StrFormat("  %-8s %12s %10s %10s %10s %10s\n", "", "count", "p50", "p99", "p99.9",
                         "max");
}

std::string LatencyLine(std::string_view name, const weft::LatencyHistogram& latency) {
  return absl::StrFormat("  %-8s %12s %10s %10s %10s %10s\n", weft::ToAbsl(name),
                         WithCommas(latency.count()), Duration(latency.Percentile(50)),
                         Duration(latency.Percentile(99)), Duration(latency.Percentile(99.9)),
                         Duration(latency.max()));
}

}  // namespace kv::client
