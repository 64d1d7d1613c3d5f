#include "ipc/text/wrap_lines.h"

#include <algorithm>

namespace hearth::ipc {
namespace {

/// Where what follows the first column of a line begins.
size_t indent_of(std::string_view line, size_t columns) {
  const size_t text = std::min(line.find_first_not_of(' '), line.size());
  if (text == 0) return 0;  // a paragraph
  const size_t gap = line.find("  ", text);
  if (gap == line.npos) return text;
  const size_t description = std::min(line.find_first_not_of(' ', gap), line.size());
  return description < columns / 2 + columns / 8 ? description : text;
}

void wrap(std::string_view line, size_t columns, std::string* out) {
  const size_t indent = indent_of(line, columns);
  std::string rest(line);
  while (rest.size() > columns) {
    const size_t least = std::min(rest.find_first_not_of(' '), rest.size());
    size_t at = rest.rfind(' ', columns);
    if (at == rest.npos || at <= std::max(least, indent)) {
      at = rest.find(' ', std::max(columns, least));
    }
    if (at == rest.npos) break;
    *out += rest.substr(0, rest.find_last_not_of(' ', at) + 1) + "\n";
    rest = std::string(indent, ' ') +
           rest.substr(std::min(rest.find_first_not_of(' ', at), rest.size()));
  }
  *out += rest;
}

}  // namespace

std::string wrap_lines(std::string_view text, size_t columns) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    wrap(text.substr(0, end), columns, &out);
    if (end < text.size()) out += "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace hearth::ipc
