#include "bench/perf/cell/cell.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr std::pair<Pattern, std::string_view> kPatterns[] = {
    {Pattern::kUnary, "unary"},   {Pattern::kCoroutine, "coroutine"},
    {Pattern::kStream, "stream"}, {Pattern::kMessages, "messages"},
    {Pattern::kBulk, "bulk"},     {Pattern::kBulkChecked, "bulk_checked"},
    {Pattern::kRead, "read"},     {Pattern::kWrite, "write"},
};
// Nothing, a cache line, a small record, a page and around it, and what is bound by bandwidth.
constexpr uint32_t kSizes[] = {0, 64, 300, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20};
// Alone; enough to hide a round trip; enough to fill batches.
constexpr uint32_t kNumbersOutstanding[] = {1, 8, 64};

constexpr std::pair<std::string_view, uint32_t> kUnits[] = {
    {"MiB", 1 << 20}, {"Mi", 1 << 20}, {"KiB", 1 << 10}, {"Ki", 1 << 10}, {"B", 1}, {"", 1}};

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::optional<Pattern> PatternNamed(std::string_view name) {
  for (const auto& [pattern, known] : kPatterns) {
    if (known == name) return pattern;
  }
  return std::nullopt;
}

// "64", "64B", "4Ki", "4KiB", "1MiB".
std::optional<uint32_t> BytesNamed(std::string_view text) {
  for (const auto& [unit, scale] : kUnits) {
    if (!EndsWith(text, unit)) continue;
    uint32_t number = 0;
    text.remove_suffix(unit.size());
    if (!absl::SimpleAtoi(ToAbsl(text), &number) || number > kRegionBytes / scale) break;
    return number * scale;
  }
  return std::nullopt;
}

absl::Status Wrong(std::string_view what, std::string_view text, std::string_view instead) {
  return absl::InvalidArgumentError(StrCat("\"", text, "\" is not ", what, "; there is ", instead));
}

// One part of a filter: all of the axis for "*", else what it names.
template <class Value, class Axis, class Parse>
absl::StatusOr<std::vector<Value>> Values(std::string_view text, const Axis& all, Parse parse,
                                          std::string_view what, const std::string& instead) {
  if (text == "*") return std::vector<Value>(std::begin(all), std::end(all));
  const std::optional<Value> value = parse(text);
  if (!value) return Wrong(what, text, instead);
  return std::vector<Value>{*value};
}

std::vector<Pattern> AllPatterns() {
  std::vector<Pattern> patterns;
  for (const auto& row : kPatterns) patterns.push_back(row.first);
  return patterns;
}

std::string PatternList() {
  return absl::StrJoin(kPatterns, ", ",
                       [](std::string* list, const auto& row) { list->append(row.second); });
}

std::optional<uint32_t> OutstandingNamed(std::string_view text) {
  uint32_t number = 0;
  if (!absl::SimpleAtoi(ToAbsl(text), &number) || number < 1 || number > kMaxOutstanding) {
    return std::nullopt;
  }
  return number;
}

// The cells of one filter.
absl::StatusOr<std::vector<Cell>> CellsOf(std::string_view filter) {
  std::vector<std::string> parts = absl::StrSplit(ToAbsl(filter), ':');
  if (parts.size() > 3) {
    return Wrong("a filter", filter, "PATTERN:BYTES:OUTSTANDING");
  }
  parts.resize(3, "*");
  WEFT_ASSIGN_OR_RETURN(const auto patterns, Values<Pattern>(parts[0], AllPatterns(), PatternNamed,
                                                             "a pattern", PatternList()));
  WEFT_ASSIGN_OR_RETURN(
      const auto sizes,
      Values<uint32_t>(parts[1], kSizes, BytesNamed, "a size up to 16 MiB", "0, 64, 4Ki, 1Mi"));
  WEFT_ASSIGN_OR_RETURN(const auto numbers,
                        Values<uint32_t>(parts[2], kNumbersOutstanding, OutstandingNamed,
                                         "a number outstanding", StrCat("1 to ", kMaxOutstanding)));
  std::vector<Cell> cells;
  for (const Pattern pattern : patterns) {
    for (const uint32_t bytes : sizes) {
      for (const uint32_t outstanding : numbers) cells.push_back({pattern, bytes, outstanding});
    }
  }
  return cells;
}

}  // namespace

std::string_view NameOf(Pattern pattern) {
  for (const auto& [known, name] : kPatterns) {
    if (known == pattern) return name;
  }
  return "";
}

std::string SizeName(uint32_t bytes) {
  for (const auto& [unit, scale] : kUnits) {
    const bool is_long = unit.size() != 2;  // "KiB", not "Ki"
    if (is_long && bytes >= scale && bytes % scale == 0) return StrCat(bytes / scale, unit);
  }
  return StrCat(bytes, "B");
}

std::string NameOf(const Cell& cell) {
  return StrCat(NameOf(cell.pattern), ".", SizeName(cell.bytes), ".x", cell.outstanding);
}

absl::StatusOr<Cell> CellNamed(std::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(name), '.');
  if (parts.size() == 3 && !parts[2].empty() && parts[2][0] == 'x') {
    const auto pattern = PatternNamed(parts[0]);
    const auto bytes = BytesNamed(parts[1]);
    const auto outstanding = OutstandingNamed(parts[2].substr(1));
    if (pattern && bytes && outstanding) return Cell{*pattern, *bytes, *outstanding};
  }
  return Wrong("a cell", name, "unary.64B.x1");
}

std::string WhyNoCell(const Cell& cell) {
  const bool moves_memory = cell.pattern >= Pattern::kBulk;
  if (moves_memory && cell.bytes == 0) return "there is no one-sided transfer of 0 bytes";
  if (cell.pattern == Pattern::kCoroutine && cell.outstanding > 1) {
    return "a coroutine awaits one call at a time";
  }
  if (uint64_t{cell.bytes} * cell.outstanding > kRegionBytes) {
    return StrCat("more outstanding than the ", SizeName(kRegionBytes), " of memory hold");
  }
  return "";
}

std::vector<Cell> AllCells() { return *CellsOf("*"); }

absl::StatusOr<std::vector<Cell>> CellsOnly(std::string_view filters) {
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(filters), ',');
  std::vector<Cell> cells;
  for (const std::string& filter : parts) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Cell> some, CellsOf(filter));
    cells.insert(cells.end(), some.begin(), some.end());
  }
  std::sort(cells.begin(), cells.end());
  cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
  return cells;
}

}  // namespace weft::bench
