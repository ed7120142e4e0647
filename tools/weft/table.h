// Tables for people: aligned columns, and wrapped lines of text below a row.
//
// Threads: plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::tools {

class Table {
 public:
  // Lines of text are wrapped here; a terminal of 100 columns shows them whole.
  static constexpr size_t kTextColumns = 100;
  static constexpr size_t kIndent = 4;

  explicit Table(std::vector<std::string> header);

  // REQUIRES: as many cells as the header. An empty cell is shown as "-".
  void AddRow(std::vector<std::string> cells);
  // Below the row, indented. A text that would not fit is broken at its blanks.
  void AddText(std::string_view text);

  std::string text() const;

 private:
  struct Line {
    std::vector<std::string> cells;  // empty: `text`
    std::string text;
  };
  std::string FormatCells(const std::vector<std::string>& cells) const;

  std::vector<size_t> widths_;
  std::vector<Line> lines_;
};

// Broken at blanks into lines of `columns` at most, where words allow.
std::vector<std::string> Wrap(std::string_view text, size_t columns);

}  // namespace weft::tools
