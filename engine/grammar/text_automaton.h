#pragma once
// Questions about the texts that a pattern matches, decided on its automaton over bytes: whether
// two patterns match one text, and how a matching text can go on. Immutable.

#include <bitset>
#include <cstdint>
#include <optional>
#include <utility>

#include "engine/grammar/grammar.h"

namespace hearth::engine {

class TextAutomaton {
 public:
  using Bytes = std::bitset<256>;

  /// Of a piece without rules. kTooLarge over the bounds of a grammar.
  static Result<TextAutomaton> of(const PiecePtr& piece);

  size_t num_nodes() const { return grammar_.num_nodes(); }
  bool matches_empty() const;
  /// Those that a text begins with.
  Bytes first_bytes() const;
  /// Bytes by which a whole text could be the beginning of a longer one. These and share_text()
  /// take what they need from `steps`, one for each pair of places. Nothing: there are too few.
  std::optional<Bytes> bytes_after(int64_t* steps) const;
  /// Whether a text matches both.
  static std::optional<bool> share_text(const TextAutomaton& a, const TextAutomaton& b,
                                        int64_t* steps);

 private:
  explicit TextAutomaton(Grammar grammar) : grammar_(std::move(grammar)) {}

  /// Calls `visit(node of a, node of b)` for each pair that one text leads to, until it returns
  /// false. Returns false if there are too few steps.
  template <typename Visit>
  static bool walk_pairs(const Grammar& a, const Grammar& b, int64_t* steps, Visit visit);

  Grammar grammar_;
};

}  // namespace hearth::engine
