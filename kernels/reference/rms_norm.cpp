#include <cmath>

#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void rms_norm(void*, const RmsNormArgs& args) {
  check_args(args);
  const int64_t width = args.weight->cols;
  for (int32_t t = 0; t < num_rows(*args.batch, args.rows); ++t) {
    for (int64_t first = 0; first < args.x.cols; first += width) {
      const float* x = args.x.row<float>(t) + first;
      float* out = args.out.row<float>(t) + first;
      double sum = 0;
      for (int64_t c = 0; c < width; ++c) sum += double{x[c]} * x[c];
      const double scale = 1.0 / std::sqrt(sum / as_double(width) + args.eps);
      for (int64_t c = 0; c < width; ++c) {
        out[c] = static_cast<float>(x[c] * scale * args.weight->vector[c]);
      }
    }
  }
}

}  // namespace hearth::kernels::reference
