#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "kernels/half.h"
#include "kernels/op_checks.h"
#include "kernels/ops_ref.h"

namespace hearth::kernels::reference {
namespace {

double dot_plain(const StoredWeight& w, int64_t row, const float* x) {
  double sum = 0;
  for (int64_t k = 0; k < w.cols; ++k) sum += static_cast<double>(x[k]) * w.at(row, k);
  return sum;
}

double dot_q8_0(const StoredWeight& w, int64_t row, const std::vector<QuantizedBlock>& x) {
  const StoredWeight::Tensor& tensor = w.tensor_of(row);
  double sum = 0;
  for (size_t b = 0; b < x.size(); ++b) {
    const std::byte* block =
        tensor.bytes.data() + (static_cast<size_t>(row - tensor.first_row) * x.size() + b) * 34;
    uint16_t scale;
    std::memcpy(&scale, block, 2);
    int32_t dot = 0;
    for (int i = 0; i < 32; ++i) dot += x[b].q[i] * static_cast<int8_t>(block[2 + i]);
    sum += static_cast<double>(x[b].d) * f32_from_f16(scale) * dot;
  }
  return sum;
}

}  // namespace

QuantizedBlock quantize_block(const float* x) {
  // The magnitude bits order like the magnitudes, with NaN above infinity.
  uint32_t largest = 0;
  for (int i = 0; i < 32; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  const float amax = std::bit_cast<float>(largest);
  QuantizedBlock block{amax / 127.0f, {}};
  if (!(amax >= kQuantizeMin && amax <= FLT_MAX)) return block;
  const float inverse = 127.0f / amax;
  for (int i = 0; i < 32; ++i) {
    block.q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  }
  return block;
}

void matmul(void*, const MatmulArgs& args) {
  check_args(args);
  const auto& w = static_cast<const StoredWeight&>(*args.w);
  std::vector<QuantizedBlock> quantized(static_cast<size_t>(w.cols / 32));
  std::vector<double> sums(static_cast<size_t>(w.rows));
  for (int32_t t = 0; t < num_rows(*args.batch, args.rows); ++t) {
    const float* x = args.x.row<float>(t);
    for (size_t b = 0; b < quantized.size(); ++b) quantized[b] = quantize_block(x + 32 * b);
    for (int64_t o = 0; o < w.rows; ++o) {
      const bool q8 = w.tensor_of(o).dtype == DType::kQ8_0;
      sums[static_cast<size_t>(o)] = q8 ? dot_q8_0(w, o, quantized) : dot_plain(w, o, x);
    }
    for (int64_t o = 0; o < w.rows; ++o) {
      const double residual = args.residual != nullptr ? args.residual->row<float>(t)[o] : 0.0f;
      args.out.row<float>(t)[o] = static_cast<float>(sums[static_cast<size_t>(o)] + residual);
    }
  }
}

}  // namespace hearth::kernels::reference
