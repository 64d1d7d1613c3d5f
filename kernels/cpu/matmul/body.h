#pragma once
// The matmul kernels of all but the other quantized types (quantized_body.h), written once against
// the vocabulary of kernels/cpu/simd, compiled per instruction set.
// Every output has one chain over K in ascending order, whatever the tile.

#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/matmul/quantized_body.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/quantize.h"

namespace hearth::kernels {
namespace {

struct F32Weights {
  static constexpr int64_t kBytes = 4;
  static HEARTH_SIMD F load_lanes(const uint8_t* p) {
    return load(reinterpret_cast<const float*>(p));
  }
};
struct F16Weights {
  static constexpr int64_t kBytes = 2;
  static HEARTH_SIMD F load_lanes(const uint8_t* p) {
    return load_f16(reinterpret_cast<const uint16_t*>(p));
  }
};
struct Bf16Weights {
  static constexpr int64_t kBytes = 2;
  static HEARTH_SIMD F load_lanes(const uint8_t* p) {
    return load_bf16(reinterpret_cast<const uint16_t*>(p));
  }
};

/// Weight registers in flight: one per kLanes outputs, over several groups if the tile is narrow,
/// because each step of a chain of fused multiply-adds takes about four cycles.
constexpr int columns_of(int width) {
  int columns = kColumns1;
  while (columns > kParts && columns * width > kMaxTile * kColumnsN) columns /= 2;
  return columns;
}

/// kWidth token rows times kColumns registers of outputs, starting with `group`.
template <typename W, int kWidth, int kColumns>
HEARTH_SIMD void dot_plain(const MatmulPanel& a, int32_t group) {
  constexpr int64_t kStep = 16 * W::kBytes;
  const float* x = static_cast<const float*>(a.tile);
  float* sums = a.sums + static_cast<int64_t>(group) * kWidth * 16;
  const uint8_t* columns[kColumns];
  float* out[kColumns];
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) {
    columns[c] = a.weights + (group + c / kParts) * a.group_bytes + c % kParts * kLanes * W::kBytes;
    out[c] = sums + c / kParts * kWidth * 16 + c % kParts * kLanes;
  }
  F acc[kColumns][kWidth];
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) acc[c][t] = a.first == 0 ? zero() : load(out[c] + 16 * t);
  }
  const uint8_t* const ahead = a.ahead.at + group * a.ahead.group_bytes;
  for (int64_t k = a.first; k < a.last; ++k) {
    if constexpr (kWidth >= kLeastPlainAhead) {
      if (a.ahead.lines != 0 && k * kStep % 64 == 0) {
#pragma GCC unroll 16
        for (int c = 0; c < kColumns; c += kParts) {
          __builtin_prefetch(ahead + c / kParts * a.ahead.group_bytes + k * kStep, 0, 3);
        }
      }
    }
    F w[kColumns];
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) w[c] = W::load_lanes(columns[c] + k * kStep);
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) {
      const F xt = set1(x[k * kWidth + t]);
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) acc[c][t] = fma(xt, w[c], acc[c][t]);
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) store(out[c] + 16 * t, acc[c][t]);
  }
}

/// Groups from `group` on, kColumns registers at a time while there are so many, then fewer.
template <typename W, int kWidth, int kColumns>
void panel_plain(const MatmulPanel& a, int32_t group) {
  constexpr int kGroups = kColumns / kParts;
  for (; group + kGroups <= a.num_groups; group += kGroups) {
    dot_plain<W, kWidth, kColumns>(a, group);
  }
  if constexpr (kGroups > 1) panel_plain<W, kWidth, kColumns / 2>(a, group);
}

template <typename W>
void matmul_plain(const MatmulPanel& a) {
  with_width(a.width, [&]<int kWidth>() { panel_plain<W, kWidth, columns_of(kWidth)>(a, 0); });
}

