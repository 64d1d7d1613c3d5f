#pragma once
// Positions of elements in packed weights and in KV blocks: one set of index functions for the
// packing code on the host and the kernels. (Quantized weights:
// kernels/cuda/matmul/quant_layout.cuh.)
//
// f32 weights are divided into panels of 32 outputs, one per lane of a warp. Along the inputs, a
// lane loads 16 bytes at a time, its share, and the shares of the 32 lanes are adjacent: a warp
// reads 512 consecutive bytes. An incomplete last panel or share is padded; the padding never
// affects a result.
//   [panel][share][lane][4 elements]
//
// f16 and bf16 weights are divided into groups of 16 outputs and chunks of 64 inputs, padded with
// zeros, in the order of the tensor cores' operand A: four instructions a chunk.
//   [group][chunk][step: 4][lane: 32][register: 4][2 elements]
// Element e of register r of lane 4 g + t belongs to output g + 8 (r % 2) and to input
// 16 t + 4 step + 2 (r / 2) + e of the chunk. The order of a chunk's inputs does not matter for
// their sum, so they are numbered such that those of a lane are consecutive (operand B, in
// kernels/cuda/matmul/half.cu).
//
// KV, per layer and block: K then V. kernels/cuda/attention/kv_tiles.cuh describes f16, bf16 and
// q8_0 with a head_dim of whole tiles. fp8, q4_0, and K and V of different types are as in
// kernels/ops/kv_layout.h. Otherwise:
//   K: [kv head][share of k_dim][position][share elements]: the 16 positions of a tile are
//      adjacent, so a warp reads 512 consecutive bytes. If k_dim is not a multiple of the
//      16-byte share, the share is one element.
//   V: [kv head][position][v_dim], unless it is the front of K
// In q8_0 the elements are int8, and the f16 scales follow those of all heads, as kv_layout.h
// defines them; K: [kv head][32 dims][position], V: [kv head][position][32 dims].

#include <cuda_runtime.h>

#include <cstdint>

namespace hearth::kernels {

inline constexpr int kPanelOutputs = 32;
inline constexpr int kShareBytes = 16;

__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Shares in one output with `cols` inputs, `share` elements each.
__host__ __device__ constexpr int64_t num_shares(int64_t cols, int share) {
  return ceil_div(cols, share);
}

/// Element index of (output, input) in a panel layout of unquantized elements.
__host__ __device__ constexpr int64_t panel_element(int64_t output, int64_t input, int64_t cols,
                                                    int share) {
  const int64_t line = output / kPanelOutputs * num_shares(cols, share) + input / share;
  return (line * kPanelOutputs + output % kPanelOutputs) * share + input % share;
}

inline constexpr int kHalfOutputs = 16;  ///< per group
inline constexpr int kHalfChunk = 64;    ///< inputs per chunk
inline constexpr int kHalfSteps = 4;     ///< instructions per chunk
inline constexpr int kHalfChunkBytes = kHalfOutputs * kHalfChunk * 2;

__host__ __device__ constexpr int64_t half_chunks(int64_t cols) {
  return ceil_div(cols, kHalfChunk);
}
/// Element index of (output, input) in groups of f16 or bf16 weights.
__host__ __device__ constexpr int64_t half_element(int64_t output, int64_t input, int64_t cols) {
  const int64_t chunk = output / kHalfOutputs * half_chunks(cols) + input / kHalfChunk;
  const auto row = static_cast<int>(output % kHalfOutputs);
  const auto k = static_cast<int>(input % kHalfChunk);
  const int lane = row % 8 * 4 + k / 16;
  const int in_register = row / 8 + k % 4 / 2 * 2;
  return ((chunk * kHalfSteps + k % 16 / 4) * 32 + lane) * 8 + in_register * 2 + k % 2;
}

/// Elements in one share of K.
__host__ __device__ constexpr int key_share(int head_dim, int element_bytes) {
  return head_dim % (kShareBytes / element_bytes) == 0 ? kShareBytes / element_bytes : 1;
}
/// Element index inside a layer's K (or V) of one block.
__host__ __device__ constexpr int64_t key_element(int kv_head, int position, int d, int head_dim,
                                                  int block_size, int share) {
  const int64_t line = int64_t{kv_head} * (head_dim / share) + d / share;
  return (line * block_size + position) * share + d % share;
}
__host__ __device__ constexpr int64_t value_element(int kv_head, int position, int d, int head_dim,
                                                    int block_size) {
  return (int64_t{kv_head} * block_size + position) * head_dim + d;
}

}  // namespace hearth::kernels
