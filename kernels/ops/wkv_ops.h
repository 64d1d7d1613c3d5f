#pragma once
// Ops of RWKV-7 before and after its scan (HeadScanArgs::erased): on single rows, head by head.
// Source: Peng et al. 2025 (RWKV-7), section 4.1.

#include "kernels/ops/recurrent_ops.h"
#include "kernels/ops/wkv_constants.h"

namespace hearth::kernels {

/// What the scan takes, made in place. For each value i of a row, in head h:
///   v = v + (first_v - v) * sigmoid(v_gate + v_gate_bias), if first_v is given
///   erased = k * erased_scale / max(|k * erased_scale| over the head, 1e-12)
///   r = sigmoid(rate + rate_bias)
///   rate = erased * r            (HeadScanArgs::removed)
///   k = k * (1 + (r - 1) * k_scale)
///   decay = exp(-exp(-1/2) * sigmoid(decay + decay_bias))
/// All tensors are (num_tokens, width), all weights kVector of width.
struct WkvInputsArgs {
  const BatchIndex* batch;
  int32_t head_dim;  ///< a multiple of kStateLanes; divides width
  TensorView k;
  TensorView v;
  TensorView decay;
  TensorView rate;
  TensorView erased;  ///< only written
  const Weight* erased_scale;
  const Weight* rate_bias;
  const Weight* k_scale;
  const Weight* decay_bias;
  const TensorView* first_v = nullptr;  ///< null: v stays, and the next two are null, too
  const TensorView* v_gate = nullptr;
  const Weight* v_gate_bias = nullptr;
};

/// What the scan returned, in place. Head h of each row:
///   y = (y - mean) / sqrt(variance + eps) * norm + norm_bias over the head, if there is a norm
///   y = (y + (sum of q * k * bonus over the head) * v) * gate
/// All tensors are (num_tokens, width), all weights kVector of width.
struct WkvOutputArgs {
  const BatchIndex* batch;
  int32_t head_dim;  ///< as above
  TensorView y;
  TensorView q;
  TensorView k;
  TensorView v;
  const Weight* bonus;
  const Weight* norm = nullptr;  ///< null: none, and no norm_bias
  const Weight* norm_bias = nullptr;
  float eps = 0;
  const TensorView* gate = nullptr;  ///< null: none
};

void check_args(const WkvInputsArgs& args);
void check_args(const WkvOutputArgs& args);

}  // namespace hearth::kernels
