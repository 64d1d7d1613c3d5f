#pragma once
// Rows of text in columns, which fit the terminal: names that are too long are cut in the middle.

#include <string>
#include <vector>

namespace hearth::cli {

struct Column {
  std::string title;
  bool right = false;  ///< numbers
  size_t least = 0;    ///< above 0: where the rows are too wide, it is cut to no fewer characters
};

/// Lines of `columns` and `rows`, two blanks between columns, each as wide as its widest cell;
/// cells are shown as one_line() shows them. Where a line has more than `width` characters (0: as
/// many as there are) the widest column that may be cut is, until it fits or all have their least.
std::string table(std::vector<Column> columns, std::vector<std::vector<std::string>> rows,
                  size_t width);

/// "abcdefghij" in 7 characters: "abc…hij". Of valid UTF-8.
std::string cut_middle(const std::string& text, size_t chars);

}  // namespace hearth::cli
