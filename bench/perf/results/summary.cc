#include "bench/perf/results/summary.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/perf/cell/perf_path.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

struct Figure {
  Cell cell;
  const char* name;
};

struct Goal {
  enum class Kind { kRatioAtMost, kRatioAtLeast, kOverRawAtMost, kBelow, kAtLeast };
  const char* paths;  // that it is meant for: "shm", "tcp", "rdma", "all"
  Kind kind;
  double value;  // a ratio, or in the row's unit
};

struct Row {
  const char* what;
  const char* unit;
  double scale;             // from the figures' unit to the row's
  std::vector<Figure> raw;  // the best of them
  Figure weft;
  double weft_factor;  // how often Weft's figure counts
  std::vector<Goal> goals;
  const char* raw_kind = "raw";
  const char* weft_kind = "weft";
};

constexpr Cell kAlone = {Pattern::kUnary, 64, 1};
constexpr Cell kMany = {Pattern::kUnary, 64, 64};
constexpr Cell kStreamAlone = {Pattern::kStream, 64, 1};
constexpr Cell kStreamOneWay = {Pattern::kStream, 64, 64};
constexpr Cell kOneWay = {Pattern::kMessages, 64, 64};
constexpr Cell kRead = {Pattern::kRead, 64, 1};
constexpr Cell kReads = {Pattern::kRead, 64, 64};
constexpr Cell kBulk = {Pattern::kBulk, 1 << 20, 8};
constexpr Cell kBulkChecked = {Pattern::kBulkChecked, 1 << 20, 8};
constexpr Cell kLargeWrites = {Pattern::kWrite, 1 << 20, 8};
constexpr Cell kLargeReads = {Pattern::kRead, 1 << 20, 8};
constexpr Cell kLargeMessages = {Pattern::kMessages, 1 << 20, 8};

