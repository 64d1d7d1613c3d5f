#pragma once
// Picks tokens from rows of logits on a device that keeps the logits in its own memory: the host
// then reads one token, or the few best ones, instead of a whole vocabulary of numbers.
//
// Tokens are drawn by addressed Gumbel-max. A token's noise is a function of (seed, sample,
// position, token) alone; the argmax of logit / temperature + noise is a draw from softmax(logit /
// temperature) (Maddison, Tarlow and Minka 2014, section 2), the same on every device. A device's
// logarithm may differ from the host's in the last bits, so a device draws no token when two scores
// are so close that the difference could matter.
//
// Arguments and results may lie in memory of OpTable::allocate_host: they are small, and read and
// written once.

#include <cstdint>

#include "kernels/base/numbers.h"
#include "kernels/base/random.h"
#include "kernels/ops.h"

namespace hearth::kernels {

HEARTH_HOST_DEVICE constexpr uint64_t noise_mix(uint64_t x) { return splitmix(x + kSplitMixStep); }
HEARTH_HOST_DEVICE constexpr uint64_t noise_key(uint64_t seed, int32_t sample, int32_t position) {
  return noise_mix(noise_mix(noise_mix(seed) ^ static_cast<uint32_t>(sample)) ^
                   static_cast<uint32_t>(position));
}
/// 64 uniform bits for one token of the row with this key.
HEARTH_HOST_DEVICE constexpr uint64_t noise_bits(uint64_t key, int32_t token) {
  return noise_mix(key ^ static_cast<uint32_t>(token));
}
/// In (0, 1): 52 bits, so that adding the half is exact and the result is below 1. The noise is
/// -log(-log(u)), the standard Gumbel distribution's.
HEARTH_HOST_DEVICE constexpr double noise_uniform(uint64_t bits) {
  return (as_double(bits >> 12) + 0.5) * 0x1p-52;
}

/// How the token of one row is drawn.
struct DrawRow {
  double temperature = 0;  ///< 0: the largest logit, the first among equals
  uint64_t seed = 0;
  int32_t sample = 0;
  int32_t position = 0;  ///< absolute position of the token
};

/// Result of a row that the host has to draw: a logit is not a finite number, or two scores are
/// closer to each other than kDrawSlack.
inline constexpr int32_t kNotDrawn = -1;
/// Difference of scores, relative to the largest if that is above 1. It is a thousand times the
/// difference that the logarithms of two libraries may have.
inline constexpr double kDrawSlack = 1e-11;

/// tokens[i] = the token drawn for row i, or kNotDrawn; rows past the step's outputs are not
/// written.
struct DrawArgs {
  const BatchIndex* batch;
  TensorView logits;    ///< (num_outputs, vocabulary)
  const DrawRow* rows;  ///< (num_outputs)
  int32_t* tokens;      ///< (num_outputs)
};

/// The largest logits of one row, best first; among equals the lower token first.
struct BestLogits {
  static constexpr int32_t kCount = 64;
  float logit[kCount];
  /// kNotDrawn after the last one if there are fewer; in the first element if a logit is not a
  /// finite number.
  int32_t token[kCount];
};

/// best[i] = the largest logits of row i. -0 counts as 0.
struct BestLogitsArgs {
  const BatchIndex* batch;
  TensorView logits;  ///< (num_outputs, vocabulary)
  BestLogits* best;   ///< (num_outputs)
};

/// token_ids[i] = tokens[rows[i]], or 0 if that is kNotDrawn: one step continues with the tokens
/// that another has drawn, before the host has read them. Rows past the step's tokens are not
/// written.
struct FeedArgs {
  const BatchIndex* batch;  ///< of the step that continues
  const int32_t* tokens;    ///< DrawArgs::tokens of the earlier step
  const int32_t* rows;      ///< (num_tokens)
  int32_t* token_ids;       ///< (num_tokens): of the step that continues
};

struct DrawOps {
  void (*draw)(void* state, const DrawArgs&) = nullptr;
  void (*best_logits)(void* state, const BestLogitsArgs&) = nullptr;
  void (*feed)(void* state, const FeedArgs&) = nullptr;
};

}  // namespace hearth::kernels
