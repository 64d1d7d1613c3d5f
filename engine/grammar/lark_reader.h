#pragma once
// Reads a grammar in Lark's notation. lark.cpp makes rules of it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"

namespace hearth::engine {

/// Bounds of one grammar.
inline constexpr size_t kMostLarkBytes = 100'000;
inline constexpr size_t kMostLarkSymbols = 512;  ///< rules, and terminals that they use

struct LarkItem {
  enum class Type { kTerminal, kRule, kSeq, kAny, kRepeat };
  Type type = Type::kSeq;
  int32_t symbol = 0;  ///< number of the terminal or rule
  std::vector<LarkItem> parts{};
  int32_t min = 0;
  int32_t max = -1;  ///< -1: any number
};

struct LarkGrammar {
  struct Terminal {
    std::string name;  ///< for messages; its source if it has no name
    PiecePtr text;     ///< leaves are single characters
  };
  struct Rule {
    std::string name;
    LarkItem body;  ///< one of sequences
  };
  std::vector<Terminal> terminals;
  std::vector<Rule> rules;  ///< the first is `start`
  std::vector<PiecePtr> ignored;
};

/// kInvalidArgument: not a grammar; kUnsupported: names what is not supported; kTooLarge. Messages
/// begin with "lark".
Result<LarkGrammar> read_lark(std::string_view source);

}  // namespace hearth::engine
