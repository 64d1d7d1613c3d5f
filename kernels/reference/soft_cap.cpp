#include <cmath>

#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void soft_cap(void*, const SoftCapArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, args.rows); ++t) {
    float* x = args.x.row<float>(t);
    for (int64_t c = 0; c < args.x.cols; ++c) {
      double value = double{x[c]} * args.scale;
      if (args.soft_cap > 0) value = args.soft_cap * std::tanh(value / args.soft_cap);
      x[c] = static_cast<float>(value);
    }
  }
}

}  // namespace hearth::kernels::reference
