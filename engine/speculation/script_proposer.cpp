#include "engine/speculation/script_proposer.h"

namespace hearth::engine {

void ScriptProposer::propose(std::span<Draft* const> drafts, double) {
  for (Draft* draft : drafts) {
    const Sequence& seq = *draft->seq;
    draft->tokens.clear();
    draft->confidence = kConfidences - 1;
    for (int32_t place = 0; place < draft->max_tokens; ++place) {
      const auto token = script_.draft(seq, seq.tokens.size() + place, place);
      if (!token.has_value()) break;
      draft->tokens.push_back(*token);
    }
  }
}

}  // namespace hearth::engine
