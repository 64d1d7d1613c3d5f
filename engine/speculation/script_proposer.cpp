#include "engine/speculation/script_proposer.h"

namespace hearth::engine {

void ScriptProposer::propose(std::span<Draft* const> drafts, double catch_up_us) {
  if (model_ != nullptr) model_->propose(drafts, catch_up_us);
  for (Draft* draft : drafts) {
    const Sequence& seq = *draft->seq;
    // Where the model has none (it catches up, or is at its context's end), there is none.
    const size_t count =
        model_ != nullptr ? draft->tokens.size() : static_cast<size_t>(draft->max_tokens);
    draft->tokens.clear();
    if (model_ == nullptr) draft->confidence = kConfidences - 1;
    for (size_t place = 0; place < count; ++place) {
      const auto guess = script_.guess(seq, seq.tokens.size() + place, place);
      if (!guess.has_value()) break;
      draft->tokens.push_back(*guess);
    }
  }
}

void ScriptProposer::forget(const Sequence& seq) {
  if (model_ != nullptr) model_->forget(seq);
}

std::optional<double> ScriptProposer::propose_us(int32_t sequences, int32_t tokens) const {
  if (model_ == nullptr) return 0;
  return model_->propose_us(sequences, tokens);
}

void ScriptProposer::check_integrity() const {
  if (model_ != nullptr) model_->check_integrity();
}

}  // namespace hearth::engine
