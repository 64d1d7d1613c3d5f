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

/// Sets the request's first log probabilities, as far as they are known. At least one is left to
/// be computed.
void take_known_scores(const KvCache& kv, LiveRequest& request);

/// Keeps those of the request, which are complete, with the indexed blocks of its prompt.
void keep_scores(KvCache& kv, const LiveRequest& request, const SequenceBlocks& blocks);

}  // namespace hearth::engine
