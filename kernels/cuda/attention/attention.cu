// Chooses the kernel of attention.cuh, and merges splits stored in the table's scratch.

#include <algorithm>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/kv_tiles.cuh"
#include "kernels/cuda/matmul/quantize.cuh"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

/// From this number of rows on, one block per row fills the device, so partial results stay in the
/// block.
constexpr int kManyQueries = 64;
constexpr int kMergeBlock =
    kChunkInputs;  // threads: with a value each, a chunk of the product's inputs

/// One block per row and kMergeBlock / kMergeThreads heads, in rounds of one split per thread: the
/// factors of all splits first, then each value's chain. The maximum so far is the same in
/// whichever order it is found, so a head's bits do not depend on its threads. `kValues`: of a
/// head, per thread.
template <int kMergeThreads, int kValues>
__global__ void __launch_bounds__(kMergeBlock)
    merge_kernel(AttentionParams a, int num_heads, QuantTarget quantized) {
  constexpr int kMergeHeads = kMergeBlock / kMergeThreads;
  after_previous_launch();
  const int row = a.first_row + block_x();
  const int half = thread_x() / kMergeThreads;
  const bool there = block_y() * kMergeHeads + half < num_heads;
  const int head = there ? block_y() * kMergeHeads + half : num_heads - 1;
  const int num_rows = *a.count;
  const int position = a.to_all ? 0 : a.positions[row];  // loaded along with the count
  if (row >= num_rows) return;
  const Seen seen = a.to_all ? seen_by(a, row) : seen_from(a, position);
  const int first = seen.begin / kSplit;
  const int num_splits = (seen.end - 1) / kSplit - first + 1;
  const int thread = thread_x() % kMergeThreads;
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int head_dim = a.kv.v_dim;
  const int stride = head_dim + 2;
  const float* partial = partial_of(a, row, head, first);

  __shared__ float all_keep[kMergeHeads][kMergeThreads];
  __shared__ float all_add[kMergeHeads][kMergeThreads];
  __shared__ float all_sums[kMergeHeads][kMergeThreads];
  __shared__ float all_maxima[kMergeHeads][kMergeThreads / kWarp];
  float(&keep)[kMergeThreads] = all_keep[half];
  float(&add)[kMergeThreads] = all_add[half];
  float(&sums)[kMergeThreads] = all_sums[half];
  float(&maxima)[kMergeThreads / kWarp] = all_maxima[half];
  float total[kValues] = {};
  float sum = 0.0f;
  float maximum = -INFINITY;
#pragma unroll 1
  for (int begin = 0; begin < num_splits; begin += kMergeThreads) {
    const int count = num_splits - begin < kMergeThreads ? num_splits - begin : kMergeThreads;
    const float* from = partial + int64_t{begin} * stride;
    // Values of kAtOnce splits are on their way together, the first while factors are computed.
    constexpr int kAtOnce = 16;
    float next[kValues][kAtOnce];
    const auto load = [&](int group) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int d = thread + i * kMergeThreads;
        const float* value = from + int64_t{group} * stride + d;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (d < head_dim && j < count - group) next[i][j] = value[int64_t{j} * stride];
        }
      }
    };
    load(0);
    float own = -INFINITY;
    if (thread < count) {
      own = from[int64_t{thread} * stride + head_dim];
      sums[thread] = from[int64_t{thread} * stride + head_dim + 1];
    }
    float upto = own;  // maximum of the warp's splits up to this one
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const float other = __shfl_up_sync(kAllLanes, upto, offset);
      if (lane >= offset) upto = fmaxf(upto, other);
    }
    if (lane == kWarp - 1) maxima[warp] = upto;
    const float previous = __shfl_up_sync(kAllLanes, upto, 1);
    __syncthreads();
    float before = maximum;
#pragma unroll
    for (int i = 0; i < kMergeThreads / kWarp; ++i) {
      if (i < warp) before = fmaxf(before, maxima[i]);
      maximum = fmaxf(maximum, maxima[i]);
    }
    const Merge with = merge(lane == 0 ? before : fmaxf(before, previous), own);
    keep[thread] = with.keep;
    add[thread] = with.add;
    __syncthreads();
#pragma unroll 1
    for (int group = 0; group < count; group += kAtOnce) {
      float values[kValues][kAtOnce];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) values[i][j] = next[i][j];
      }
      if (group + kAtOnce < count) load(group + kAtOnce);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int s = group + j;
        if (s >= count) break;
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          total[i] = fmaf(values[i][j], add[s], total[i] * keep[s]);
        }
        sum = fmaf(sums[s], add[s], sum * keep[s]);
      }
    }
    __syncthreads();  // the next round overwrites the factors
  }
  float* out = a.out.data + row * a.out.stride + int64_t{head} * head_dim;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int d = thread + i * kMergeThreads;
    if (d >= head_dim) continue;
    const float value =
        finished(total[i], maximum, sum, a.sinks == nullptr ? nullptr : a.sinks + head);
    if (there) out[d] = value;
    if (quantized.values != nullptr) {
      quantize_value(quantized, row, block_y() * kMergeBlock + thread_x(), value);
    }
  }
}

template <int kMergeThreads, int kValues>
void launch_merge(cudaStream_t stream, const AttentionParams& params, int rows, int num_heads,
                  const QuantTarget& quantized) {
  const dim3 grid = grid2(rows, ceil_div(int64_t{num_heads} * kMergeThreads, kMergeBlock));
  HEARTH_LAUNCH(stream, (merge_kernel<kMergeThreads, kValues>), grid, kMergeBlock, 0, params,
                num_heads, quantized);
}

