#pragma once
// Who guesses what a sequence says next. The target verifies every guess, so a proposer changes how
// fast text comes and never which.
//
// Owned by the engine thread. A proposer may keep state per sequence, keyed by its address, which
// is valid until `forget`.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/scheduling/sequence.h"

namespace hearth::engine {

/// Guesses come in classes of how sure their proposer is of them; the chance of being accepted is
/// learned for each class apart.
inline constexpr int32_t kConfidences = 4;

/// A wish for tokens that may follow a sequence's last one, and what came of it.
struct Draft {
  const Sequence* seq = nullptr;
  int32_t max_tokens = 0;       ///< > 0
  std::vector<int32_t> tokens;  ///< out; empty: no guess
  int32_t confidence = 0;       ///< out; 0 .. kConfidences-1, larger is surer
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual std::string_view name() const = 0;
  /// Fills the drafts of all sequences that want one in this step. Deterministic: the same tokens
  /// in the same order of calls give the same guesses. `catch_up_us`: what may be spent, beyond
  /// guessing, on sequences whose past it has not seen yet.
  virtual void propose(std::span<Draft* const> drafts, double catch_up_us) = 0;
  /// The sequence has ended or is about to be forgotten.
  virtual void forget(const Sequence& seq) { (void)seq; }
  /// Whether a guess costs nothing worth counting: then it is asked even where the guess is only
  /// compared with what comes, to learn how good it would have been. One that is not is asked
  /// behind those that are, and where that pays.
  virtual bool free() const { return true; }
  /// What `tokens` guesses each of so many sequences take, in us; nothing where that is not known.
  virtual std::optional<double> propose_us(int32_t sequences, int32_t tokens) const {
    (void)sequences, (void)tokens;
    return 0;
  }
  /// Stops the process where its bookkeeping does not add up.
  virtual void check_integrity() const {}
};

}  // namespace hearth::engine
