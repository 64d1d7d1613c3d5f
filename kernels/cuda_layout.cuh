#pragma once
// Where elements lie in packed weights and in KV blocks: one set of index functions for the code
// that packs on the host and the kernels that read.
//
// Weights are cut into panels of 32 outputs, one per lane of a warp. Along the inputs a lane's
// share of one load is 16 bytes, and the 32 lanes' shares lie side by side: a warp reads 512
// consecutive bytes. A last panel or a last share that is not full is padded; what the padding
// holds never reaches a result.
//   f32, f16, bf16:  [panel][share][lane][16 / element size elements]
//   q8_0:            [panel][block of 32 inputs]{ int8 [half][lane][16], f16 scale [lane] }
//
// KV, per layer and block: K then V, each half of the bytes.
//   K: [kv head][share of head_dim][position][share elements]: the 16 positions of a tile lie side
//      by side, so a warp reads 512 consecutive bytes. Where head_dim is no multiple of the 16-byte
//      share, the share is one element.
//   V: [kv head][position][head_dim]

#include <cuda_runtime.h>

#include <cstdint>

namespace hearth::kernels {

inline constexpr int kPanelOutputs = 32;
inline constexpr int kShareBytes = 16;
inline constexpr int kQuantBlock = 32;
/// One q8_0 block of a whole panel: 32 lanes' 32 int8 and f16 scale.
inline constexpr int kQuantPanelBytes = kPanelOutputs * (kQuantBlock + 2);
inline constexpr int kQuantScaleOffset = kPanelOutputs * kQuantBlock;

__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Shares of one output with `cols` inputs, `share` elements each.
__host__ __device__ constexpr int64_t num_shares(int64_t cols, int share) {
  return ceil_div(cols, share);
}

/// Element index of (output, input) in a panel layout of plain elements.
__host__ __device__ constexpr int64_t panel_element(int64_t output, int64_t input, int64_t cols,
                                                    int share) {
  const int64_t line = output / kPanelOutputs * num_shares(cols, share) + input / share;
  return (line * kPanelOutputs + output % kPanelOutputs) * share + input % share;
}

/// Byte offset of the q8_0 block `block` of the panel that holds `output`.
__host__ __device__ constexpr int64_t quant_panel_offset(int64_t output, int64_t block,
                                                         int64_t cols) {
  return (output / kPanelOutputs * (cols / kQuantBlock) + block) * kQuantPanelBytes;
}
/// Byte offset inside a panel's block: value `i` (0 .. 31) of a lane.
__host__ __device__ constexpr int quant_value_offset(int lane, int i) {
  return (i / kShareBytes * kPanelOutputs + lane) * kShareBytes + i % kShareBytes;
}
__host__ __device__ constexpr int quant_scale_offset(int lane) {
  return kQuantScaleOffset + 2 * lane;
}

/// Elements of one share of K.
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
