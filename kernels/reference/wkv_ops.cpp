#include "kernels/ops/wkv_ops.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/recurrent_kernels.h"

namespace hearth::kernels::reference {
namespace {

void mix_first_v(const WkvInputsArgs& args, int32_t t) {
  if (args.first_v == nullptr) return;
  float* v = args.v.row<float>(t);
  for (int64_t c = 0; c < args.v.cols; ++c) {
    const double gate =
        sigmoid(double{args.v_gate->row<float>(t)[c]} + args.v_gate_bias->vector[c]);
    v[c] = rounded(v[c] + (double{args.first_v->row<float>(t)[c]} - v[c]) * gate);
  }
}

void inputs_of_head(const WkvInputsArgs& args, int32_t t, int64_t first) {
  const int64_t end = first + args.head_dim;
  float* k = args.k.row<float>(t);
  float* decay = args.decay.row<float>(t);
  float* rate = args.rate.row<float>(t);
  float* erased = args.erased.row<float>(t);
  double squares = 0;
  for (int64_t c = first; c < end; ++c) {
    const double key = double{k[c]} * args.erased_scale->vector[c];
    squares += key * key;
  }
  const double length = std::max(std::sqrt(squares), double{kWkvLeastNorm});
  for (int64_t c = first; c < end; ++c) {
    const double key = double{k[c]} * args.erased_scale->vector[c] / length;
    const double r = sigmoid(double{rate[c]} + args.rate_bias->vector[c]);
    erased[c] = rounded(key);
    rate[c] = rounded(key * r);
    k[c] = rounded(k[c] * (1 + (r - 1) * args.k_scale->vector[c]));
    const double power = sigmoid(double{decay[c]} + args.decay_bias->vector[c]);
    decay[c] = rounded(std::exp(-double{kWkvDecay} * power));
  }
}

void norm_head(const WkvOutputArgs& args, float* y, int64_t first) {
  const int64_t end = first + args.head_dim;
  double sum = 0, squares = 0;
  for (int64_t c = first; c < end; ++c) sum += y[c];
  const double mean = sum / as_double(args.head_dim);
  for (int64_t c = first; c < end; ++c) squares += (y[c] - mean) * (y[c] - mean);
  const double scale = 1 / std::sqrt(squares / as_double(args.head_dim) + args.eps);
  for (int64_t c = first; c < end; ++c) {
    y[c] = rounded((y[c] - mean) * scale * args.norm->vector[c] + args.norm_bias->vector[c]);
  }
}

void output_of_head(const WkvOutputArgs& args, int32_t t, int64_t first) {
  const int64_t end = first + args.head_dim;
  float* y = args.y.row<float>(t);
  if (args.norm != nullptr) norm_head(args, y, first);
  double sum = 0;
  for (int64_t c = first; c < end; ++c) {
    sum += double{args.q.row<float>(t)[c]} * args.k.row<float>(t)[c] * args.bonus->vector[c];
  }
  for (int64_t c = first; c < end; ++c) {
    const double gate = args.gate == nullptr ? 1.0 : double{args.gate->row<float>(t)[c]};
    y[c] = rounded((y[c] + sum * args.v.row<float>(t)[c]) * gate);
  }
}

}  // namespace

void wkv_inputs(void*, const WkvInputsArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    mix_first_v(args, t);
    for (int64_t first = 0; first < args.k.cols; first += args.head_dim) {
      inputs_of_head(args, t, first);
    }
  }
}

void wkv_output(void*, const WkvOutputArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    for (int64_t first = 0; first < args.y.cols; first += args.head_dim) {
      output_of_head(args, t, first);
    }
  }
}

}  // namespace hearth::kernels::reference
