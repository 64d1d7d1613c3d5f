#pragma once
// Sets of texts that patterns match, as pieces whose leaves are single characters: keys that match
// patternProperties and are not among properties. By derivatives: what may follow a character.
// Source: Brzozowski 1964.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"

namespace hearth::engine {

/// Steps that the questions about one schema may take in all. A step handles about one piece.
inline constexpr int64_t kTextSetSteps = 2'000'000;

/// Whether the whole text matches. Takes what it needs from `steps`. Nothing: there are too few.
std::optional<bool> matches_text(const PiecePtr& pattern, std::string_view text, int64_t* steps);

/// The same texts without these. `parts` is empty if none is left. Nothing: too few steps, or a
/// text of more than 200 characters that matches.
std::optional<PiecePtr> without_texts(const PiecePtr& pattern, std::vector<std::string> texts,
                                      int64_t* steps);

}  // namespace hearth::engine
