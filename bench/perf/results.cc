#include "bench/perf/results.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace weft::bench {
namespace {

// A row of the table. A metric that is "" does not exist on that side.
struct Row {
  const char* what;
  const char* raw;
  const char* weft;
  const char* unit;
  double scale;      // from the metric's unit to the table's
  const char* goal;  // for the ratio; "": none
};

constexpr Row kRows[] = {
    {"64 B round trip, p50", "raw_rtt_64B.p50_us", "unary_64B.p50_us", "us", 1, ""},
    {"64 B round trip, p99", "raw_rtt_64B.p99_us", "unary_64B.p99_us", "us", 1, ""},
    {"64 B round trip, p99.9", "raw_rtt_64B.p999_us", "unary_64B.p999_us", "us", 1, ""},
    {"64 B request and reply, 64 outstanding", "raw_rate_64B.per_s", "unary_64B.rate_per_s", "M/s",
     1e-6, ""},
    {"64 B one way, 64 outstanding", "raw_oneway_64B.per_s", "", "M/s", 1e-6, ""},
    {"64 B one-sided read, p50", "raw_read_64B.p50_us", "read_64B.p50_us", "us", 1, "<= 1.15"},
    {"64 B one-sided reads, 64 outstanding", "raw_read_64B.per_s", "read_64B.per_s", "M/s", 1e-6,
     ""},
    {"1 MiB one-sided writes", "raw_write_1MiB.GBps", "write_1MiB.GBps", "GB/s", 1, ">= 0.95"},
    {"1 MiB bulk in a call, no CRC", "raw_bulk_1MiB.GBps", "bulk_1MiB.GBps", "GB/s", 1, ">= 0.95"},
    {"1 MiB bulk in a call, CRC32C (raw: no CRC)", "raw_bulk_1MiB.GBps", "bulk_1MiB_crc.GBps",
     "GB/s", 1, ""},
};

double MedianOf(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

std::string Cell(const std::optional<double>& value, double scale) {
  return value ? absl::StrFormat("%.3f", *value * scale) : "-";
}

std::string Line(const std::string& path, const char* what, const std::string& raw,
                 const std::string& weft, const char* unit, const std::string& ratio,
                 const char* goal) {
  std::string line =
      absl::StrFormat("%-6s%-42s%12s%12s  %-5s%12s  %s", path, what, raw, weft, unit, ratio, goal);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

void Results::AddRound(const std::vector<Sample>& samples, bool fit) {
  ++rounds_;
  fit_rounds_ += fit;
  for (const Sample& sample : samples) {
    Values& values = values_[sample.metric];
    (fit ? values.fit : values.unfit).push_back(sample.value);
  }
}

std::optional<double> Results::Median(const std::string& metric) const {
  const auto found = values_.find(metric);
  if (found == values_.end()) return std::nullopt;
  const Values& values = found->second;
  return MedianOf(values.fit.empty() ? values.unfit : values.fit);
}

std::string Results::ToJsonLines() const {
  std::string lines;
  for (const auto& [metric, unused] : values_) {
    absl::StrAppendFormat(&lines, "{\"metric\": \"%s\", \"value\": %.6g%s}\n", metric,
                          *Median(metric), IsEmulated(metric) ? ", \"emulated\": true" : "");
  }
  return lines;
}

bool Results::IsEmulated(const std::string& metric) const {
  return emulated_.count(metric.substr(0, metric.find('.'))) > 0;
}

std::string Results::ToTable(const std::vector<std::string>& paths) const {
  std::string table = Line("path", "", "raw", "Weft", "", "Weft / raw", "goal");
  for (const std::string& path : paths) {
    for (const Row& row : kRows) {
      const auto raw = Median(path + "." + row.raw);
      const auto weft = Median(path + "." + row.weft);
      if (!raw && !weft) continue;
      const bool both = raw && weft && *raw > 0;
      const std::string ratio = both ? absl::StrFormat("%.2f", *weft / *raw) : "";
      if (emulated_.count(path) == 0) {
        table += Line(path, row.what, Cell(raw, row.scale), Cell(weft, row.scale), row.unit, ratio,
                      row.goal);
      } else if (both) {
        table += Line(path, row.what, "emulated", "emulated", "", ratio, row.goal);
      }
    }
  }
  return table;
}

}  // namespace weft::bench
