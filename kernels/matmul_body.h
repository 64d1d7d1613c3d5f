#pragma once
// The matmul kernels, written once over a simd_*.h vocabulary and compiled per instruction set.
// Every output has one chain over K in ascending order, whatever the tile.

#include "kernels/matmul_kernels.h"
#include "kernels/simd_math.h"

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

/// Registers of weights in flight: one per kLanes outputs, over several groups where the tile is
/// narrow, because a chain of fused multiply-adds waits about four cycles for each step.
constexpr int columns_of(int width) {
  int columns = kColumns1;
  while (columns > kParts && columns * width > kMaxTile * kColumnsN) columns /= 2;
  return columns;
}

/// kWidth token rows times kColumns registers of outputs, beginning at one group.
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
  for (int64_t k = a.first; k < a.last; ++k) {
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

template <typename W, int kWidth>
void panel_plain(const MatmulPanel& a) {
  constexpr int kColumns = columns_of(kWidth);
  constexpr int kGroups = kColumns > kParts ? kColumns / kParts : 1;
  int32_t g = 0;
  if constexpr (kGroups > 1) {
    for (; g + kGroups <= a.num_groups; g += kGroups) dot_plain<W, kWidth, kColumns>(a, g);
  }
  for (; g < a.num_groups; ++g) dot_plain<W, kWidth, kParts>(a, g);
}

/// kWidth token rows times kTogether registers of outputs of Q8_0, from register `part` of a group.
template <int kWidth, int kTogether>
HEARTH_SIMD void dot_q8_0(const MatmulPanel& a, int32_t group, int part) {
  const int64_t first_block = a.first / kQuantBlock;
  const uint8_t* packed = a.weights + group * a.group_bytes;
  const uint8_t* bytes = packed + q8_bytes_at(first_block) + part * kLanes * 4;
  const uint8_t* scales = packed + q8_scales_at(first_block) + part * kLanes * 2;
  float* sums = a.sums + static_cast<int64_t>(group) * kWidth * 16 + part * kLanes;
  F acc[kTogether][kWidth];
#pragma GCC unroll 2
  for (int p = 0; p < kTogether; ++p) {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) {
      acc[p][t] = a.first == 0 ? zero() : load(sums + 16 * t + p * kLanes);
    }
  }
  for (int64_t b = first_block; b < a.last / kQuantBlock; ++b) {
    const char* block = static_cast<const char*>(a.tile) + b * kWidth * kQuantBlockBytes;
    const auto* d = reinterpret_cast<const float*>(block);
    const auto* minus_128_sum = reinterpret_cast<const int32_t*>(d + kWidth);
    const auto* x = reinterpret_cast<const int8_t*>(minus_128_sum + kWidth);
    I sum[kTogether][kWidth];
#pragma GCC unroll 2
    for (int p = 0; p < kTogether; ++p) {
#pragma GCC unroll 16
      for (int t = 0; t < kWidth; ++t) sum[p][t] = dot_start(minus_128_sum[t]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 2
      for (int p = 0; p < kTogether; ++p) {
        const Bytes w = load_bytes(bytes + j * 64 + p * kLanes * 4);
#pragma GCC unroll 16
        for (int t = 0; t < kWidth; ++t) {
          sum[p][t] = dot4(sum[p][t], w, x + (j * kWidth + t) * 4);
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < kTogether; ++p) {
      const F scale = load_f16(reinterpret_cast<const uint16_t*>(scales) + p * kLanes);
#pragma GCC unroll 16
      for (int t = 0; t < kWidth; ++t) {
        acc[p][t] = fma(to_float(sum[p][t]), mul(set1(d[t]), scale), acc[p][t]);
      }
    }
    bytes += b % 2 == 0 ? 512 : kQ8PairBytes - 512;
    scales += b % 2 == 0 ? 32 : kQ8PairBytes - 32;
  }
#pragma GCC unroll 2
  for (int p = 0; p < kTogether; ++p) {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) store(sums + 16 * t + p * kLanes, acc[p][t]);
  }
}

template <int kWidth>
void panel_q8_0(const MatmulPanel& a) {
  // One pass over a group where registers allow: half cache lines twice are memory twice.
  constexpr int kTogether = kParts == 2 && kWidth <= 2 ? 2 : 1;
  for (int32_t g = 0; g < a.num_groups; ++g) {
    for (int part = 0; part < kParts; part += kTogether) dot_q8_0<kWidth, kTogether>(a, g, part);
  }
}

/// `run.operator()<width>()` for the width met; widths past kMaxTile are not compiled.
template <typename Run>
HEARTH_SIMD void with_width(int32_t width, const Run& run) {
  switch (width) {
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 4:
      if constexpr (kMaxTile >= 4) return run.template operator()<4>();
      break;
    case 6:
      if constexpr (kMaxTile == 6) return run.template operator()<6>();
      break;
    case 8:
      if constexpr (kMaxTile >= 8) return run.template operator()<8>();
      break;
    case 12:
      if constexpr (kMaxTile >= 12) return run.template operator()<12>();
      break;
  }
  __builtin_trap();
}

template <typename W>
void matmul_plain(const MatmulPanel& a) {
  with_width(a.width, [&]<int kWidth>() { panel_plain<W, kWidth>(a); });
}

void matmul_q8_0(const MatmulPanel& a) {
  with_width(a.width, [&]<int kWidth>() { panel_q8_0<kWidth>(a); });
}

void pack_plain(const PackTile& a) {
  auto* tile = static_cast<float*>(a.tile);
  for (int32_t t = 0; t < a.width; ++t) {
    const float* x = a.x + t * a.stride;
    for (int64_t k = a.first; k < a.last; ++k) tile[k * a.width + t] = t < a.rows ? x[k] : 0.0f;
  }
}

/// One block of one row, as MatmulArgs states it. Scalar on purpose: the loops vectorize, and each
/// value is rounded on its own.
HEARTH_SIMD void quantize_block(const float* x, float* d, int32_t* minus_128_sum, int8_t* q) {
  uint32_t bits[kQuantBlock];
  __builtin_memcpy(bits, x, sizeof bits);
  uint32_t largest = 0;  // of the magnitudes' bits, which order NaN above infinity
  for (uint32_t b : bits) largest = (b & 0x7fffffffu) > largest ? (b & 0x7fffffffu) : largest;
  float amax;
  __builtin_memcpy(&amax, &largest, sizeof amax);
  *d = amax / 127.0f;
  *minus_128_sum = 0;
  __builtin_memset(q, 0, kQuantBlock);
  if (!(amax >= 1e-30f && amax <= 3.40282347e38f)) return;
  const float inverse = 127.0f / amax;
  int32_t sum = 0;
  for (int i = 0; i < kQuantBlock; ++i) {
    const float shifted = x[i] * inverse + 12582912.0f;  // 1.5 * 2^23: rounds half to even
    int32_t integer;
    __builtin_memcpy(&integer, &shifted, sizeof integer);
    q[i] = static_cast<int8_t>(integer - 0x4b400000);
    sum += q[i];
  }
  *minus_128_sum = -128 * sum;
}

void pack_quantized(const PackTile& a) {
  for (int64_t b = a.first / kQuantBlock; b < a.last / kQuantBlock; ++b) {
    char* block = static_cast<char*>(a.tile) + b * a.width * kQuantBlockBytes;
    auto* d = reinterpret_cast<float*>(block);
    auto* minus_128_sum = reinterpret_cast<int32_t*>(d + a.width);
    auto* q = reinterpret_cast<int8_t*>(minus_128_sum + a.width);
    for (int32_t t = 0; t < a.width; ++t) {
      int8_t row[kQuantBlock] = {};
      d[t] = 0.0f;
      minus_128_sum[t] = 0;
      if (t < a.rows) {
        quantize_block(a.x + t * a.stride + b * kQuantBlock, d + t, minus_128_sum + t, row);
      }
      for (int j = 0; j < 8; ++j) __builtin_memcpy(q + (j * a.width + t) * 4, row + 4 * j, 4);
    }
  }
}

constexpr MatmulKernels matmul_kernels() {
  MatmulKernels kernels{{},
                        pack_plain,
                        pack_quantized,
                        matmul_plain<F32Weights>,
                        matmul_plain<F16Weights>,
                        matmul_plain<Bf16Weights>,
                        matmul_q8_0};
  constexpr int kAll[] = {1, 2, 4, 6, 8, 12};
  int count = 0;
  for (const int width : kAll) {
    const bool exists = width <= kMaxTile && (width != 6 || kMaxTile == 6);
    if (exists) kernels.widths[count++] = width;
  }
  return kernels;
}

}  // namespace
}  // namespace hearth::kernels
