#include "engine/speculation/script_proposer.h"

namespace hearth::engine {

void ScriptProposer::propose(std::span<Draft* const> drafts, double) {
  for (Draft* draft : drafts) {
    const Sequence& seq = *draft->seq;
    draft->tokens.clear();
    draft->confidence = kConfidences - 1;
    for (size_t place = 0; place < static_cast<size_t>(draft->max_tokens); ++place) {
      const auto guess = script_.guess(seq, seq.tokens.size() + place, place);
      if (!guess.has_value()) break;
      draft->tokens.push_back(*guess);
    }
  }
}

}  // namespace hearth::engine
