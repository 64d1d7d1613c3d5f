#pragma once
// Tokens from rows of logits, on a device that has the logits in memory of its own: what the host
// then reads is a token, or the few best ones, instead of a vocabulary of numbers.
//
// A draw is by addressed Gumbel-max. The noise of a token is a function of (seed, sample, position,
// token) alone: argmax of logit / temperature + noise is a draw from softmax(logit / temperature)
// (Maddison, Tarlow and Minka 2014, section 2), the same whoever computes it. A device's logarithm
// is not the host's to the last bit, so a device says nothing where two scores are nearer than that
// could matter.
//
// What is asked and answered may lie in memory of OpTable::allocate_host: it is little, and read
// and written once.

#include <cstdint>

#include "kernels/base/random.h"
#include "kernels/ops.h"

namespace hearth::kernels {

HEARTH_HOST_DEVICE constexpr uint64_t noise_mix(uint64_t x) { return splitmix(x + kSplitMixStep); }
HEARTH_HOST_DEVICE constexpr uint64_t noise_key(uint64_t seed, int32_t sample, int32_t position) {
  return noise_mix(noise_mix(noise_mix(seed) ^ static_cast<uint32_t>(sample)) ^
                   static_cast<uint32_t>(position));
}
/// 64 uniform bits for one token of the row with that key.
HEARTH_HOST_DEVICE constexpr uint64_t noise_bits(uint64_t key, int32_t token) {
  return noise_mix(key ^ static_cast<uint32_t>(token));
}
/// In (0, 1): 52 bits, so that with the half added it is exact and below 1. The noise is
/// -log(-log(u)), the standard Gumbel distribution's.
HEARTH_HOST_DEVICE constexpr double noise_uniform(uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

/// How the token of one row is drawn.
struct DrawRow {
  double temperature = 0;  ///< 0: the largest logit, the first of equals
  uint64_t seed = 0;
  int32_t sample = 0;
  int32_t position = 0;  ///< absolute, of the token
};

/// What a row says where the host has to draw: a logit is not a finite number, or two scores are
/// nearer to each other than kDrawSlack.
inline constexpr int32_t kNotDrawn = -1;
/// Of scores; relative to the largest where that is above 1. A thousand times what the logarithms
/// of two libraries may differ by.
inline constexpr double kDrawSlack = 1e-11;

/// tokens[i] = the token that row i draws, or kNotDrawn; rows past the step's outputs are left
/// alone.
struct DrawArgs {
  const BatchIndex* batch;
  TensorView logits;    ///< (num_outputs, vocabulary)
  const DrawRow* rows;  ///< (num_outputs)
  int32_t* tokens;      ///< (num_outputs)
};

/// The largest logits of one row, best first, of equals the lower token first.
struct BestLogits {
  static constexpr int32_t kCount = 64;
  float logit[kCount];
  /// kNotDrawn behind the last where there are fewer; the first of all where a logit is not a
  /// finite number.
  int32_t token[kCount];
};

/// best[i] = those of row i. -0 counts as 0.
struct BestLogitsArgs {
  const BatchIndex* batch;
  TensorView logits;  ///< (num_outputs, vocabulary)
  BestLogits* best;   ///< (num_outputs)
};

/// token_ids[i] = tokens[rows[i]], or 0 where that is kNotDrawn: a step goes on with what another
/// has drawn, before the host has seen it. Rows past the step's tokens are left alone.
struct FeedArgs {
  const BatchIndex* batch;  ///< of the step that goes on
  const int32_t* tokens;    ///< what DrawArgs::tokens of the other was
  const int32_t* rows;      ///< (num_tokens)
  int32_t* token_ids;       ///< (num_tokens): the step's own
};

struct DrawOps {
  void (*draw)(void* state, const DrawArgs&) = nullptr;
  void (*best_logits)(void* state, const BestLogitsArgs&) = nullptr;
  void (*feed)(void* state, const FeedArgs&) = nullptr;
};

}  // namespace hearth::kernels
