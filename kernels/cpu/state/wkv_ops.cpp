#include "kernels/ops/wkv_ops.h"

#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/recurrent_kernels.h"

namespace hearth::kernels::cpu {

void wkv_inputs(void* state, const WkvInputsArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t width = args.k.cols;
  s.for_each(rows, rows * width * 6, [&](int64_t t, int32_t) {
    if (args.first_v != nullptr) {
      s.states.mix_values(args.first_v->row<float>(t), args.v_gate->row<float>(t),
                          args.v_gate_bias->vector, width, args.v.row<float>(t));
    }
    for (int64_t c = 0; c < width; c += args.head_dim) {
      s.states.wkv_inputs(
          {args.k.row<float>(t) + c, args.decay.row<float>(t) + c, args.rate.row<float>(t) + c,
           args.erased.row<float>(t) + c, args.erased_scale->vector + c, args.rate_bias->vector + c,
           args.k_scale->vector + c, args.decay_bias->vector + c},
          args.head_dim);
    }
  });
}

void wkv_output(void* state, const WkvOutputArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t width = args.y.cols;
  s.for_each(rows, rows * width * 2, [&](int64_t t, int32_t) {
    for (int64_t c = 0; c < width; c += args.head_dim) {
      s.states.wkv_output(
          {args.y.row<float>(t) + c, args.q.row<float>(t) + c, args.k.row<float>(t) + c,
           args.v.row<float>(t) + c, args.bonus->vector + c,
           args.norm == nullptr ? nullptr : args.norm->vector + c,
           args.norm == nullptr ? nullptr : args.norm_bias->vector + c,
           args.gate == nullptr ? nullptr : args.gate->row<float>(t) + c, args.eps},
          args.head_dim);
    }
  });
}

}  // namespace hearth::kernels::cpu
