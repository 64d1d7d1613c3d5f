#pragma once
// The merge of a row's splits by the blocks that compute them: the last one to store its partial
// results merges those of all, with the bits of merge_kernel (kernels/cuda/attention/attention.cu),
// and quantizes its values for the product that reads them.

#include "kernels/cuda/arrivals.cuh"
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/kv_tiles.cuh"
#include "kernels/cuda/matmul/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kMergedHeads = 16;  // at a time, of at most kMergedValues values per thread
constexpr int kMergedValues = 4;
static_assert(kMergedValues * kAttentionThreads % kMaxTiledHeadDim == 0);
static_assert(kAttentionThreads == kChunkInputs, "a chunk has an input per thread");

/// Factors of up to 32 splits, and the maximum up to the last of them.
struct MergeFactors {
  float keep[kMergedHeads][kWarp];
  float add[kMergedHeads][kWarp];
  float sum[kMergedHeads][kWarp];
  float maximum[kMergedHeads];
};

/// Merges the splits of `count` heads of a row.
__device__ inline void merge_heads(const AttentionParams& a, int row, int first_head, int count,
                                   MergeFactors& factors) {
  const Seen seen = seen_by(a, row);
  const int first = seen.begin / kSplit;
  const int num_splits = (seen.end - 1) / kSplit - first + 1;
  const int lane = thread_x() % kWarp;
  const int dim = a.kv.v_dim;
  const int stride = dim + 2;
  const int num_values = count * dim;
  int head[kMergedValues];
  const float* from[kMergedValues];  // the value's partial result of the first split
#pragma unroll
  for (int i = 0; i < kMergedValues; ++i) {
    const int value = thread_x() + i * kAttentionThreads;
    head[i] = value < num_values ? value / dim : 0;
    from[i] = partial_of(a, row, first_head + head[i], first) + (value - head[i] * dim);
  }
  float total[kMergedValues] = {};
  float sum[kMergedValues] = {};
#pragma unroll 1
  for (int begin = 0; begin < num_splits; begin += kWarp) {
    const int splits = num_splits - begin < kWarp ? num_splits - begin : kWarp;
    constexpr int kAtOnce = 8;  // the first ones are on their way while factors are computed
    float next[kMergedValues][kAtOnce];
    const auto load = [&](int group) {
#pragma unroll
      for (int i = 0; i < kMergedValues; ++i) {
        if (thread_x() + i * kAttentionThreads >= num_values) break;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (group + j < splits) next[i][j] = from[i][int64_t{begin + group + j} * stride];
        }
      }
    };
    load(0);
#pragma unroll 1
    for (int h = thread_x() / kWarp; h < count; h += kAttentionWarps) {
      const float* of_lane = partial_of(a, row, first_head + h, first + begin + lane) + dim;
      float own = -INFINITY;
      if (lane < splits) {
        own = of_lane[0];
        factors.sum[h][lane] = of_lane[1];
      }
      float upto = own;
      for (int offset = 1; offset < kWarp; offset *= 2) {
        const float other = __shfl_up_sync(kAllLanes, upto, offset);
        if (lane >= offset) upto = fmaxf(upto, other);
      }
      const float previous = __shfl_up_sync(kAllLanes, upto, 1);
      const float before = begin == 0 ? -INFINITY : factors.maximum[h];
      const Merge with = merge(lane == 0 ? before : fmaxf(before, previous), own);
      factors.keep[h][lane] = with.keep;
      factors.add[h][lane] = with.add;
      __syncwarp();  // the maximum before has been read
      if (lane == kWarp - 1) factors.maximum[h] = fmaxf(before, upto);
    }
    __syncthreads();
#pragma unroll 1
    for (int group = 0; group < splits; group += kAtOnce) {
      if (group > 0) load(group);
#pragma unroll
      for (int i = 0; i < kMergedValues; ++i) {
        if (thread_x() + i * kAttentionThreads >= num_values) break;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int s = group + j;
          if (s >= splits) break;
          const float keep = factors.keep[head[i]][s];
          const float add = factors.add[head[i]][s];
          total[i] = fmaf(next[i][j], add, total[i] * keep);
          sum[i] = fmaf(factors.sum[head[i]][s], add, sum[i] * keep);
        }
      }
    }
    __syncthreads();  // the next round, or the next heads, overwrite the factors
  }
  const int first_value = first_head * dim;
#pragma unroll
  for (int i = 0; i < kMergedValues; ++i) {
    const int value = thread_x() + i * kAttentionThreads;
    if (value >= num_values) break;
    const float* sink = a.sinks == nullptr ? nullptr : a.sinks + first_head + head[i];
    const float merged = finished(total[i], factors.maximum[head[i]], sum[i], sink);
    a.out.data[row * a.out.stride + first_value + value] = merged;
    if (a.merge.quantized.values != nullptr) {
      quantize_value(a.merge.quantized, row, first_value + value, merged);
    }
  }
  __syncthreads();  // the next heads overwrite the maxima
}

/// By all threads of a block that has computed splits of these rows, which `blocks` blocks of the
/// grid's third dimension share.
__device__ inline void merge_last(const AttentionParams& a, int first_row, int num_rows, int blocks,
                                  MergeFactors& factors) {
  const int num_heads = a.merge.kv_heads * a.heads_per_kv;
  const int unit = block_y() / (a.merge.kv_heads * a.head_groups);
  const int units = a.kv.num_kv_heads / a.merge.kv_heads;
  if (!arrive_last(a.merge.arrivals + block_x() * units + unit,
                   a.merge.kv_heads * a.head_groups * blocks)) {
    return;
  }
  const int fit = kMergedValues * kAttentionThreads / a.kv.v_dim;
  const int at_once = fit < kMergedHeads ? fit : kMergedHeads;
  for (int row = first_row; row < first_row + num_rows; ++row) {
    for (int done = 0; done < num_heads; done += at_once) {
      const int count = num_heads - done < at_once ? num_heads - done : at_once;
      merge_heads(a, row, unit * num_heads + done, count, factors);
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
