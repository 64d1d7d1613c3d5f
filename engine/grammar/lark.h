#pragma once
// Grammars in Lark's notation (lark-parser, without its own parser): texts that `start` derives,
// each terminal standing for a text that it matches.
//
// A parser of such a grammar cuts the text into terminals first, each as long as possible. So where
// one terminal follows another, no character of the second may go on with the first. If one could,
// something that %ignore allows is written in between, or else the grammar is refused.
// Of %ignore only whitespace is written, never comments.

#include <cstdint>
#include <string_view>

#include "engine/grammar/grammar.h"
#include "engine/grammar/rule_set.h"

namespace hearth::engine {

/// The texts of a grammar; its rules are added to `rules`. Each character goes through `encode`, as
/// in compile_pattern(). Takes what it needs from `steps` (TextAutomaton). Errors as read_lark().
Result<PiecePtr> compile_lark(std::string_view source, RuleSet& rules,
                              PiecePtr (*encode)(const CharRanges&), int64_t* steps);

}  // namespace hearth::engine
