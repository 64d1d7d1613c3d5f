#include "ipc/cli/terminal/table.h"

#include <algorithm>
#include <numeric>

#include "ipc/text/shown_text.h"

namespace hearth::cli {
namespace {

constexpr size_t kGap = 2;

bool begins_character(char c) { return (c & 0xC0) != 0x80; }

size_t chars_of(const std::string& text) { return std::ranges::count_if(text, begins_character); }

/// Where the character of that number begins.
size_t byte_of_char(const std::string& text, size_t number) {
  size_t at = 0;
  for (size_t met = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && met++ == number) break;
  }
  return at;
}

}  // namespace

std::string cut_middle(const std::string& text, size_t chars) {
  const size_t all = chars_of(text);
  if (all <= chars || chars == 0) return text;
  const size_t front = (chars - 1) / 2, back = chars - 1 - front;
  return text.substr(0, byte_of_char(text, front)) + "…" +
         text.substr(byte_of_char(text, all - back));
}

std::string table(std::vector<Column> columns, std::vector<std::vector<std::string>> rows,
                  size_t width) {
  std::vector<size_t> widths;
  for (const Column& column : columns) widths.push_back(chars_of(column.title));
  for (std::vector<std::string>& row : rows) {
    row.resize(columns.size());
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = ipc::one_line(row[i], 0);
      widths[i] = std::max(widths[i], chars_of(row[i]));
    }
  }
  const auto total = [&] {
    return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
  };
  while (width > 0 && total() > width) {
    size_t widest = columns.size();
    for (size_t i = 0; i < columns.size(); ++i) {
      const bool may = columns[i].least > 0 && widths[i] > columns[i].least;
      if (may && (widest == columns.size() || widths[i] > widths[widest])) widest = i;
    }
    if (widest == columns.size()) break;
    --widths[widest];
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string cell = cut_middle(cell_of(i), widths[i]);
      const std::string pad(widths[i] - std::min(widths[i], chars_of(cell)), ' ');
      line += (i > 0 ? std::string(kGap, ' ') : "") + (columns[i].right ? pad + cell : cell + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) { return columns[i].title; });
  for (const std::vector<std::string>& row : rows) add_line([&](size_t i) { return row[i]; });
  return out;
}

}  // namespace hearth::cli
