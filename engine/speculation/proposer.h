#pragma once
// The interface of proposers, which draft the next tokens of sequences. The target verifies every
// draft token, so a proposer changes the speed of a text and never its content.
//
// Owned by the engine thread. A proposer may keep state per sequence, keyed by its address, which
// is valid until `forget`.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/config.h"
#include "engine/scheduling/sequence.h"

namespace hearth::engine {

class ElasticPools;

/// A proposer assigns each draft to a class of confidence. The chance of acceptance is learned for
/// each class separately.
inline constexpr int32_t kConfidences = 4;

/// Of a draft that continues an equal text: the longer that text, the higher.
constexpr int32_t confidence_of(int64_t equal_tokens) {
  if (equal_tokens >= 12) return 3;
  if (equal_tokens >= 6) return 2;
  return equal_tokens >= 3 ? 1 : 0;
}

/// A request for tokens that may follow a sequence's last one, and the answer.
struct Draft {
  Sequence* seq = nullptr;
  int32_t max_tokens = 0;       ///< > 0
  std::vector<int32_t> tokens;  ///< out; empty: no draft
  int32_t confidence = 0;       ///< out; 0 .. kConfidences-1, larger is more confident
  int32_t max_rivals = 0;       ///< branches wanted at each place, at most
  struct Rival {
    int32_t place = 0;  ///< of `tokens`; it stands in place of that one
    int32_t rank = 0;   ///< 0 .. kMaxRivals-1, smaller is more likely
    std::vector<int32_t> tokens;
  };
  std::vector<Rival> rivals;  ///< out; no two of a place begin with the same token
  void clear() {
    tokens.clear();
    rivals.clear();
  }
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual DraftedBy kind() const = 0;
  /// Fills the drafts of all sequences that want one in this step. Deterministic: the same tokens
  /// in the same order of calls give the same drafts. `catch_up_us`: time that may be spent, in
  /// addition to drafting, on sequences whose earlier tokens it has not computed yet.
  virtual void propose(std::span<Draft* const> drafts, double catch_up_us) = 0;
  /// The sequence is removed.
  virtual void forget(const Sequence& seq) { (void)seq; }
  /// Whether the cost of a draft is negligible. Such a proposer is also asked when no draft is
  /// verified, to learn how good its drafts would have been. A proposer that computes is asked
  /// after those, and only if it pays.
  virtual bool free() const { return true; }
  /// Draft tokens of a sequence that it makes at most.
  virtual int32_t max_tokens() const { return std::numeric_limits<int32_t>::max(); }
  /// The time to draft `tokens` tokens for each of so many sequences, in us; nothing if not known.
  virtual std::optional<double> propose_us(int32_t sequences, int32_t tokens) const {
    (void)sequences, (void)tokens;
    return 0;
  }
  /// Its KV pools; null: it has none.
  virtual ElasticPools* pools() { return nullptr; }
  /// Stops the process if its bookkeeping is inconsistent.
  virtual void check_integrity() const {}
};

}  // namespace hearth::engine
