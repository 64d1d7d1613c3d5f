#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void rope_table(void*, const RopeTableArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    float* out = args.cos_sin.row<float>(t);
    for (int64_t i = 0; i < args.inv_freq->cols; ++i) {
      const double angle = as_double(args.batch->positions[t]) * args.inv_freq->vector[i];
      out[2 * i] = static_cast<float>(std::cos(angle) * args.magnitude);
      out[2 * i + 1] = static_cast<float>(std::sin(angle) * args.magnitude);
    }
  }
}

void rope(void*, const RopeArgs& args) {
  check_args(args);
  const int64_t pairs = args.cos_sin.cols / 2;
  const bool neighbours = args.pairs == RopePairs::kNeighbours;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    const float* cos_sin = args.cos_sin.row<float>(t);
    for (int32_t h = 0; h < args.num_heads; ++h) {
      float* x = args.x.row<float>(t) + int64_t{h} * args.head_dim + args.first;
      for (int64_t i = 0; i < pairs; ++i) {
        float& a = x[neighbours ? 2 * i : i];
        float& b = x[neighbours ? 2 * i + 1 : i + pairs];
        const double c = cos_sin[2 * i];
        const double s = cos_sin[2 * i + 1];
        const double rotated = a * c - b * s;
        b = static_cast<float>(b * c + a * s);
        a = static_cast<float>(rotated);
      }
    }
  }
}

void copy_heads(void*, const CopyHeadsArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    for (int64_t h = 0; h < args.num_heads; ++h) {
      const float* from = args.x.row<float>(t) + h * args.x_dim + args.x_first;
      std::copy_n(from, args.count, args.out.row<float>(t) + h * args.out_dim + args.out_first);
    }
  }
}

}  // namespace hearth::kernels::reference
