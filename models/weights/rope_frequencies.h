#pragma once
// The angles of rotary position embedding, and how they are stretched for contexts longer than the
// ones a model was first trained on.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::models {

class GgufFile;

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kYarn };  // LongRoPE is kNone with divisors

  int32_t dim = 0;        ///< values of each head that are rotated; even
  float base = 10000.0f;  ///< frequency of pair i is base^(-2i/dim)
  Scaling scaling = Scaling::kNone;
  float factor = 1.0f;            ///< positions are squeezed by this much; >= 1
  float attention_factor = 1.0f;  ///< multiplies cos and sin
  /// Context length of the original training, if the file gives it (YaRN and LongRoPE); else the
  /// largest number.
  int32_t original_context = INT32_MAX;
  bool needs_divisors = false;  ///< LongRoPE: an error without its tensors
  // YaRN only.
  float beta_fast =
      32.0f;  ///< pairs with more turns than this over original_context keep their frequency,
  float beta_slow = 1.0f;     ///< pairs with fewer turns are squeezed, those between are blended
  bool rounded_range = true;  ///< the range of blended pairs is widened to whole pairs

  /// Reads ARCHITECTURE.rope.*. kCorrupt and kUnsupported name the key.
  static Result<RopeConfig> load(const GgufFile& file, std::string_view architecture,
                                 int32_t head_dim);
};

/// Frequency of each of the dim / 2 pairs. `divisors` (empty, or one per pair) is the tensor
/// rope_freqs.weight, in which Llama 3.1 files store their scaling, or one of LongRoPE's
/// rope_factors_long.weight and rope_factors_short.weight.
/// Source: Su et al. 2021; Chen et al. 2023 (linear); Peng et al. 2023 (YaRN) section 3.2; Ding et
/// al. 2024 (LongRoPE).
std::vector<float> rope_frequencies(const RopeConfig& config, std::span<const float> divisors);

/// The multiplier of cos and sin: attention_factor, for YaRN (section 3.4) times
/// 0.1 ln(factor) + 1.
float rope_magnitude(const RopeConfig& config);

}  // namespace hearth::models
