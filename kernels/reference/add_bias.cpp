#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void add_bias(void*, const AddBiasArgs& args) {
  check_args(args);
  const int64_t choices = args.ids == nullptr ? 1 : args.ids->cols;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    for (int64_t j = 0; j < choices; ++j) {
      const int64_t expert = args.ids == nullptr ? 0 : args.ids->row<int32_t>(t)[j];
      const float* bias = args.bias->vector + expert * args.out.cols;
      float* out = args.out.row<float>(t * choices + j);
      for (int64_t c = 0; c < args.out.cols; ++c) out[c] += bias[c];
    }
  }
}

}  // namespace hearth::kernels::reference
