#pragma once
// Drafts from a text that the client expects the output to resemble: a file before an edit, for
// example. It follows the output through the prediction token by token. Where they differ it
// assumes that one token replaces another, until the last tokens of the output occur again in the
// prediction: first near the place where they parted, then anywhere.
// Interface as in OpenAI's predicted outputs; the method is prompt lookup with an expected place.

#include <cstdint>
#include <span>
#include <unordered_map>

#include "engine/speculation/proposer.h"

namespace hearth::engine {

class PredictionProposer final : public Proposer {
 public:
  /// Of a longer prediction only the first tokens are used, because a search passes over all.
  static constexpr size_t kMaxTokens = 1 << 16;

  DraftedBy kind() const override { return DraftedBy::kPrediction; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;
  void forget(const Sequence& seq) override { places_.erase(&seq); }

  size_t num_sequences() const { return places_.size(); }

 private:
  struct Place {
    size_t seen = 0;    ///< tokens of the sequence that were followed
    size_t next = 0;    ///< position in the prediction of the token that is expected now
    size_t parted = 0;  ///< position in the prediction up to which it was followed last
    size_t equal = 0;   ///< tokens before `next` that are equal to the last ones of the sequence
    bool lost = false;  ///< they parted, and too few equal tokens have followed
  };

  static void follow(std::span<const int32_t> text, std::span<const int32_t> prediction,
                     Place* place);

  std::unordered_map<const Sequence*, Place> places_;
};

}  // namespace hearth::engine
