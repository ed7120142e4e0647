// Everything that was measured, and what it comes to.
//
// A metric has one value per round. Its result is the median over the rounds in which the machine
// was fit (bench/machine/cpu.h); if there was no such round, over all of them.
//
// Threads: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/perf/leg.h"

namespace weft::bench {

class Results {
 public:
  // Of this path only ratios mean something: its figures are kept from tables, and marked in JSON.
  void SetEmulated(const std::string& path) { emulated_.insert(path); }

  // The samples of one round.
  void AddRound(const std::vector<Sample>& samples, bool fit);

  std::optional<double> Median(const std::string& metric) const;

  int rounds() const { return rounds_; }
  int fit_rounds() const { return fit_rounds_; }

  // One line per metric: {"metric": "shm.unary_64B.p50_us", "value": 0.7}, on emulated paths with
  // "emulated": true behind.
  std::string ToJsonLines() const;

  // Raw, Weft and their ratio, for these paths.
  std::string ToTable(const std::vector<std::string>& paths) const;

 private:
  struct Values {
    std::vector<double> fit;
    std::vector<double> unfit;
  };

  bool IsEmulated(const std::string& metric) const;

  std::map<std::string, Values> values_;
  std::set<std::string> emulated_;  // paths
  int rounds_ = 0;
  int fit_rounds_ = 0;
};

}  // namespace weft::bench
