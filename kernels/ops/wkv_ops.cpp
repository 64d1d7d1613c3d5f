#include "kernels/ops/wkv_ops.h"

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/recurrent_kernels.h"

namespace hearth::kernels {
namespace {

void check_heads(int64_t width, int32_t head_dim) {
  HEARTH_CHECK(head_dim > 0 && head_dim % kStateLanes == 0 && width % head_dim == 0,
               "heads of {} in {}", head_dim, width);
}

}  // namespace

void check_args(const WkvInputsArgs& args) {
  const int64_t rows = num_rows(*args.batch, Rows::kTokens), width = args.k.cols;
  check_heads(width, args.head_dim);
  for (const TensorView* view : {&args.k, &args.v, &args.decay, &args.rate, &args.erased}) {
    check_state_rows(*view, rows, width, "wkv_inputs");
  }
  check_state_vector(args.erased_scale, width, "wkv_inputs erased_scale");
  check_state_vector(args.rate_bias, width, "wkv_inputs rate_bias");
  check_state_vector(args.k_scale, width, "wkv_inputs k_scale");
  check_state_vector(args.decay_bias, width, "wkv_inputs decay_bias");
  if (args.first_v == nullptr) return;
  check_state_rows(*args.first_v, rows, width, "wkv_inputs first_v");
  check_state_rows(*args.v_gate, rows, width, "wkv_inputs v_gate");
  check_state_vector(args.v_gate_bias, width, "wkv_inputs v_gate_bias");
}

void check_args(const WkvOutputArgs& args) {
  const int64_t rows = num_rows(*args.batch, Rows::kTokens), width = args.y.cols;
  check_heads(width, args.head_dim);
  for (const TensorView* view : {&args.y, &args.q, &args.k, &args.v}) {
    check_state_rows(*view, rows, width, "wkv_output");
  }
  check_state_vector(args.bonus, width, "wkv_output bonus");
  if (args.gate != nullptr) check_state_rows(*args.gate, rows, width, "wkv_output gate");
  if (args.norm == nullptr) return;
  check_state_vector(args.norm, width, "wkv_output norm");
  check_state_vector(args.norm_bias, width, "wkv_output norm_bias");
}

}  // namespace hearth::kernels
