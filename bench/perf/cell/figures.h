// What comes out of one run of one cell.
//
// Threads: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/perf/cell/cell.h"
#include "core/histogram.h"

namespace weft::bench {

// The points of a latency distribution that are kept. The names: "p50", "p99.99".
inline constexpr std::array<double, 11> kPercentiles = {1,  5,  10, 25,   50,   75,
                                                        90, 95, 99, 99.9, 99.99};

inline constexpr size_t kMedianIndex = 4;
static_assert(kPercentiles[kMedianIndex] == 50);

struct Figures {
  double per_s = 0;
  // Of cells with one outstanding, in us, one for each of kPercentiles; else all 0. (A
  // peer's program may tell the median only: the others are 0, then.) For what ran too seldom to
  // have such a percentile it is the largest value.
  std::array<double, kPercentiles.size()> latency_us = {};

  bool is_timed() const { return latency_us[kMedianIndex] > 0; }
};

Figures FiguresOf(const LatencyHistogram& latency);

// One figure by its name: "per_s", "p50_us", "GBps" (10^9 bytes of payload in a second). 0 for what
// this run does not yield.
// REQUIRES: such a name.
double FigureNamed(std::string_view name, const Cell& cell, const Figures& figures);

// The one that counts when cells are compared: the median latency of those that are timed (lower is
// better), the rate of the others.
inline const char* LeadingFigure(const Cell& cell) {
  return cell.outstanding == 1 ? "p50_us" : "per_s";
}

std::string PercentileName(double percent);  // "p99.9"

// One line for pipes between processes, and back. nullopt: not such a line.
std::string ToLine(const Figures& figures);
std::optional<Figures> FiguresFrom(const std::string& line);

}  // namespace weft::bench
