#pragma once
// Tables that fit the terminal: long names are shortened in the middle.

#include <string>
#include <vector>

namespace hearth::cli {

struct Column {
  std::string title;
  bool right = false;  ///< align right, for numbers
  size_t least = 0;    ///< above 0: it may be shortened to this many characters
};

/// The table as lines: two blanks between columns, each column as wide as its widest cell, cells as
/// one_line() prints them. If a line has more than `width` characters (0: no bound), the widest
/// column that may be shortened is, until the line fits or all columns are at their least width.
std::string table(std::vector<Column> columns, std::vector<std::vector<std::string>> rows,
                  size_t width);

/// "abcdefghij" in 7 characters: "abc…hij". `text` must be valid UTF-8.
std::string cut_middle(const std::string& text, size_t chars);

}  // namespace hearth::cli
