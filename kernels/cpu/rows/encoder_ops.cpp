#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels::cpu {

void layer_norm(void* state, const LayerNormArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, args.rows);
  const float* bias = args.bias == nullptr ? nullptr : args.bias->vector;
  s.for_each(rows, rows * args.x.cols / 2, [&](int64_t t, int32_t) {
    s.rows.layer_norm(args.x.row<float>(t), args.weight->vector, bias, args.eps, args.x.cols,
                      args.out.row<float>(t));
  });
}

void gelu(void* state, const GeluArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const auto gelu_row = args.by_tanh ? s.rows.gelu_tanh : s.rows.gelu_erf;
  s.for_each(rows, rows * args.x.cols * 2,
             [&](int64_t t, int32_t) { gelu_row(args.x.row<float>(t), args.x.cols); });
}

void scale_by_position(void* state, const ScaleByPositionArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  s.for_each(rows, rows * args.x.cols / 4, [&](int64_t t, int32_t) {
    const float factor = position_factor(args, args.batch->positions[t]);
    if (factor != 1) s.rows.soft_cap(args.x.row<float>(t), args.x.cols, factor, 0.0f);
  });
}

void sigmoid_gate(void* state, const SigmoidGateArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  s.for_each(rows, rows * args.x.cols * 2, [&](int64_t t, int32_t) {
    s.rows.sigmoid_gate(args.gate.row<float>(t), args.x.cols, args.alone, args.x.row<float>(t));
  });
}

void relu_squared(void* state, const ReluSquaredArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens) * args.rows_per_token;
  s.for_each(rows, rows * args.x.cols / 4,
             [&](int64_t t, int32_t) { s.rows.relu_squared(args.x.row<float>(t), args.x.cols); });
}

const EncoderOps kEncoderOps = {layer_norm,        gelu,         attention_to_all,
                                scale_by_position, sigmoid_gate, relu_squared};

}  // namespace hearth::kernels::cpu