const std::vector<Row>& Rows() {
  using Kind = Goal::Kind;
  // What one byte of payload can be moved by.
  static const auto* transfers = new std::vector<Figure>{
      {kLargeWrites, "GBps"}, {kLargeReads, "GBps"}, {kLargeMessages, "GBps"}};
  static const auto* rows = new std::vector<Row>{
      {"64 B round trip, p50",
       "us",
       1,
       {{kAlone, "p50_us"}},
       {kAlone, "p50_us"},
       1,
       {{"shm", Kind::kOverRawAtMost, 0.15},
        {"shm", Kind::kBelow, 0.64},
        {"tcp", Kind::kRatioAtMost, 1.10},
        {"rdma", Kind::kRatioAtMost, 1.15}}},
      {"64 B round trip, p99", "us", 1, {{kAlone, "p99_us"}}, {kAlone, "p99_us"}, 1, {}},
      {"64 B round trip, p99.9", "us", 1, {{kAlone, "p99.9_us"}}, {kAlone, "p99.9_us"}, 1, {}},
      {"64 B calls, 64 outstanding (raw: two messages)",
       "M/s",
       1e-6,
       {{kMany, "per_s"}},
       {kMany, "per_s"},
       1,
       {{"shm", Kind::kAtLeast, 5}}},
      {"64 B messages in these calls (raw: one way)",
       "M/s",
       1e-6,
       {{kOneWay, "per_s"}},
       {kMany, "per_s"},
       2,
       {{"shm", Kind::kRatioAtLeast, 1}, {"tcp", Kind::kRatioAtLeast, 4}}},
      {"64 B messages one way, 64 outstanding",
       "M/s",
       1e-6,
       {{kOneWay, "per_s"}},
       {kOneWay, "per_s"},
       1,
       {}},
      {"64 B of a stream there and back, p50 (raw: bare)",
       "us",
       1,
       {{kAlone, "p50_us"}},
       {kStreamAlone, "p50_us"},
       1,
       {}},
      {"64 B of a stream one way (raw: bare messages)",
       "M/s",
       1e-6,
       {{kOneWay, "per_s"}},
       {kStreamOneWay, "per_s"},
       1,
       {{"shm", Kind::kAtLeast, 15}}},
      {"64 B one-sided read, p50",
       "us",
       1,
       {{kRead, "p50_us"}},
       {kRead, "p50_us"},
       1,
       {{"all", Kind::kRatioAtMost, 1.15}}},
      {"64 B one-sided reads, 64 outstanding",
       "M/s",
       1e-6,
       {{kReads, "per_s"}},
       {kReads, "per_s"},
       1,
       {}},
      {"1 MiB one-sided writes",
       "GB/s",
       1,
       {{kLargeWrites, "GBps"}},
       {kLargeWrites, "GBps"},
       1,
       {{"all", Kind::kRatioAtLeast, 0.95}}},
      {"1 MiB bulk in calls (raw: its best transfer)",
       "GB/s",
       1,
       *transfers,
       {kBulk, "GBps"},
       1,
       {{"all", Kind::kRatioAtLeast, 0.95}}},
      {"1 MiB bulk in calls, CRC32C (raw: no CRC)",
       "GB/s",
       1,
       *transfers,
       {kBulkChecked, "GBps"},
       1,
       {}},
      {"TLS, 64 B round trip, p50 (raw: Weft without)",
       "us",
       1,
       {{kAlone, "p50_us"}},
       {kAlone, "p50_us"},
       1,
       {{"tcp", Kind::kRatioAtMost, 1.35}},
       "weft",
       "weft_tls"},
      {"TLS, 64 B, 64 outstanding (raw: Weft without)",
       "M/s",
       1e-6,
       {{kMany, "per_s"}},
       {kMany, "per_s"},
       1,
       {{"tcp", Kind::kRatioAtLeast, 0.70}},
       "weft",
       "weft_tls"},
      {"TLS, 1 MiB bulk (raw: AES-256-GCM, one core)",
       "GB/s",
       1,
       {{kBulk, "GBps"}},
       {kBulk, "GBps"},
       1,
       {{"tcp", Kind::kRatioAtLeast, 0.85}},
       "aes",
       "weft_tls"},
  };
  return *rows;
}

bool IsMeantFor(const Goal& goal, const std::string& path) {
  const std::string_view paths = goal.paths;
  const bool is_rdma = path != "shm" && path != "tcp" && path != "ofi_tcp";
  return paths == "all" || paths == path || (paths == "rdma" && is_rdma);
}

bool IsRatio(const Goal& goal) {
  return goal.kind == Goal::Kind::kRatioAtMost || goal.kind == Goal::Kind::kRatioAtLeast;
}

std::string TextOf(const Goal& goal) {
  switch (goal.kind) {
    case Goal::Kind::kRatioAtMost:
      return absl::StrFormat("<= %.2f", goal.value);
    case Goal::Kind::kRatioAtLeast:
      return absl::StrFormat(">= %.2f", goal.value);
    case Goal::Kind::kOverRawAtMost:
      return absl::StrFormat("<= raw + %.2f", goal.value);
    case Goal::Kind::kBelow:
      return absl::StrFormat("Weft < %.2f", goal.value);
    case Goal::Kind::kAtLeast:
      return absl::StrFormat("Weft >= %.2f", goal.value);
  }
  return "";
}

// REQUIRES: line.raw and line.weft.
bool Holds(const Goal& goal, const SummaryLine& line) {
  switch (goal.kind) {
    case Goal::Kind::kRatioAtMost:
      return *line.weft <= goal.value * *line.raw;
    case Goal::Kind::kRatioAtLeast:
      return *line.weft >= goal.value * *line.raw;
    case Goal::Kind::kOverRawAtMost:
      return *line.weft <= *line.raw + goal.value;
    case Goal::Kind::kBelow:
      return *line.weft < goal.value;
    case Goal::Kind::kAtLeast:
      return *line.weft >= goal.value;
  }
  return false;
}

