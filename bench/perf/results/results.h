// Everything that was measured.
//
// A leg (one kind's run of one cell on one path) has one outcome per round. Its result is the
// median over the rounds in which the machine was fit (bench/machine/cpu.h); if there was no such
// round, over all of them.
//
// Threads: one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/figures.h"

namespace weft::bench {

struct LegName {
  std::string path;  // "shm"
  Cell cell;
  std::string kind;  // "weft"
};

inline bool operator<(const LegName& a, const LegName& b) {
  return std::tie(a.path, a.cell, a.kind) < std::tie(b.path, b.cell, b.kind);
}

// "shm.unary.64B.x1.weft.p50_us"
std::string MetricName(const LegName& leg, std::string_view figure);

struct Outcome {
  int round = 0;  // from 1
  bool fit = true;
  Figures figures;
};

class Results {
 public:
  void Add(const LegName& leg, const Outcome& outcome);

  // Of a figure (figures.h); nullopt for what was not measured.
  std::optional<double> Median(const LegName& leg, std::string_view figure) const;

  const std::map<LegName, std::vector<Outcome>>& legs() const { return legs_; }

 private:
  std::map<LegName, std::vector<Outcome>> legs_;
};

}  // namespace weft::bench
