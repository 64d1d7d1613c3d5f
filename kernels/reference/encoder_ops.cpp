#include <cmath>

#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels::reference {

void layer_norm(void*, const LayerNormArgs& args) {
  check_args(args);
  const int64_t width = args.x.cols;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    const float* x = args.x.row<float>(t);
    float* out = args.out.row<float>(t);
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += x[c];
    const double mean = sum / as_double(width);
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const double scale = 1.0 / std::sqrt(squares / as_double(width) + args.eps);
    for (int64_t c = 0; c < width; ++c) {
      out[c] =
          static_cast<float>((x[c] - mean) * scale * args.weight->vector[c] + args.bias->vector[c]);
    }
  }
}

void gelu(void*, const GeluArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    float* x = args.x.row<float>(t);
    for (int64_t c = 0; c < args.x.cols; ++c) {
      const double value = x[c];
      x[c] = static_cast<float>(0.5 * value * std::erfc(-value / std::sqrt(2.0)));
    }
  }
}

const EncoderOps kEncoderOps = {layer_norm, gelu, attention_to_all};

}  // namespace hearth::kernels::reference
