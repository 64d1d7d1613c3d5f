#pragma once
// Models that denoise a canvas: in place of one token after another they fill a canvas of masked
// tokens in several passes, in each of which every token attends to the whole sequence.
//
// Source: Nie et al. 2025 (LLaDA) and its published generate.py; Ye et al. 2025 (Dream) and its
// published generation_utils.py.

#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth::models {

/// By which rule a pass chooses the masked tokens that it fills. The others stay masked.
enum class Remasking : uint8_t {
  kConfidence,  ///< the likeliest draws
  kEntropy,     ///< the places whose distribution has the least entropy
  kMargin,      ///< those where the best token leads the second by most
  kRandom,      ///< as many, at random
  kOrigin,      ///< each with the same chance, independent of the others
};

/// "confidence", "entropy", "margin", "random", "origin"
std::optional<Remasking> remasking_named(std::string_view name);

/// Masked places that one pass draws, at most: each has a row of logits.
inline constexpr int32_t kMostCanvasBlock = 512;
inline constexpr int32_t kMostCanvasSteps = 4096;
/// Tokens of a canvas if a request does not set a number.
inline constexpr int32_t kUsualCanvas = 256;

/// How a model is denoised, and the defaults of its file.
struct CanvasModel {
  int32_t mask_token = -1;    ///< below 0: the model writes from left to right
  bool shift_logits = false;  ///< the logits of a place are those of the row before it
  /// Of n places that are masked in pass i of s, n times the share of the time that passes are
  /// filled, time going from 1 to nearly 0 in s equal steps (Dream). Otherwise the same number in
  /// each pass, and one more in the first ones (LLaDA).
  bool by_time = false;
  /// Confidence, entropy and margin are those of the distribution that is drawn from, after
  /// temperature and truncation (Dream). Otherwise of the plain softmax (LLaDA).
  bool tempered = false;
  int32_t steps = 0;         ///< passes for a whole canvas; 0: one for each token
  int32_t block_length = 0;  ///< 0: the whole canvas is one block
  Remasking remasking = Remasking::kConfidence;
  // Of requests that set none, where the file has none either; no token is cut off by rank.
  float temperature = 0;
  float top_p = 1;
};

/// How one request's canvas is filled.
struct CanvasParams {
  int32_t steps = 1;         ///< passes for the whole canvas; divided by its blocks, rounded up
  int32_t block_length = 1;  ///< 1 to kMostCanvasBlock
  Remasking remasking = Remasking::kConfidence;
};

}  // namespace hearth::models
