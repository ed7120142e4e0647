#include "tools/weft/table.h"

#include <algorithm>

#include "core/check.h"

namespace weft::tools {
namespace {

constexpr size_t kGap = 2;  // blanks between columns

void TrimRight(std::string* text) { text->erase(text->find_last_not_of(' ') + 1); }

}  // namespace

Table::Table(std::vector<std::string> header) : widths_(header.size(), 0) {
  AddRow(std::move(header));
}

void Table::AddRow(std::vector<std::string> cells) {
  WEFT_CHECK(cells.size() == widths_.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) cells[i] = "-";
    widths_[i] = std::max(widths_[i], cells[i].size());
  }
  lines_.push_back({std::move(cells), ""});
}

void Table::AddText(std::string_view text) {
  for (std::string& line : Wrap(text, kTextColumns - kIndent)) {
    lines_.push_back({{}, std::string(kIndent, ' ') + std::move(line)});
  }
}

std::string Table::FormatCells(const std::vector<std::string>& cells) const {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    text += cells[i] + std::string(widths_[i] + kGap - cells[i].size(), ' ');
  }
  TrimRight(&text);
  return text;
}

std::string Table::text() const {
  std::string text;
  for (const Line& line : lines_) {
    text += (line.cells.empty() ? line.text : FormatCells(line.cells)) + "\n";
  }
  return text;
}

std::vector<std::string> Wrap(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  while (text.size() > columns) {
    size_t end = text.rfind(' ', columns);
    if (end == std::string_view::npos || end == 0)
      end = text.find(' ');  // a word beyond all bounds
    if (end == std::string_view::npos) break;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace weft::tools