void pack_plain(const PackTile& a) {
  auto* tile = static_cast<float*>(a.tile);
  if (a.rows < a.width) {  // row after row: next to one another, zeros were slower
    for (int32_t t = 0; t < a.width; ++t) {
      const float* x = t < a.rows ? a.row(t) : nullptr;
      for (int64_t k = a.first; k < a.last; ++k) tile[k * a.width + t] = t < a.rows ? x[k] : 0.0f;
    }
    return;
  }
  with_width(a.width, [&]<int kWidth>() {
    const float* x[kWidth];
    for (int t = 0; t < kWidth; ++t) x[t] = a.row(t);
    for (int64_t k = a.first; k < a.last; ++k) {
#pragma GCC unroll 8
      for (int t = 0; t < kWidth; ++t) tile[k * kWidth + t] = x[t][k];
    }
  });
}

void pack_quantized(const PackTile& a) {
  for (int64_t b = a.first / kQuantBlock; b < a.last / kQuantBlock; ++b) {
    const ActivationBlock block(a.tile, b, a.width);
    for (int32_t t = 0; t < a.width; ++t) {
      int8_t row[kQuantBlock] = {};
      float d = 0.0f;
      int32_t sums[2] = {};
      if (t < a.rows) d = quantize_block(a.row(t) + b * kQuantBlock, sums, row);
      for (int j = 0; j < 8; ++j) __builtin_memcpy(block.q + (j * a.width + t) * 4, row + 4 * j, 4);
      block.d[t] = d;
      block.minus_128_sum[t] = -128 * (sums[0] + sums[1]);
      block.d_sum[t] = d * static_cast<float>(sums[0] + sums[1]);
      for (int h = 0; h < 2; ++h) {
        block.half_minus_128_sum[h * a.width + t] = -128 * sums[h];
        block.half_d_sum[h * a.width + t] = d * static_cast<float>(sums[h]);
      }
    }
  }
}

template <bool kAdds>
HEARTH_SIMD void write_rows(const WriteSums& a) {
  const float* sums = a.sums;
  const F scale = set1(a.scale);
  int64_t o = 0;
  for (; o + kGroup <= a.outputs; o += kGroup, sums += a.width * kGroup) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const F sum = mul(load(sums + p * kLanes), scale);
      store(a.out + o + p * kLanes, kAdds ? add(sum, load(a.residual + o + p * kLanes)) : sum);
    }
  }
  for (int64_t i = o; i < a.outputs; ++i) {
    const float sum = sums[i - o] * a.scale;
    a.out[i] = kAdds ? sum + a.residual[i] : sum;
  }
}

void write_sums(const WriteSums& a) {
  return a.residual != nullptr ? write_rows<true>(a) : write_rows<false>(a);
}

constexpr const FamilyKernels& family_of(QuantFamily family) {
  switch (family) {
    case QuantFamily::kOffset: return HEARTH_OF_SET(kMatmulOffset);
    case QuantFamily::kMin: return HEARTH_OF_SET(kMatmulMin);
    case QuantFamily::kWide: return HEARTH_OF_SET(kMatmulWide);
    case QuantFamily::kHalves: break;
  }
  return HEARTH_OF_SET(kMatmulHalves);
}

constexpr MatmulKernels matmul_kernels() {
  MatmulKernels kernels{{},
                        kManyTile,
                        pack_plain,
                        pack_quantized,
                        matmul_plain<F32Weights>,
                        matmul_plain<F16Weights>,
                        matmul_plain<Bf16Weights>,
                        matmul_quantized<Q8_0Source>,
                        write_sums,
                        {}};
  for (int i = 0; i < kNumQuantTypes; ++i) {
    kernels.quant[i] = &family_of(quant_family(quant_layout(kQuantTypes[i]))).of[i];
  }
  constexpr int kAll[] = {1, 2, 4, 6, 8};
  int count = 0;
  for (const int width : kAll) {
    if (width <= kMaxTile) kernels.widths[count++] = width;
  }
  return kernels;
}

}  // namespace

constinit const MatmulKernels HEARTH_OF_SET(kMatmul) = matmul_kernels();

}  // namespace hearth::kernels
