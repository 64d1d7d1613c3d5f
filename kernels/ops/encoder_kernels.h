#pragma once
// The encoders' ops by table. Private to kernels/.

#include "kernels/ops/encoder_ops.h"

namespace hearth::kernels {

void check_args(const LayerNormArgs& args);
void check_args(const GeluArgs& args);
void check_args(const ScaleByPositionArgs& args);
void check_args(const SigmoidGateArgs& args);
void check_args(const ReluSquaredArgs& args);
/// What the row at `position` is multiplied by.
float position_factor(const ScaleByPositionArgs& args, int32_t position);

namespace reference {
void layer_norm(void*, const LayerNormArgs&);
void gelu(void*, const GeluArgs&);
void attention_to_all(void*, const AttentionArgs&);
void attention_to_all_exact(void*, const AttentionArgs&);  ///< as attention_exact
void scale_by_position(void*, const ScaleByPositionArgs&);
void sigmoid_gate(void*, const SigmoidGateArgs&);
void relu_squared(void*, const ReluSquaredArgs&);
extern const EncoderOps kEncoderOps;
extern const EncoderOps kExactEncoderOps;
}  // namespace reference

namespace cpu {
void layer_norm(void*, const LayerNormArgs&);
void gelu(void*, const GeluArgs&);
void attention_to_all(void*, const AttentionArgs&);
void scale_by_position(void*, const ScaleByPositionArgs&);
void sigmoid_gate(void*, const SigmoidGateArgs&);
void relu_squared(void*, const ReluSquaredArgs&);
extern const EncoderOps kEncoderOps;
}  // namespace cpu

namespace cuda {
void layer_norm(void*, const LayerNormArgs&);
void gelu(void*, const GeluArgs&);
void attention_to_all(void*, const AttentionArgs&);
void scale_by_position(void*, const ScaleByPositionArgs&);
void sigmoid_gate(void*, const SigmoidGateArgs&);
void relu_squared(void*, const ReluSquaredArgs&);
void rotate_and_store(void*, const RopeArgs&, const KvStoreArgs&);
void multiply_and_gate(void*, const MatmulArgs&, const GatedActivationArgs&);
}  // namespace cuda

}  // namespace hearth::kernels
