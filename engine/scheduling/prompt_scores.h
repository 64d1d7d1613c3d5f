#pragma once
// Log probabilities of a prompt's tokens (BlockScores), kept with the blocks of the prompt. A later
// prompt that begins with the same tokens, and wants them too, computes only what follows:
// evaluations ask for many texts that share their first part.
//
// They depend on the tokens up to there and on nothing in the request, so they are exact; they are
// in memory alone, and dropped with their blocks' nodes in the prefix index.

#include "engine/kv/kv_cache.h"
#include "engine/scheduling/sequence.h"

namespace hearth::engine {

/// Prompts that ask for more alternatives keep no scores. Completions of OpenAI's API have 5.
inline constexpr int32_t kMaxKeptBest = 5;

/// Adds to the request's first log probabilities, as far as the next ones are known. At least one
/// is left to be computed.
void take_known_scores(const KvCache& kv, LiveRequest& request);

/// Whether those kept of `from` are all that `request` wants.
bool keeps_scores_for(const Request& from, const Request& request);

/// Keeps those that the request has so far with the indexed blocks of its prompt.
void keep_scores(KvCache& kv, const LiveRequest& request, const SequenceBlocks& blocks);

}  // namespace hearth::engine
