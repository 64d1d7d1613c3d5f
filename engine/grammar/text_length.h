#pragma once
// Pieces that match texts of bounded length, for patterns next to minLength and maxLength.

#include <cstdint>

#include "engine/grammar/grammar.h"

namespace hearth::engine {

/// `piece`, whose leaves are single characters, restricted to texts of `min` to `max` characters
/// (max -1: any number). It may match fewer texts than there are of such lengths, but always some.
/// Null: none was found.
PiecePtr with_length(const PiecePtr& piece, int64_t min, int64_t max);

/// The same piece with `encode(chars)` in place of each leaf.
PiecePtr encoded(const PiecePtr& piece, PiecePtr (*encode)(const CharRanges&));

}  // namespace hearth::engine
