#pragma once
// Attention in splits of kSplit positions at absolute multiples, for several heads of one KV head
// at a time, so that K and V are read once for all of them. The kernel here handles f32 KV, which
// is for diagnosis, heads unsuited to the tensor cores (kernels/cuda/attention/tiles.cu handles
// the others), fp8, q4_0, and K and V of different types (kernels/cuda/attention/any_type.cuh). Per
// row, KV head and split:
//   1. scores: each warp takes tiles of 16 positions; two lanes per position sum the even and the
//      odd shares of the head dimension, then add up the two sums;
//   2. one warp per head: the split's maximum, weights exp(score - maximum), and their sum;
//   3. one thread per value dimension and run of positions: one chain of fma over ascending
//      positions; runs are added in ascending order.
// Splits are merged in ascending order by the online softmax. Nothing depends on other rows or on
// which kernel ran, so a row's result is the same in any step. Positions that the row does not see
// are never read: they may hold anything.
//   attention_kernel<..., false>  blocks share a row's splits, partial results through the scratch,
//                                 merged by merge_kernel, or by the last of these blocks: few
//                                 rows, long contexts
//   attention_kernel<..., true>   one block for all splits of a row, merged on the fly

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/matmul/quant_layout.cuh"

namespace hearth::kernels {

inline constexpr int kSplit = 256;
inline constexpr int kAttentionThreads = 256;
inline constexpr int kAttentionWarps = kAttentionThreads / kWarp;
inline constexpr int kSplitTiles = kSplit / kAttentionTile;
static_assert(2 * kAttentionTile == kWarp, "step 1 has two lanes per position");
/// Most heads that share K and V in one block.
inline constexpr int kMaxHeads = 8;
/// Most values of V per head: one or two per thread.
inline constexpr int kMaxHeadDim = 2 * kAttentionThreads;
/// Most of K per head: those of kMaxHeads queries are in shared memory.
inline constexpr int kMaxKeyDims = 640;

/// For blocks that merge what they have computed (kernels/cuda/attention/merge_last.cuh).
struct MergeTail {
  uint32_t* arrivals = nullptr;  ///< (rows, num_kv_heads / kv_heads); null: merge_kernel merges
  int32_t kv_heads = 1;          ///< whose query heads one block merges
  QuantTarget quantized = {};
};

struct AttentionParams {
  const int32_t* count;
  const int32_t* positions;
  const int32_t* context_len;  ///< per sequence
  bool to_all;                 ///< rows see the whole context, not only positions up to their own
  const int32_t* seq_idx;
  const int32_t* block_table;
  int32_t max_blocks;
  int32_t first_row;  ///< first row of this launch
  int32_t heads_per_kv;
  int32_t head_groups;  ///< blocks that share one KV head
  int32_t block_heads;  ///< most query heads of a block (tiles_few.cuh)
  int32_t block_rows;   ///< most rows of a block (tiles_few.cuh)
  RowsView q;
  RowsView out;
  KvView kv;
  float scale;
  float soft_cap;
  int32_t window;
  const float* sinks;
  int32_t max_splits;
  float* partial;  ///< (rows, heads, max_splits, v_dim + 2): values, maximum, sum
  MergeTail merge;
};

/// The positions that a row attends to: begin .. end - 1.
struct Seen {
  int begin;
  int end;
};
__device__ inline Seen seen_from(const AttentionParams& a, int position) {
  return {a.window > 0 && position >= a.window ? position - a.window + 1 : 0, position + 1};
}
__device__ inline Seen seen_by(const AttentionParams& a, int row) {
  if (a.to_all) return {0, a.context_len[a.seq_idx[row]]};
  return seen_from(a, a.positions[row]);
}
__device__ inline float* partial_of(const AttentionParams& a, int64_t row, int head, int split) {
  const int64_t heads = int64_t{a.kv.num_kv_heads} * a.heads_per_kv;
  return a.partial +
         (((row - a.first_row) * heads + head) * a.max_splits + split) * (a.kv.v_dim + 2);
}

/// One step of the online softmax: the factor of the old result is `keep`, that of the new one
/// `add`.
struct Merge {
  float maximum;
  float keep;
  float add;
};
__device__ inline Merge merge(float maximum, float next) {
  const float both = fmaxf(maximum, next);
  return {both, expf(maximum - both), expf(next - both)};
}
/// Divides by the sum, which includes the sink.
__device__ inline float finished(float value, float maximum, float sum, const float* sink) {
  if (sink == nullptr) return value / sum;
  const Merge with = merge(maximum, *sink);
  return value * with.keep / (sum * with.keep + with.add);
}

/// Blocks of a launch, about: more than a device runs at once. A step's launch bounds cover the
/// longest context that was planned, and blocks without positions take time, too. On the shim small
/// contexts have blocks with several splits.
#if defined(HEARTH_CUDA_SHIM)
inline constexpr int kMostBlocks = 12;
#else
inline constexpr int kMostBlocks = 2048;
#endif

/// (rows or groups of rows, heads that share a block, blocks that share a row's splits)
inline dim3 attention_grid(const AttentionParams& params, int rows, bool whole) {
  const int heads = params.kv.num_kv_heads * params.head_groups;
  int parts = kMostBlocks / (rows * heads);
  parts = parts < 1 || whole ? 1 : parts > params.max_splits ? params.max_splits : parts;
  return {static_cast<unsigned>(rows), static_cast<unsigned>(heads), static_cast<unsigned>(parts)};
}

void attend_f32(cudaStream_t stream, const AttentionParams& params, int rows, bool whole);
void attend_f16(cudaStream_t stream, const AttentionParams& params, int rows, bool whole);
void attend_bf16(cudaStream_t stream, const AttentionParams& params, int rows, bool whole);
void attend_q8(cudaStream_t stream, const AttentionParams& params, int rows, bool whole);
void attend_any(cudaStream_t stream, const AttentionParams& params, int rows, bool whole);
/// For f16, bf16 and q8_0 KV in tiles: kernels/cuda/attention/tiles.cu. `wgmma`: the device has it.
void attend_tiles(cudaStream_t stream, KvType type, const AttentionParams& params, int rows,
                  int num_seqs, bool whole, bool wgmma);
/// For many rows on a device with wgmma: kernels/cuda/attention/tiles_wgmma.cu.
bool wgmma_supports(KvType type, int head_dim);
void attend_wgmma(cudaStream_t stream, KvType type, const AttentionParams& params, int rows,
                  int num_seqs);

}  // namespace hearth::kernels
