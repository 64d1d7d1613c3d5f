#include <cmath>

#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void add_scaled(void*, const AddScaledArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    const float* x = args.x.row<float>(t);
    float* out = args.out.row<float>(t);
    double scale = args.scale;
    if (args.gate != nullptr) scale *= 1.0 / (1.0 + std::exp(-double{*args.gate->row<float>(t)}));
    for (int64_t c = 0; c < args.out.cols; ++c) {
      out[c] = static_cast<float>(double{x[c]} * scale + out[c]);
    }
  }
}

}  // namespace hearth::kernels::reference
