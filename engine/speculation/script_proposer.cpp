#include "engine/speculation/script_proposer.h"

#include <algorithm>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

void ScriptProposer::propose(std::span<Draft* const> drafts, double) {
  for (Draft* draft : drafts) {
    draft->clear();
    draft->confidence = kConfidences - 1;
    append(*draft->seq, 0, draft->max_tokens, &draft->tokens);
    const int32_t ranks = std::min(draft->max_rivals, narrow<int32_t>(script_.num_rivals()));
    for (int32_t place = 0; place < size32(draft->tokens); ++place) {
      const size_t position = draft->seq->tokens.size() + place;
      for (int32_t rank = 0; rank < ranks; ++rank) {
        Draft::Rival rival{place, rank, {}};
        rival.tokens.push_back(script_.rival(*draft->seq, position, place, rank).value());
        append(*draft->seq, place + 1, draft->max_tokens, &rival.tokens);
        draft->rivals.push_back(std::move(rival));
      }
    }
  }
}

// The drafts of places [first, end), as far as the text is known.
void ScriptProposer::append(const Sequence& seq, int32_t first, int32_t end,
                            std::vector<int32_t>* tokens) const {
  for (int32_t place = first; place < end; ++place) {
    const auto token = script_.draft(seq, seq.tokens.size() + place, place);
    if (!token.has_value()) return;
    tokens->push_back(*token);
  }
}

}  // namespace hearth::engine
