#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"
#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

/// Sixteen weights with one scale, as MatmulArgs defines them: scale * q[i] + min.
struct SubBlock {
  double scale;
  double min;
  int8_t q[16];
};

std::vector<SubBlock> sub_blocks(DType type, std::span<const std::byte> row, int64_t cols) {
  std::vector<SubBlock> subs;
  subs.reserve(cols / 16);
  const size_t step = info(type).block_bytes;
  for (size_t at = 0; at < row.size(); at += step) {
    if (type == DType::kQ8_0) {
      uint16_t d;
      std::memcpy(&d, row.data() + at, 2);
      for (int half = 0; half < 2; ++half) {
        subs.push_back({f32_from_f16(d), 0, {}});
        std::memcpy(subs.back().q, row.data() + at + 2 + 16 * half, 16);
      }
      continue;
    }
    const QuantLayout layout = quant_layout(type);
    const QuantValues values = values_of(type, take_apart(type, row.data() + at));
    for (int i = 0; i < layout.block / 16; ++i) {
      const int s = layout.subs == 2 ? i : i / 2;
      subs.push_back({values.scale[s], values.min[s], {}});
      std::copy_n(values.q + 16 * i, 16, subs.back().q);
    }
  }
  return subs;
}

double dot(const std::vector<SubBlock>& w, const std::vector<QuantizedBlock>& x) {
  double sum = 0;
  for (size_t s = 0; s < w.size(); ++s) {
    const QuantizedBlock& block = x[s / 2];
    const int8_t* q = block.q + s % 2 * 16;
    int32_t products = 0;
    int32_t inputs = 0;
    for (int i = 0; i < 16; ++i) {
      products += q[i] * w[s].q[i];
      inputs += q[i];
    }
    sum += block.d * (w[s].scale * products + w[s].min * inputs);
  }
  return sum;
}

}  // namespace

std::vector<QuantizedBlock> quantize_blocks(std::span<const float> x) {
  // The magnitude bits order like the magnitudes, with NaN above infinity.
  uint32_t largest = 0;
  for (const float value : x) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  }
  const float amax = std::bit_cast<float>(largest);
  std::vector<QuantizedBlock> blocks(x.size() / 32, QuantizedBlock{amax / 127.0f, {}});
  if (!(amax >= kQuantizeMin && amax <= FLT_MAX)) return blocks;
  const float inverse = 127.0f / amax;
  for (size_t i = 0; i < x.size(); ++i) {
    blocks[i / 32].q[i % 32] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  }
  return blocks;
}

Activations::Activations(const float* values, int64_t cols, bool super, float outliers_from)
    : x(values) {
  std::vector<float> kept(values, values + cols);
  for (int64_t k = 0; k < cols && outliers_from > 0; ++k) {
    if (!(std::fabs(kept[k]) >= outliers_from)) continue;
    outliers.push_back(k);
    kept[k] = 0;
  }
  const auto quantize = [&](int64_t together, std::vector<QuantizedBlock>* to) {
    for (int64_t c = 0; c + together <= cols; c += together) {
      const std::vector<QuantizedBlock> blocks =
          quantize_blocks({kept.data() + c, static_cast<size_t>(together)});
      to->insert(to->end(), blocks.begin(), blocks.end());
    }
  };
  quantize(32, &per_32_);
  if (super) quantize(256, &per_256_);
}

const std::vector<QuantizedBlock>& Activations::quantized(DType type) const {
  return info(type).block_elements == 256 && !per_256_.empty() ? per_256_ : per_32_;
}

void multiply_row(const StoredWeight& w, int64_t row, int32_t expert,
                  const std::vector<Activations>& inputs,
                  const std::function<void(size_t input, double sum)>& done) {
  const StoredWeight::Tensor& tensor = w.tensor_of(row);
  const std::span<const std::byte> bytes = w.row_bytes(row, expert);
  const double scale = tensor.scales.empty() ? 1 : tensor.scales[expert];
  if (info(tensor.dtype).block_elements > 1) {
    const std::vector<SubBlock> subs = sub_blocks(tensor.dtype, bytes, w.cols);
    for (size_t i = 0; i < inputs.size(); ++i) {
      double sum = dot(subs, inputs[i].quantized(tensor.dtype));
      for (const int64_t k : inputs[i].outliers) {
        const SubBlock& sub = subs[k / 16];
        sum += double{inputs[i].x[k]} * sub.scale * sub.q[k % 16];
      }
      done(i, sum * scale);
    }
    return;
  }
  std::vector<float> values(w.cols);
  dequantize(tensor.dtype, bytes, values);
  for (size_t i = 0; i < inputs.size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < values.size(); ++k) {
      sum += double{inputs[i].x[k]} * values[k];
    }
    done(i, sum * scale);
  }
}

namespace {

void multiply(const MatmulArgs& args, bool super) {
  check_args(args);
  const auto& w = static_cast<const StoredWeight&>(*args.w);
  std::vector<Activations> inputs;
  for (int32_t t = 0; t < num_rows(*args.batch, args.rows); ++t) {
    inputs.emplace_back(args.x.row<float>(t), w.cols, super, w.outliers_from());
  }
  for (int64_t o = 0; o < w.rows; ++o) {
    multiply_row(w, o, 0, inputs, [&](size_t t, double sum) {
      const int64_t r = t;
      const double residual = args.residual != nullptr ? args.residual->row<float>(r)[o] : 0.0f;
      args.out.row<float>(r)[o] = static_cast<float>(sum + residual);
    });
  }
}

}  // namespace

void matmul(void*, const MatmulArgs& args) { multiply(args, false); }
void matmul_super(void*, const MatmulArgs& args) { multiply(args, true); }

}  // namespace hearth::kernels::reference
