#pragma once
// Suggestions for a mistyped word. Pure functions.

#include <span>
#include <string>
#include <string_view>

namespace hearth::ipc {

/// The candidate nearest to `word`: one that begins with it (if it has at least three characters,
/// not counting leading dashes), else one at most two edits away, or one edit for words of up to
/// four characters. An edit inserts, drops, replaces or swaps characters. "": none.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean WORD?", or "" if `word` is empty.
std::string did_you_mean(std::string_view word);

}  // namespace hearth::ipc
