// Chooses the kernel of attention.cuh, and merges splits stored in the table's scratch.

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/kv_tiles.cuh"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

/// From this number of rows on, one block per row fills the device, so partial results stay in the
/// block.
constexpr int kManyQueries = 64;
constexpr int kMergeThreads = 128;

/// One block per (row, head). Computes the factors of all splits first, then each value's chain.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(AttentionParams a) {
  const int row = a.first_row + block_x();
  const int head = block_y();
  if (row >= *a.count) return;
  const Seen seen = seen_by(a, row);
  const int first = seen.begin / kSplit;
  const int num_splits = (seen.end - 1) / kSplit - first + 1;
  const int thread = thread_x();
  const int head_dim = a.kv.v_dim;
  const int stride = head_dim + 2;
  const float* partial = partial_of(a, row, head, first);

  constexpr int kAtOnce = 1024;
  __shared__ float keep[kAtOnce];
  __shared__ float add[kAtOnce];
  __shared__ float ends[2];  // maximum and sum so far
  float total[kMaxHeadDim / kMergeThreads] = {};
  for (int begin = 0; begin < num_splits; begin += kAtOnce) {
    const int count = num_splits - begin < kAtOnce ? num_splits - begin : kAtOnce;
    const float* from = partial + int64_t{begin} * stride;
    for (int s = thread; s < count; s += kMergeThreads) {
      keep[s] = from[int64_t{s} * stride + head_dim];
      add[s] = from[int64_t{s} * stride + head_dim + 1];
    }
    __syncthreads();
    if (thread == 0) {
      float maximum = begin == 0 ? -INFINITY : ends[0];
      float sum = begin == 0 ? 0.0f : ends[1];
      for (int s = 0; s < count; ++s) {
        const Merge with = merge(maximum, keep[s]);
        sum = fmaf(add[s], with.add, sum * with.keep);
        maximum = with.maximum;
        keep[s] = with.keep;
        add[s] = with.add;
      }
      ends[0] = maximum;
      ends[1] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMaxHeadDim / kMergeThreads; ++i) {
      const int d = thread + i * kMergeThreads;
      if (d >= head_dim) continue;
#pragma unroll 8
      for (int s = 0; s < count; ++s) {
        total[i] = fmaf(from[int64_t{s} * stride + d], add[s], total[i] * keep[s]);
      }
    }
    __syncthreads();  // the next round overwrites the factors
  }
  float* out = a.out.data + row * a.out.stride + int64_t{head} * head_dim;
#pragma unroll
  for (int i = 0; i < kMaxHeadDim / kMergeThreads; ++i) {
    const int d = thread + i * kMergeThreads;
    if (d >= head_dim) continue;
    out[d] = finished(total[i], ends[0], ends[1], a.sinks == nullptr ? nullptr : a.sinks + head);
  }
}

void attend(cudaStream_t stream, DType dtype, const AttentionParams& params, int rows, bool whole) {
  if (dtype != DType::kF32 && tiled_heads(params.kv)) {
    return attend_tiles(stream, dtype, params, rows, whole);
  }
  switch (dtype) {
    case DType::kF32: return attend_f32(stream, params, rows, whole);
    case DType::kF16: return attend_f16(stream, params, rows, whole);
    case DType::kBF16: return attend_bf16(stream, params, rows, whole);
    case DType::kQ8_0: return attend_q8(stream, params, rows, whole);
    default: HEARTH_EXPECT(false, static_cast<int>(dtype));
  }
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
    return attend(stream, args.kv.dtype, params, batch.num_tokens, true);
  }
  for (int64_t first = 0; first < batch.num_tokens; first += at_once) {
    params.first_row = static_cast<int32_t>(first);
    const auto rows =
        static_cast<int>(batch.num_tokens - first < at_once ? batch.num_tokens - first : at_once);
    attend(stream, args.kv.dtype, params, rows, false);
    HEARTH_LAUNCH(stream, merge_kernel, grid2(rows, args.num_heads), kMergeThreads, 0, params);
  }
}

}  // namespace

void cuda::attention(void* state, const AttentionArgs& args) { attend_rows(state, args, false); }

void cuda::attention_to_all(void* state, const AttentionArgs& args) {
  attend_rows(state, args, true);
}

}  // namespace hearth::kernels
