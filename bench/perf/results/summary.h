// The few rows that say how Weft stands beside raw libfabric, Weft with TLS beside Weft without it
// and beside what a processor seals, and what is asked of it: the table that a run ends with.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/perf/cell/cell.h"
#include "bench/perf/results/results.h"

namespace weft::bench {

struct SummaryLine {
  std::string path;
  std::string what;
  std::string unit;
  // In that unit. Of several ways that raw libfabric has, the best; or what `what` names.
  std::optional<double> raw;
  std::optional<double> weft;   // with TLS, where `what` says so
  std::optional<double> ratio;  // Weft to raw
  std::string goal;             // "<= raw + 0.15, < 0.64"; "": none
  std::optional<bool> holds;    // nullopt: nothing is asked, or it cannot be told
};

// The cells that it is made of: all that --quick measures.
std::vector<Cell> SummaryCells();

// The lines for these paths, without those that have no figure on either side. On emulated paths
// only ratios mean something: figures and goals in units are left out.
std::vector<SummaryLine> Summarize(const Results& results, const std::vector<std::string>& paths);

std::string ToTable(const std::vector<SummaryLine>& lines);

}  // namespace weft::bench
