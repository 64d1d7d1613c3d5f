#pragma once
// What a person may have meant by a word that is not known. Pure functions.

#include <span>
#include <string>
#include <string_view>

namespace hearth::ipc {

/// The candidate that `word` is nearest to: one that begins with it (of at least three characters,
/// leading dashes not counted), else one at most two edits away (an edit inserts, drops, replaces
/// or swaps characters; one, for words of up to four characters). "": none.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean WORD?", or nothing where `word` is empty.
std::string did_you_mean(std::string_view word);

}  // namespace hearth::ipc
