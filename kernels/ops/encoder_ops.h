#pragma once
// Ops of encoders, and of the decoders that resemble them or need more than most, and pairs of ops
// that a table may compute at once, on the memory and weights of the OpTable that points to them.
// They keep the rules of kernels/ops.h.

#include "kernels/base/result.h"
#include "kernels/ops.h"

namespace hearth::kernels {

/// out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias. `out` may be `x`.
/// Source: Ba, Kiros and Hinton 2016, equations 3 and 4.
struct LayerNormArgs {
  const BatchIndex* batch;
  TensorView x;          ///< (rows, width)
  const Weight* weight;  ///< kVector of width
  const Weight* bias;    ///< kVector of width; null: none
  float eps;
  TensorView out;  ///< like x
  Rows rows = Rows::kTokens;
};

/// x = x * Phi(x) in place, Phi being the normal distribution function: the exact form, by erf, or
/// the approximation by tanh (Activation::kGeluTanh). Source: Hendrycks and Gimpel 2016, section 2.
struct GeluArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, width)
  bool by_tanh = false;
};

/// x[t] *= 1 + scale * ln(1 + floor(positions[t] / length)), in place; the factor is computed in
/// double and rounded to f32. Source: Nakanishi 2025 (Scalable-Softmax).
struct ScaleByPositionArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, width)
  float scale;
  int32_t length;  ///< at least 1
};

/// x *= sigmoid(gate), in place; `gate` may be `x`. With `alone`, x = sigmoid(gate). Source: Qiu et
/// al. 2025 (Gated Attention).
struct SigmoidGateArgs {
  const BatchIndex* batch;
  TensorView x;     ///< (num_tokens, width)
  TensorView gate;  ///< like x
  bool alone = false;
};

/// x = max(x, 0)^2, in place. Each token has `rows_per_token` rows, as in GatedActivationArgs.
/// Source: So et al. 2021 (Primer), section 3.
struct ReluSquaredArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens * rows_per_token, width)
  int32_t rows_per_token = 1;
};

struct EncoderOps {
  void (*layer_norm)(void* state, const LayerNormArgs&) = nullptr;
  void (*gelu)(void* state, const GeluArgs&) = nullptr;
  /// Like OpTable::attention, but each query attends to all context_len positions of its sequence,
  /// whose K and V are already stored. No window.
  void (*attention_to_all)(void* state, const AttentionArgs&) = nullptr;
  void (*scale_by_position)(void* state, const ScaleByPositionArgs&) = nullptr;
  void (*sigmoid_gate)(void* state, const SigmoidGateArgs&) = nullptr;
  /// Null in a table without it.
  void (*relu_squared)(void* state, const ReluSquaredArgs&) = nullptr;
  /// OpTable::rope and then OpTable::kv_store in one launch, with the bits of both. K is the last
  /// heads of the first op's x; what is left in its place is undefined. Null: call the two.
  void (*rotate_and_store)(void* state, const RopeArgs&, const KvStoreArgs&) = nullptr;
  /// OpTable::matmul and then OpTable::gated_activation of its output, with the bits of both and,
  /// for few rows, in one launch. Null: call the two.
  void (*multiply_and_gate)(void* state, const MatmulArgs&, const GatedActivationArgs&) = nullptr;
};

/// The table's encoder ops. kUnsupported if it has none.
Result<EncoderOps> encoder_ops(const OpTable& table);

}  // namespace hearth::kernels
