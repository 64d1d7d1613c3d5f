#include <algorithm>
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

double gated(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::kSilu: return silu(gate) * up;
    case Activation::kGeluTanh: return gelu_tanh(gate) * up;
    case Activation::kClampedSwish: {
      const double x = std::min(gate, 7.0);
      return x / (1.0 + std::exp(-1.702 * x)) * (std::clamp(up, -7.0, 7.0) + 1.0);
    }
  }
  return 0;
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
      out[c] = static_cast<float>(gated(args.activation, in[c], in[width + c]));
    }
  }
}

}  // namespace hearth::kernels::reference
