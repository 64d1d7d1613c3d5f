#pragma once
// Help that fits a terminal.

#include <string>
#include <string_view>

namespace hearth::ipc {

/// Lines of more than `columns` characters go on below, under where their description begins:
/// behind the first run of two blanks after the words at their beginning, else behind their indent.
/// A word that is longer than a line stays whole.
std::string wrap_lines(std::string_view text, size_t columns);

}  // namespace hearth::ipc
