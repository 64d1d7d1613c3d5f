#pragma once
// Operands of products of f16 and bf16 weights (kernels/cuda/matmul/half.cu), and their sums.

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/plain.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/terms.cuh"

namespace hearth::kernels {

inline constexpr int kLaneInputs = 16;  // per chunk
static_assert(4 * kLaneInputs == kHalfChunk);

/// Operands that represent one number of x.
template <typename T>
inline constexpr int kTerms = std::is_same_v<T, Half> ? 1 : 2;

/// A lane's share of 16 outputs in one chunk.
struct ChunkWeights {
  uint4 step[kHalfSteps];

  __device__ void load(const uint4* chunk) {
#pragma unroll
    for (int s = 0; s < kHalfSteps; ++s) step[s] = load_as<uint4>(chunk + s * kWarp);
  }
};
inline constexpr int kChunkLoads = kHalfSteps * kWarp;  // uint4 per chunk

/// A lane's share of one row's chunk. The row's four lanes have the same `unscale`.
template <typename T>
struct ChunkRow {
  uint32_t operand[kTerms<T>][kHalfSteps][2];
  float unscale;
};

/// Loads inputs [first, first + 16) of a row; zeros past the last one.
__device__ inline void load_inputs(const PlainMatmul& p, const float* row, int64_t first,
                                   float (&x)[kLaneInputs]) {
  if (p.aligned && first + kLaneInputs <= p.cols) {
#pragma unroll
    for (int i = 0; i < kLaneInputs; i += 4) {
      const auto four = load_as<float4>(row + first + i);
      x[i] = four.x;
      x[i + 1] = four.y;
      x[i + 2] = four.z;
      x[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLaneInputs; ++i) x[i] = first + i < p.cols ? row[first + i] : 0.0f;
  }
}

/// Called by all lanes of a warp; four neighbouring lanes share a row.
template <typename T>
__device__ ChunkRow<T> round_inputs(const float (&x)[kLaneInputs]) {
  ChunkRow<T> out;
  float scale = 1.0f;
  out.unscale = 1.0f;
  if constexpr (std::is_same_v<T, Half>) {
    // The bits of magnitudes order like the magnitudes, with infinity and NaN above all.
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kLaneInputs; ++i) {
      const uint32_t bits = __float_as_uint(x[i]) & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
#pragma unroll
    for (int offset = 1; offset <= 2; offset *= 2) {
      const uint32_t other = __shfl_xor_sync(kAllLanes, most, offset);
      most = other > most ? other : most;
    }
    const PowerOfTwo power = into_half(most);
    scale = power.scale;
    out.unscale = power.inverse;
  }
#pragma unroll
  for (int s = 0; s < kHalfSteps; ++s) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int term = 0; term < kTerms<T>; ++term) out.operand[term][s][b] = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float left = x[4 * s + 2 * b + i] * scale;
#pragma unroll
        for (int term = 0; term < kTerms<T>; ++term) {
          const uint32_t bits = bits_of(take_term<T>(&left));
          out.operand[term][s][b] |= bits << 16 * i;
        }
      }
    }
  }
  return out;
}

/// c += the products of one chunk.
template <typename T>
__device__ void multiply(const ChunkWeights& w, const uint32_t (&x)[kTerms<T>][kHalfSteps][2],
                         float (&c)[4]) {
#pragma unroll
  for (int s = 0; s < kHalfSteps; ++s) {
    const uint32_t a[4] = {w.step[s].x, w.step[s].y, w.step[s].z, w.step[s].w};
#pragma unroll
    for (int term = 0; term < kTerms<T>; ++term) {
      mma_k16<T>(c, a, x[term][s][0], x[term][s][1]);
    }
  }
}

/// Adds a chunk's products; `left` and `right` are the scales of its columns.
__device__ inline void add_chunk(const float (&c)[4], float left, float right, float (&acc)[4]) {
  acc[0] = fmaf(c[0], left, acc[0]);
  acc[1] = fmaf(c[1], right, acc[1]);
  acc[2] = fmaf(c[2], left, acc[2]);
  acc[3] = fmaf(c[3], right, acc[3]);
}

}  // namespace hearth::kernels
