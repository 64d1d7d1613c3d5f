#include "engine/speculation/lookup_proposer.h"

namespace hearth::engine {

void LookupProposer::propose(std::span<Draft* const> drafts, double) {
  for (Draft* draft : drafts) {
    const LiveRequest& live = *draft->seq->request;
    const int32_t longest = live.prompt_size() + live.request.max_tokens;
    LookupIndex& index = indexes_.try_emplace(draft->seq, longest).first->second;
    const LookupIndex::Match match = index.find(draft->seq->tokens);
    LookupIndex::draft(draft->seq->tokens, match, draft->max_tokens, draft->tokens);
    draft->confidence = confidence_of(match.length);
  }
}

}  // namespace hearth::engine