void merge_splits(cudaStream_t stream, const AttentionParams& params, int rows, int num_heads,
                  const QuantTarget& quantized) {
  const auto launch = params.kv.v_dim <= 64            ? launch_merge<64, 1>
                      : params.kv.v_dim <= 128         ? launch_merge<128, 1>
                      : params.kv.v_dim <= kMergeBlock ? launch_merge<kMergeBlock, 1>
                                                       : launch_merge<kMergeBlock, 2>;
  static_assert(kMaxHeadDim <= 2 * kMergeBlock);
  launch(stream, params, rows, num_heads, quantized);
}
/// Whether a block's values are neighbouring inputs of the product, from a chunk's first on.
bool merges_chunks(int v_dim, int num_heads) {
  return (v_dim == 64 || v_dim == 128 || v_dim == kMergeBlock) &&
         num_heads * v_dim % kMergeBlock == 0;
}

void attend(const CudaState& state, KvTypes types, const AttentionParams& params, int rows,
            int num_seqs, bool whole) {
  cudaStream_t stream = state.stream.get();
  if (any_types(types)) return attend_any(stream, params, rows, whole);
  const KvType type = types.k;
  if (type != KvType::kF32 && tiled_heads(params.kv)) {
    return attend_tiles(stream, type, params, rows, num_seqs, whole, state.wgmma);
  }
  switch (type) {
    case KvType::kF32: return attend_f32(stream, params, rows, whole);
    case KvType::kF16: return attend_f16(stream, params, rows, whole);
    case KvType::kBF16: return attend_bf16(stream, params, rows, whole);
    case KvType::kQ8_0: return attend_q8(stream, params, rows, whole);
    default: HEARTH_EXPECT(false, static_cast<int>(type));
  }
}

/// How the blocks that compute splits merge them; without arrivals if merge_splits must.
MergeTail merge_tail(const CudaState& state, const AttentionParams& params, KvTypes types,
                     int64_t rows, const QuantTarget& quantized) {
  const bool tiled =
      !any_types(types) && types.k != KvType::kF32 && tiled_heads(params.kv);  // few_rows_kernel
  if (!tiled || rows * params.kv.num_kv_heads > kArrivals) return {};
  MergeTail merge{state.arrivals(), 1, quantized};
  // One block merges whole chunks of the product's inputs. All heads together have whole chunks.
  const auto whole_chunks = [&] {
    return params.kv.num_kv_heads % merge.kv_heads == 0 &&
           merge.kv_heads * params.heads_per_kv * params.kv.v_dim % kChunkInputs == 0;
  };
  while (quantized.values != nullptr && !whole_chunks()) ++merge.kv_heads;
  return merge;
}

void attend_rows(void* opaque, const AttentionArgs& args, bool to_all) {
  const BatchIndex& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  CudaState& state = cuda_state(opaque);
  cudaStream_t stream = state.stream.get();
  const GroupIndex& group = batch.groups[args.group];
  const KvShape& shape = args.kv.shape;
  HEARTH_EXPECT(shape.k_dim <= kMaxKeyDims && shape.v_dim <= kMaxHeadDim, shape.k_dim);
  AttentionParams params{};
  params.count = row_count(batch, Rows::kTokens);
  params.positions = batch.positions;
  params.context_len = batch.context_len;
  params.to_all = to_all;
  params.seq_idx = batch.seq_idx;
  params.block_table = group.block_table;
  params.max_blocks = group.max_blocks;
  params.heads_per_kv = args.num_heads / shape.num_kv_heads;
  params.q = rows_view(args.q);
  params.out = rows_view(args.out);
  params.kv = kv_view(args.kv);
  params.scale = args.scale;
  params.soft_cap = args.soft_cap;
  params.window = args.window;
  params.sinks = args.sinks == nullptr ? nullptr : args.sinks->vector;
  params.max_splits = (group.max_blocks * args.kv.block_size + kSplit - 1) / kSplit;
  params.partial = static_cast<float*>(state.partial.get());

  const int64_t row_bytes =
      int64_t{args.num_heads} * params.max_splits * (shape.v_dim + 2) * int64_t{sizeof(float)};
  const int64_t at_once = kPartialBytes / row_bytes;
  if (batch.num_tokens >= kManyQueries || params.max_splits == 1 || at_once == 0) {
    return attend(state, args.kv.types, params, batch.num_tokens, batch.num_seqs, true);
  }
  QuantTarget quantized{};
  if (merges_chunks(shape.v_dim, args.num_heads)) {
    quantized = hold_quantized(state, batch, Rows::kTokens, args.out, args.reader);
  }
  params.merge = merge_tail(state, params, args.kv.types,
                            std::min(at_once, int64_t{batch.num_tokens}), quantized);
  for (int64_t first = 0; first < batch.num_tokens; first += at_once) {
    params.first_row = static_cast<int32_t>(first);
    const auto rows =
        static_cast<int>(batch.num_tokens - first < at_once ? batch.num_tokens - first : at_once);
    attend(state, args.kv.types, params, rows, batch.num_seqs, false);
    if (params.merge.arrivals == nullptr) {
      merge_splits(stream, params, rows, args.num_heads, quantized);
    }
  }
}

}  // namespace

void cuda::attention(void* state, const AttentionArgs& args) { attend_rows(state, args, false); }

void cuda::attention_to_all(void* state, const AttentionArgs& args) {
  attend_rows(state, args, true);
}

}  // namespace hearth::kernels
