#pragma once
// Verification by rejection sampling, for sampling without a seed. With q the target's and p the
// draft's probabilities of the next token, a draft token x drawn from p is accepted with chance
// min(1, q(x) / p(x)); if it is rejected, the token is drawn from norm(max(0, q - p)) instead. The
// resulting token is distributed as q, whatever p is. Source: Leviathan, Kalman and Matias
// 2023, "Fast inference from transformers via speculative decoding", section 2.3 (with p and q
// exchanged).
//
// The engine does not use it: it verifies by equality under addressed noise (see Speculator), which
// draws from q as well, and for a certain draft (p(x) = 1: lookup) accepts with the same chance
// q(x). Rejection accepts more only for a draft model at high temperatures, and a text that
// depended on its drafts could not be reproduced by the seed that `done` reports.

#include <cstdint>
#include <span>

#include "engine/sampling/sampler.h"

namespace hearth::engine {

struct Verdict {
  bool accepted = false;
  int32_t token = 0;  ///< the draft token, or the one drawn in its place
};

/// `q`, `p`: probabilities by ascending token id, each adding up to 1, after temperature and
/// truncation; tokens that are not in have none. `drafted` was drawn from `p`. `accept_noise` and
/// `draw_noise`: uniform in [0, 1), independent of each other and of the draft.
Verdict verify_by_rejection(std::span<const TokenProbability> q,
                            std::span<const TokenProbability> p, int32_t drafted,
                            double accept_noise, double draw_noise);

}  // namespace hearth::engine
