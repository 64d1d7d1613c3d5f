#pragma once
// Rivals of a draft token: the next best tokens at its place.

#include <span>

#include "engine/sampling/sampler.h"
#include "engine/speculation/proposer.h"
#include "engine/speculation/replay_pattern.h"

namespace hearth::engine {

/// Appends to draft->rivals those of the token at draft place `place`, which was drawn with `args`
/// from `logits`: each is what would be drawn without those before it, with the same noise. Stop
/// ids are left out, because no text follows them.
void draw_rivals(Sampler& sampler, std::span<float> logits, const SampleArgs& args, int32_t token,
                 int32_t place, Draft* draft);

/// The same for a draft token of the script. The draft's sequence must be the text's.
void replay_rivals(const ReplayScript& script, int32_t position, int32_t place, Draft* draft);

}  // namespace hearth::engine
