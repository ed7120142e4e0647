#include "bench/perf/results/results.h"

#include <algorithm>

#include "core/strings.h"

namespace weft::bench {
namespace {

double MedianOf(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

}  // namespace

std::string MetricName(const LegName& leg, std::string_view figure) {
  return StrCat(leg.path, ".", NameOf(leg.cell), ".", leg.kind, ".", figure);
}

void Results::Add(const LegName& leg, const Outcome& outcome) { legs_[leg].push_back(outcome); }

std::optional<double> Results::Median(const LegName& leg, std::string_view figure) const {
  const auto found = legs_.find(leg);
  if (found == legs_.end()) return std::nullopt;
  std::vector<double> fit;
  std::vector<double> all;
  for (const Outcome& outcome : found->second) {
    all.push_back(FigureNamed(figure, leg.cell, outcome.figures));
    if (outcome.fit) fit.push_back(all.back());
  }
  return MedianOf(fit.empty() ? all : fit);
}

}  // namespace weft::bench
