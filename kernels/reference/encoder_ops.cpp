#include <cmath>
#include <numbers>

#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels::reference {

void layer_norm(void*, const LayerNormArgs& args) {
  check_args(args);
  const int64_t width = args.x.cols;
  for (int32_t t = 0; t < num_rows(*args.batch, args.rows); ++t) {
    const float* x = args.x.row<float>(t);
    float* out = args.out.row<float>(t);
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += x[c];
    const double mean = sum / as_double(width);
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const double scale = 1.0 / std::sqrt(squares / as_double(width) + args.eps);
    for (int64_t c = 0; c < width; ++c) {
      const float bias = args.bias == nullptr ? 0.0f : args.bias->vector[c];
      out[c] = static_cast<float>((x[c] - mean) * scale * args.weight->vector[c] + bias);
    }
  }
}

namespace {

double gelu_of(double x, bool by_tanh) {
  if (!by_tanh) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace

void gelu(void*, const GeluArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    float* x = args.x.row<float>(t);
    for (int64_t c = 0; c < args.x.cols; ++c) {
      x[c] = static_cast<float>(gelu_of(x[c], args.by_tanh));
    }
  }
}

void scale_by_position(void*, const ScaleByPositionArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    const float factor = position_factor(args, args.batch->positions[t]);
    float* x = args.x.row<float>(t);
    for (int64_t c = 0; c < args.x.cols; ++c) x[c] *= factor;
  }
}

void sigmoid_gate(void*, const SigmoidGateArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    float* x = args.x.row<float>(t);
    const float* gate = args.gate.row<float>(t);
    for (int64_t c = 0; c < args.x.cols; ++c) {
      x[c] = static_cast<float>((args.alone ? 1.0 : x[c]) / (1.0 + std::exp(-double{gate[c]})));
    }
  }
}

void relu_squared(void*, const ReluSquaredArgs& args) {
  check_args(args);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens) * args.rows_per_token;
  for (int32_t t = 0; t < rows; ++t) {
    float* x = args.x.row<float>(t);
    for (int64_t c = 0; c < args.x.cols; ++c) x[c] = x[c] > 0 ? x[c] * x[c] : 0.0f;
  }
}

const EncoderOps kEncoderOps = {layer_norm,        gelu,         attention_to_all,
                                scale_by_position, sigmoid_gate, relu_squared};
const EncoderOps kExactEncoderOps = {layer_norm,        gelu,         attention_to_all_exact,
                                     scale_by_position, sigmoid_gate, relu_squared};

}  // namespace hearth::kernels::reference
