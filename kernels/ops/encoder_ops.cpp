#include "kernels/ops/encoder_ops.h"

#include <fmt/core.h>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"

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

}  // namespace

void check_args(const LayerNormArgs& args) {
  check_rows(*args.batch, args.x, args.x.cols, "layer_norm x");
  check_rows(*args.batch, args.out, args.x.cols, "layer_norm out");
  for (const Weight* weight : {args.weight, args.bias}) {
    HEARTH_CHECK(weight != nullptr && weight->vector != nullptr && weight->cols == args.x.cols);
  }
}

void check_args(const GeluArgs& args) { check_rows(*args.batch, args.x, args.x.cols, "gelu x"); }

Result<EncoderOps> encoder_ops(const OpTable& table) {
  if (table.encoder != nullptr) return *table.encoder;
  return Error::unsupported(fmt::format(
      "encoders need layer norms, which this build does not do on {}", table.device.kind));
}

}  // namespace hearth::kernels
