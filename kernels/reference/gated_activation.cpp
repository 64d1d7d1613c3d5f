#include <cmath>
#include <numbers>

#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

double silu(double x) { return x / (1.0 + std::exp(-x)); }

double gelu_tanh(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}

}  // namespace

void gated_activation(void*, const GatedActivationArgs& args) {
  check_args(args);
  const int64_t width = args.out.cols;
  const int64_t rows = int64_t{num_rows(*args.batch, Rows::kTokens)} * args.rows_per_token;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = args.gate_up.row<float>(r);
    float* out = args.out.row<float>(r);
    for (int64_t c = 0; c < width; ++c) {
      const double gate = args.activation == Activation::kSilu ? silu(in[c]) : gelu_tanh(in[c]);
      out[c] = static_cast<float>(gate * in[width + c]);
    }
  }
}

}  // namespace hearth::kernels::reference
