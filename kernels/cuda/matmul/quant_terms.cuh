#pragma once
// The terms of a block of 32 inputs in products of nine and more rows, prepared once and used for
// many outputs and rows: of a row the scale d and d times the sums, of an output the scales and
// mins as f32. The values, and the order in which they are added, are those of the kernel for few
// rows (kernels/cuda/matmul/quant.cuh), so the bits are too.
//
// Sums of products start at the bits of 1.5 * 2^23 as f32. Until they leave +-2^22 (a block's stay
// in +-2^20), the result is the bits of 1.5 * 2^23 + sum, so one subtraction converts it exactly.

#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/matmul/unpack.cuh"
#include "kernels/cuda/mma.cuh"

namespace hearth::kernels {

inline constexpr int kSumBase = 0x4b400000;
__device__ inline float sum_to_float(int based) {
  return __uint_as_float(static_cast<uint32_t>(based)) - 12582912.0f;
}

/// Floats of a row and block: d, then d times the sum that a min is multiplied with.
template <DType kType>
inline constexpr int kRowFloats = quant_form(kType).has_min ? 2 : 1;
/// Floats of an output and block: scale, then min; or the scales of both halves.
template <DType kType>
inline constexpr int kScaleFloats = quant_form(kType).subs == 2 ? 2 : kRowFloats<kType>;

/// One or two floats, loaded and stored at once.
template <int kCount>
struct alignas(4 * kCount) Floats {
  float at[kCount];
};
template <int kCount>
__device__ void load_floats(const void* from, float* to) {
  if constexpr (kCount == 1) {
    to[0] = __uint_as_float(load_as<uint32_t>(from));
  } else if constexpr (kCount == 2) {
    const auto two = load_as<uint2>(from);
    to[0] = __uint_as_float(two.x);
    to[1] = __uint_as_float(two.y);
  } else {
    const auto four = load_as<uint4>(from);
    to[0] = __uint_as_float(four.x);
    to[1] = __uint_as_float(four.y);
    to[2] = __uint_as_float(four.z);
    to[3] = __uint_as_float(four.w);
  }
}
template <DType kType>
using RowTerms = Floats<kRowFloats<kType>>;
template <DType kType>
using ScaleTerms = Floats<kScaleFloats<kType>>;

/// From an ActivationBlock's two words.
template <DType kType>
__device__ RowTerms<kType> row_terms(uint32_t d_bits, uint32_t sums) {
  RowTerms<kType> out{};
  const float d = __uint_as_float(d_bits);
  out.at[0] = d;
  if constexpr (quant_form(kType).has_min) {
    const int low = static_cast<int16_t>(sums & 0xffffu);
    const int high = static_cast<int16_t>(sums >> 16);
    out.at[1] = d * static_cast<float>(low + high);
  }
  return out;
}

/// Block b of a chunk.
template <DType kType>
__device__ ScaleTerms<kType> scale_terms(const StoredScales& stored, int b) {
  ScaleTerms<kType> out;
  if constexpr (quant_form(kType).subs == 2) {
    out.at[0] = scale_of<kType>(stored, 2 * b);
    out.at[1] = scale_of<kType>(stored, 2 * b + 1);
  } else {
    out.at[0] = scale_of<kType>(stored, b);
    if constexpr (quant_form(kType).has_min) out.at[1] = min_of<kType>(stored, b);
  }
  return out;
}

/// Terms of two neighbouring rows.
template <DType kType>
struct RowPair {
  float row[2][kRowFloats<kType>];

  __device__ explicit RowPair(const RowTerms<kType>* first) {
    constexpr int kFloats = kRowFloats<kType>;
    float both[2 * kFloats];
    load_floats<2 * kFloats>(first, both);
#pragma unroll
    for (int i = 0; i < kFloats; ++i) {
      row[0][i] = both[i];
      row[1][i] = both[kFloats + i];
    }
  }
};

/// A lane's codes of 16 outputs and one block: operand A, offset subtracted. And the terms of its
/// outputs, lane / 4 and lane / 4 + 8.
template <DType kType>
struct BlockOperand {
  uint32_t a[4];
  float scale[2][kScaleFloats<kType>];

  __device__ void subtract_offset() {
    constexpr int kOffset = quant_form(kType).offset;
    if constexpr (kOffset != 0) {
      // Byte by byte, without a borrow between them.
      constexpr uint32_t kAdded = (0x80u - kOffset) * 0x01010101u;
#pragma unroll
      for (uint32_t& codes : a) codes = (codes + kAdded) ^ 0x80808080u;
    }
  }
  __device__ void load_scales(const ScaleTerms<kType>* outputs) {
    load_floats<kScaleFloats<kType>>(outputs, scale[0]);
    load_floats<kScaleFloats<kType>>(outputs + 8, scale[1]);
  }
};

/// Adds one block's products to the sums of 16 outputs and 8 rows.
template <DType kType>
__device__ void add_products(const BlockOperand<kType>& w, uint32_t b0, uint32_t b1,
                             const RowPair<kType>& x, float (&acc)[4]) {
  if constexpr (quant_form(kType).subs == 2) {
    int low[4] = {}, high[4] = {};
    mma_s8_k16(low, w.a[0], w.a[1], b0);
    mma_s8_k16(high, w.a[2], w.a[3], b1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* scale = w.scale[i / 2];
      acc[i] =
          fmaf(sum_of_halves<kType>(low[i], high[i], scale[0], scale[1]), x.row[i % 2][0], acc[i]);
    }
  } else {
    int c[4];
    mma_s8_k32_onto(c, kSumBase, w.a, b0, b1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&row)[kRowFloats<kType>] = x.row[i % 2];
      const float* scale = w.scale[i / 2];
      acc[i] = fmaf(sum_to_float(c[i]), row[0] * scale[0], acc[i]);
      if constexpr (quant_form(kType).has_min) acc[i] = fmaf(row[1], scale[1], acc[i]);
    }
  }
}

}  // namespace hearth::kernels
