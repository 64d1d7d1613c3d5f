#pragma once
// Wraps help texts to the width of a terminal.

#include <string>
#include <string_view>

namespace hearth::ipc {

/// Wraps lines of more than `columns` characters. The rest is indented to where the description
/// begins: after the first run of two blanks that follows the leading words, else after the line's
/// indent. A word longer than a line is not broken.
std::string wrap_lines(std::string_view text, size_t columns);

}  // namespace hearth::ipc
