#include "bench/scale/scale_report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weft::bench {
namespace {

std::string GoalOf(const ScaleRow& row) {
  if (row.at_most) return absl::StrFormat("<= %g", *row.at_most);
  if (row.at_least) return absl::StrFormat(">= %g", *row.at_least);
  return "";
}

bool HasGoal(const ScaleRow& row) { return row.at_most || row.at_least; }

bool IsMet(const ScaleRow& row) {
  return (!row.at_most || row.value <= *row.at_most) &&
         (!row.at_least || row.value >= *row.at_least);
}

std::string VerdictOn(const ScaleRow& row) {
  if (!HasGoal(row)) return "";
  return IsMet(row) ? "met" : "missed";
}

// "goals: 2 of 31 missed: scale.shm.many.p50_ratio, ..."
std::string GoalsOf(const std::vector<ScaleRow>& rows) {
  size_t goals = 0;
  std::vector<std::string> missed;
  for (const ScaleRow& row : rows) {
    goals += HasGoal(row);
    if (!IsMet(row)) missed.push_back(row.metric);
  }
  if (goals == 0) return "goals: none\n";
  if (missed.empty()) return absl::StrFormat("goals: all %d met\n", goals);
  return absl::StrFormat("goals: %d of %d missed: %s\n", missed.size(), goals,
                         absl::StrJoin(missed, ", "));
}

}  // namespace

void ScaleReport::Fail(std::string text) {
  complete_ = false;
  Note("failed: " + text);
}

std::string ScaleReport::ToTable() const {
  std::string table;
  for (const ScaleRow& row : rows_) {
    std::string line = absl::StrFormat("%-62s%10.3f %-8s%9s  %s", row.what, row.value, row.unit,
                                       GoalOf(row), VerdictOn(row));
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + "\n";
  }
  for (const std::string& note : notes_) table += note + "\n";
  return table + GoalsOf(rows_);
}

std::string ScaleReport::ToJsonLines() const {
  std::string lines;
  for (const ScaleRow& row : rows_) {
    absl::StrAppendFormat(&lines, "{\"metric\": \"%s\", \"value\": %.6g}\n", row.metric, row.value);
  }
  return lines;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

}  // namespace weft::bench
