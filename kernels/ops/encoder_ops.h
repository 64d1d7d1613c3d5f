#pragma once
// Ops that only encoders need, on the memory and weights of the OpTable that points to them. They
// keep the rules of kernels/ops.h.

#include "kernels/base/result.h"
#include "kernels/ops.h"

namespace hearth::kernels {

/// out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias. `out` may be `x`.
/// Source: Ba, Kiros and Hinton 2016, equations 3 and 4.
struct LayerNormArgs {
  const BatchIndex* batch;
  TensorView x;          ///< (num_tokens, width)
  const Weight* weight;  ///< kVector of width
  const Weight* bias;    ///< kVector of width
  float eps;
  TensorView out;  ///< like x
};

/// x = x * Phi(x) in place, Phi being the normal distribution function: the exact form, by erf.
/// Source: Hendrycks and Gimpel 2016, section 2.
struct GeluArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, width)
};

struct EncoderOps {
  void (*layer_norm)(void* state, const LayerNormArgs&) = nullptr;
  void (*gelu)(void* state, const GeluArgs&) = nullptr;
  /// Like OpTable::attention, but each query attends to all context_len positions of its sequence,
  /// whose K and V are already stored. No window.
  void (*attention_to_all)(void* state, const AttentionArgs&) = nullptr;
};

/// The table's encoder ops. kUnsupported if it has none.
Result<EncoderOps> encoder_ops(const OpTable& table);

}  // namespace hearth::kernels
