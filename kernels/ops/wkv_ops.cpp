#include "kernels/ops/wkv_ops.h"

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"

namespace hearth::kernels {
namespace {

void check_rows(const BatchIndex& batch, const TensorView& view, int64_t cols, const char* what) {
  const int32_t rows = num_rows(batch, Rows::kTokens);
  HEARTH_CHECK(rows == 0 || view.data != nullptr, "{}", what);
  HEARTH_CHECK(view.dtype == DType::kF32 && view.rows >= rows && view.cols == cols &&
                   view.row_stride >= cols,
               "{}: ({}, {}) stride {}, want ({}, {})", what, view.rows, view.cols, view.row_stride,
               rows, cols);
}

void check_vector(const Weight* weight, int64_t cols, const char* what) {
  HEARTH_CHECK(weight != nullptr && weight->vector != nullptr && weight->cols == cols, "{}", what);
}

void check_heads(int64_t width, int32_t head_dim) {
  HEARTH_CHECK(head_dim > 0 && head_dim % kStateLanes == 0 && width % head_dim == 0,
               "heads of {} in {}", head_dim, width);
}

}  // namespace

void check_args(const WkvInputsArgs& args) {
  const int64_t width = args.k.cols;
  check_heads(width, args.head_dim);
  for (const TensorView* view : {&args.k, &args.v, &args.decay, &args.rate, &args.erased}) {
    check_rows(*args.batch, *view, width, "wkv_inputs");
  }
  check_vector(args.erased_scale, width, "wkv_inputs erased_scale");
  check_vector(args.rate_bias, width, "wkv_inputs rate_bias");
  check_vector(args.k_scale, width, "wkv_inputs k_scale");
  check_vector(args.decay_bias, width, "wkv_inputs decay_bias");
  if (args.first_v == nullptr) return;
  check_rows(*args.batch, *args.first_v, width, "wkv_inputs first_v");
  check_rows(*args.batch, *args.v_gate, width, "wkv_inputs v_gate");
  check_vector(args.v_gate_bias, width, "wkv_inputs v_gate_bias");
}

void check_args(const WkvOutputArgs& args) {
  const int64_t width = args.y.cols;
  check_heads(width, args.head_dim);
  for (const TensorView* view : {&args.y, &args.q, &args.k, &args.v}) {
    check_rows(*args.batch, *view, width, "wkv_output");
  }
  check_vector(args.bonus, width, "wkv_output bonus");
  if (args.gate != nullptr) check_rows(*args.batch, *args.gate, width, "wkv_output gate");
  if (args.norm == nullptr) return;
  check_vector(args.norm, width, "wkv_output norm");
  check_vector(args.norm_bias, width, "wkv_output norm_bias");
}

}  // namespace hearth::kernels
