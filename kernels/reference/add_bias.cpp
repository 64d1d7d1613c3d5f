#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void add_bias(void*, const AddBiasArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    float* out = args.out.row<float>(t);
    for (int64_t c = 0; c < args.out.cols; ++c) out[c] += args.bias->vector[c];
  }
}

}  // namespace hearth::kernels::reference