// Several are only meant where more is better.
std::optional<double> BestOf(const Results& results, const std::string& path,
                             const std::string& kind, const std::vector<Figure>& figures) {
  std::optional<double> best;
  for (const Figure& figure : figures) {
    const auto median = results.Median({path, figure.cell, kind}, figure.name);
    if (median && (!best || *median > *best)) best = median;
  }
  return best;
}

std::optional<double> Scaled(std::optional<double> value, double scale) {
  if (value) *value *= scale;
  return value;
}

void Judge(const std::vector<Goal>& goals, SummaryLine* line) {
  std::vector<std::string> texts;
  bool all_hold = true;
  for (const Goal& goal : goals) {
    if (!IsMeantFor(goal, line->path)) continue;
    if (bench::IsEmulated(line->path) && !IsRatio(goal)) continue;
    texts.push_back(TextOf(goal));
    all_hold = all_hold && line->ratio && Holds(goal, *line);
  }
  line->goal = absl::StrJoin(texts, ", ");
  if (!texts.empty() && line->ratio) line->holds = all_hold;
}

SummaryLine Summarize(const Results& results, const std::string& path, const Row& row) {
  SummaryLine line;
  line.path = path;
  line.what = row.what;
  line.unit = row.unit;
  line.raw = Scaled(BestOf(results, path, row.raw_kind, row.raw), row.scale);
  line.weft = Scaled(BestOf(results, path, row.weft_kind, {row.weft}), row.scale * row.weft_factor);
  if (line.raw && line.weft && *line.raw > 0) line.ratio = *line.weft / *line.raw;
  Judge(row.goals, &line);
  return line;
}

std::string FigureText(const std::optional<double>& value, bool is_emulated) {
  if (!value) return "-";
  return is_emulated ? "emulated" : absl::StrFormat("%.3f", *value);
}

std::string TableLine(const std::string& path, const std::string& what, const std::string& raw,
                      const std::string& weft, const std::string& unit, const std::string& ratio,
                      const std::string& verdict, const std::string& goal) {
  std::string line = absl::StrFormat("%-6s%-48s%9s%9s  %-5s%11s  %-13s%s", path, what, raw, weft,
                                     unit, ratio, verdict, goal);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::vector<Cell> SummaryCells() {
  std::vector<Cell> cells;
  for (const Row& row : Rows()) {
    cells.push_back(row.weft.cell);
    for (const Figure& raw : row.raw) cells.push_back(raw.cell);
  }
  std::sort(cells.begin(), cells.end());
  cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
  return cells;
}

std::vector<SummaryLine> Summarize(const Results& results, const std::vector<std::string>& paths) {
  std::vector<SummaryLine> lines;
  for (const std::string& path : paths) {
    for (const Row& row : Rows()) {
      const SummaryLine line = Summarize(results, path, row);
      // Where Weft has no TLS of its own, what it would be compared with says nothing.
      const bool is_there = bench::IsEmulated(path) ? line.ratio.has_value()
                            : row.raw_kind != std::string_view("raw")
                                ? line.weft.has_value()
                                : line.raw.has_value() || line.weft.has_value();
      if (is_there) lines.push_back(line);
    }
  }
  return lines;
}

std::string ToTable(const std::vector<SummaryLine>& lines) {
  std::string table = TableLine("path", "", "raw", "Weft", "", "Weft / raw", "", "goal");
  for (const SummaryLine& line : lines) {
    const bool is_emulated = bench::IsEmulated(line.path);
    const std::string verdict = !line.holds ? "" : *line.holds ? "holds" : "falls short";
    table += TableLine(line.path, line.what, FigureText(line.raw, is_emulated),
                       FigureText(line.weft, is_emulated), is_emulated ? "" : line.unit,
                       line.ratio ? absl::StrFormat("%.2f", *line.ratio) : "", verdict, line.goal);
  }
  return table;
}

}  // namespace weft::bench
