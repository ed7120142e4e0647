#include "bench/perf/results/peers_table.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr uint32_t kLargeBytes = 64 << 10;  // from here on bandwidth says more than a rate

// How a cell is read: a figure, its unit, and whether less is better.
struct Reading {
  const char* figure;
  const char* unit;
  double scale;
  bool less_is_better;
};

Reading ReadingOf(const Cell& cell) {
  if (cell.outstanding == 1) return {"p50_us", "us", 1, true};
  if (cell.bytes >= kLargeBytes) return {"GBps", "GB/s", 1, false};
  return {"per_s", "M/s", 1e-6, false};
}

using Entry = std::pair<std::string, double>;

// Of Weft and its peers, best first. A kind without that figure (0) is left out.
std::vector<Entry> Standings(const Results& results, const std::string& path, const Cell& cell,
                             const std::vector<std::string>& kinds) {
  const Reading reading = ReadingOf(cell);
  std::vector<Entry> entries;
  for (const std::string& kind : kinds) {
    const auto value = results.Median({path, cell, kind}, reading.figure);
    if (value && *value > 0) entries.emplace_back(kind, *value * reading.scale);
  }
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return reading.less_is_better ? a.second < b.second : a.second > b.second;
  });
  return entries;
}

// "Weft, 3.1 times ahead of grpc"; "ucx, 1.8 times ahead of Weft".
std::string Verdict(const std::vector<Entry>& standings) {
  const auto name = [](const Entry& entry) { return entry.first == "weft" ? "Weft" : entry.first; };
  const Entry& first = standings[0];
  const auto weft = std::find_if(standings.begin(), standings.end(),
                                 [](const Entry& entry) { return entry.first == "weft"; });
  const Entry& other = weft == standings.begin() ? standings[1] : *weft;
  const double times = std::max(first.second / other.second, other.second / first.second);
  return absl::StrFormat("%s, %.2f times %s", name(first), times, name(other));
}

std::string ValueOf(const std::vector<Entry>& standings, const std::string& kind) {
  for (const auto& [name, value] : standings) {
    if (name == kind) return absl::StrFormat("%.3f", value);
  }
  return "-";
}

}  // namespace

std::string PeersTable(const Results& results, const std::vector<std::string>& kinds) {
  std::vector<std::string> competing = {"weft"};
  std::vector<std::string> columns = {"raw", "weft", "weft_tls"};
  for (const std::string& kind : kinds) {
    columns.push_back(kind);
    if (!kind.ends_with("_tls")) competing.push_back(kind);
  }

  std::string rows;
  std::set<std::pair<std::string, Cell>> done;
  for (const auto& [leg, outcomes] : results.legs()) {
    if (!done.insert({leg.path, leg.cell}).second) continue;
    const std::vector<Entry> standings = Standings(results, leg.path, leg.cell, competing);
    const bool weft = std::any_of(standings.begin(), standings.end(),
                                  [](const Entry& entry) { return entry.first == "weft"; });
    if (!weft || standings.size() < 2) continue;
    const std::vector<Entry> all = Standings(results, leg.path, leg.cell, columns);
    absl::StrAppendFormat(&rows, "%-6s%-18s%-6s", leg.path, NameOf(leg.cell),
                          ReadingOf(leg.cell).unit);
    for (const std::string& column : columns) {
      absl::StrAppendFormat(&rows, "%*s", static_cast<int>(std::max<size_t>(column.size() + 2, 10)),
                            ValueOf(all, column));
    }
    absl::StrAppendFormat(&rows, "  %s\n", Verdict(standings));
  }
  if (rows.empty()) return "";
  std::string head = absl::StrFormat("%-6s%-18s%-6s", "path", "work", "");
  for (const std::string& column : columns) {
    absl::StrAppendFormat(&head, "%*s", static_cast<int>(std::max<size_t>(column.size() + 2, 10)),
                          column);
  }
  return head + "  who wins, and by how much to Weft or, if that is Weft, the next\n" + rows;
}

std::string PeerGoals(const Results& results) {
  constexpr Cell kAlone = {Pattern::kUnary, 64, 1};
  constexpr Cell kMany = {Pattern::kUnary, 64, 64};
  constexpr Cell kBulk = {Pattern::kBulk, 1 << 20, 8};
  constexpr struct {
    const char* path;
    Cell cell;
    double at_least;
    const char* what;
    const char* weft = "weft";
    const char* grpc = "grpc";
  } kGoals[] = {
      {"tcp", kMany, 8, "64 B calls, 64 outstanding"},
      {"shm", kBulk, 1, "1 MiB of bulk"},
      {"tcp", kBulk, 1, "1 MiB of bulk"},
      {"tcp", kAlone, 1, "64 B round trip, both with TLS", "weft_tls", "grpc_tls"},
      {"tcp", kMany, 8, "64 B calls, 64 outstanding, both with TLS", "weft_tls", "grpc_tls"},
      {"tcp", kBulk, 1, "1 MiB of bulk, both with TLS", "weft_tls", "grpc_tls"},
  };
  std::string lines;
  for (const auto& goal : kGoals) {
    const Reading reading = ReadingOf(goal.cell);
    const auto weft = results.Median({goal.path, goal.cell, goal.weft}, reading.figure);
    const auto grpc = results.Median({goal.path, goal.cell, goal.grpc}, reading.figure);
    if (!weft || !grpc || *weft <= 0 || *grpc <= 0) continue;
    const double times = reading.less_is_better ? *grpc / *weft : *weft / *grpc;
    absl::StrAppendFormat(&lines, "%s, %s: %s%.2f times %s (>= %g: %s)\n", goal.path, goal.what,
                          reading.less_is_better ? "gRPC takes " : "", times,
                          reading.less_is_better ? "as long" : "gRPC's", goal.at_least,
                          times >= goal.at_least ? "met" : "missed");
  }
  return lines;
}

}  // namespace weft::bench
