#include "kernels/ops/encoder_ops.h"

#include <fmt/core.h>

#include <cmath>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

void check_rows(int32_t rows, const TensorView& view, int64_t cols, const char* what) {
  HEARTH_CHECK(rows == 0 || view.data != nullptr, "{}", what);
  HEARTH_CHECK(view.dtype == DType::kF32 && view.rows >= rows && view.cols == cols &&
                   view.row_stride >= cols,
               "{}: ({}, {}) stride {}, want ({}, {})", what, view.rows, view.cols, view.row_stride,
               rows, cols);
}

}  // namespace

void check_args(const LayerNormArgs& args) {
  const int32_t rows = num_rows(*args.batch, args.rows);
  check_rows(rows, args.x, args.x.cols, "layer_norm x");
  check_rows(rows, args.out, args.x.cols, "layer_norm out");
  HEARTH_CHECK(args.weight != nullptr);
  for (const Weight* weight : {args.weight, args.bias}) {
    if (weight == nullptr) continue;
    HEARTH_CHECK(weight->vector != nullptr && weight->cols == args.x.cols);
  }
}

void check_args(const GeluArgs& args) {
  check_rows(num_rows(*args.batch, Rows::kTokens), args.x, args.x.cols, "gelu x");
}

void check_args(const ScaleByPositionArgs& args) {
  check_rows(num_rows(*args.batch, Rows::kTokens), args.x, args.x.cols, "scale_by_position x");
  HEARTH_CHECK(args.length > 0, "length {}", args.length);
}

float position_factor(const ScaleByPositionArgs& args, int32_t position) {
  return static_cast<float>(1.0 + args.scale * std::log1p(position / args.length));
}

void check_args(const SigmoidGateArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  check_rows(rows, args.x, args.x.cols, "sigmoid_gate x");
  check_rows(rows, args.gate, args.x.cols, "sigmoid_gate gate");
}

void check_args(const ReluSquaredArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens) * args.rows_per_token;
  check_rows(rows, args.x, args.x.cols, "relu_squared x");
}

Result<EncoderOps> encoder_ops(const OpTable& table) {
  if (table.encoder != nullptr) return *table.encoder;
  return Error::unsupported(fmt::format(
      "encoders need layer norms, which this build does not do on {}", table.device.kind));
}

}  // namespace hearth::kernels
