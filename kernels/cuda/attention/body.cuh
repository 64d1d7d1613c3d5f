#pragma once
// The kernel of attention.cuh for one KV type; each type is compiled in its own file.

#include <type_traits>

#include "kernels/cuda/attention/any_type.cuh"
#include "kernels/cuda/attention/attention.cuh"

namespace hearth::kernels {
namespace {

/// Shared memory for one split, per head.
template <int kHeads>
struct SplitScores {
  float weight[kHeads][kSplit];  // scores, then exp(score - maximum)
  float maximum[kHeads];
  float sum[kHeads];
};

/// Sums shares half, half + 2, ... of q . k of one position, for every head. The sums of both lanes
/// add up to the dot product.
template <typename T, int kShare, int kHeads>
__device__ void half_dots(const AttentionParams& a, const float* q, int kv_head, int64_t block,
                          int offset, int half, float (&sum)[kHeads]) {
  const KvView& kv = a.kv;
  const T* key = keys<const T>(kv, block);
  for (int share = half; share < kv.k_dim / kShare; share += 2) {
    const int first = share * kShare;
    const T* at = key + key_element(kv_head, offset, first, kv.k_dim, kv.block_size, kShare);
    float k[kShare];
    if constexpr (kShare > 1) {
      const Share<T> stored = load_as<Share<T>>(at);
#pragma unroll
      for (int i = 0; i < kShare; ++i) k[i] = to_float(stored.element[i]);
    } else {
      k[0] = to_float(*at);
    }
    if constexpr (kScaled<T>) {
      const float d = to_float(scales_of(kv, key, kv.k_dim)[key_scale(kv, kv_head, offset, first)]);
#pragma unroll
      for (int i = 0; i < kShare; ++i) k[i] *= d;  // exact
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int i = 0; i < kShare; ++i) sum[h] = fmaf(q[h * kv.k_dim + first + i], k[i], sum[h]);
    }
  }
}

/// The same for K of any type, which has shares of one value.
template <int kHeads>
__device__ void half_any_dots(const AttentionParams& a, const float* q, int kv_head, int64_t block,
                              int offset, int half, float (&sum)[kHeads]) {
  const auto key = any_key(a.kv, block, kv_head);
  for (int d = half; d < a.kv.k_dim; d += 2) {
    const float k = key.load(d, offset);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) sum[h] = fmaf(q[h * a.kv.k_dim + d], k, sum[h]);
  }
}

/// Step 1 for one tile: scores of its positions [seen.begin, seen.end), -infinity for the others.
template <typename T, int kShare, int kHeads>
__device__ void score_tile(const AttentionParams& a, const float* q, const int32_t* table,
                           int kv_head, int tile_begin, const Seen& seen,
                           SplitScores<kHeads>& split) {
  const int lane = thread_x() % kWarp;
  const int position = tile_begin + lane % kAttentionTile;
  const bool there = position >= seen.begin && position < seen.end;
  float score[kHeads] = {};
  if (there) {
    const int64_t block = table[position / a.kv.block_size];
    const int offset = position % a.kv.block_size;
    if constexpr (std::is_same_v<T, AnyType>) {
      half_any_dots<kHeads>(a, q, kv_head, block, offset, lane / kAttentionTile, score);
    } else {
      half_dots<T, kShare, kHeads>(a, q, kv_head, block, offset, lane / kAttentionTile, score);
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    float value = score[h] + __shfl_xor_sync(kAllLanes, score[h], kAttentionTile);
    value *= a.scale;
    if (a.soft_cap > 0) value = a.soft_cap * tanhf(value / a.soft_cap);
    if (lane < kAttentionTile) split.weight[h][position % kSplit] = there ? value : -INFINITY;
  }
}

/// Step 2 for one head, by one warp, over positions [first, last) of the split, which are whole
/// tiles.
template <int kHeads>
__device__ void weigh(SplitScores<kHeads>& split, int head, int first, int last) {
  const int lane = thread_x() % kWarp;
  float* weights = split.weight[head];
  float maximum = -INFINITY;
  for (int i = first + lane; i < last; i += kWarp) maximum = fmaxf(maximum, weights[i]);
  for (int offset = 16; offset > 0; offset /= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, offset));
  }
  // In the order of absolute positions: the start of the row's window within a split must not
  // change which thread adds what.
  float sum = 0;
  for (int i = lane; i < kSplit; i += kWarp) {
    if (i < first || i >= last) continue;
    weights[i] = expf(weights[i] - maximum);
    sum += weights[i];
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    split.maximum[head] = maximum;
    split.sum[head] = sum;
  }
}

/// Of V of one dimension, over positions [from, to): one chain per head.
template <typename T, int kHeads>
__device__ void add_values(const AttentionParams& a, const int32_t* table, int kv_head, int d,
                           int from, int to, const SplitScores<kHeads>& split,
                           float (&sum)[kHeads]) {
  const KvView& kv = a.kv;
  for (int begin = from; begin < to;) {
    // Up to the end of the tile: one table lookup.
    int end = (begin / kAttentionTile + 1) * kAttentionTile;
    if (end > to) end = to;
    const T* value = values<const T>(kv, table[begin / kv.block_size]);
    const int offset = begin % kv.block_size;
    const T* at = value + (kv.v_in_k ? key_element(kv_head, offset, d, kv.k_dim, kv.block_size,
                                                   key_share(kv.k_dim, sizeof(T)))
                                     : value_element(kv_head, offset, d, kv.v_dim, kv.block_size));
    const int64_t step = kv.v_in_k ? key_share(kv.k_dim, sizeof(T)) : kv.v_dim;
    const auto count = end - begin;
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      float v = to_float(at[i * step]);
      if constexpr (kScaled<T>) {
        const int64_t scale = kv.v_in_k ? key_scale(kv, kv_head, offset + i, d)
                                        : value_scale(kv, kv_head, offset + i, d);
        v *= to_float(scales_of(kv, value, kv.v_in_k ? kv.k_dim : kv.v_dim)[scale]);  // exact
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        sum[h] = fmaf(split.weight[h][(begin + i) % kSplit], v, sum[h]);
      }
    }
    begin = end;
  }
}

/// The same for V of any type.
template <int kHeads>
__device__ void add_any_values(const AttentionParams& a, const int32_t* table, int kv_head, int d,
                               int from, int to, const SplitScores<kHeads>& split,
                               float (&sum)[kHeads]) {
  for (int position = from; position < to; ++position) {
    const int64_t block = table[position / a.kv.block_size];
    const float v = any_value(a.kv, block, kv_head).load(d, position % a.kv.block_size);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      sum[h] = fmaf(split.weight[h][position % kSplit], v, sum[h]);
    }
  }
}

/// Step 3 for one dimension, over the seen positions of [begin, end).
template <typename T, int kHeads>
__device__ void add_run(const AttentionParams& a, const int32_t* table, int kv_head, int d,
                        const Seen& seen, int begin, int end, const SplitScores<kHeads>& split,
                        float (&sum)[kHeads]) {
  if (seen.begin > begin) begin = seen.begin;
  if (seen.end < end) end = seen.end;
  if constexpr (std::is_same_v<T, AnyType>) {
    add_any_values<kHeads>(a, table, kv_head, d, begin, end, split, sum);
  } else {
    add_values<T, kHeads>(a, table, kv_head, d, begin, end, split, sum);
  }
}

/// Threads for one run of positions in step 3, and the number of runs in a block.
struct ValueThreads {
  int width;
  int runs;
};
__host__ __device__ inline ValueThreads value_threads(int head_dim) {
  int width = (head_dim + kWarp - 1) / kWarp * kWarp;
  if (width > kAttentionThreads) width = kAttentionThreads;
  int runs = 1;
  while (2 * runs * width <= kAttentionThreads) runs *= 2;
  return {width, runs};
}

/// Rotates the queries of a block as K was rotated.
template <int kHeads>
__device__ void rotate_queries(const KvView& kv, float* q) {
  if (!kv_rotated(kv.k_type, kv.v_in_k)) return;
  const int parts = kv.k_dim / kWarp;
  for (int i = thread_x() / kWarp; i < kHeads * parts; i += kAttentionWarps) {
    float* value = q + i / parts * kv.k_dim + i % parts * kWarp + thread_x() % kWarp;
    *value = rotated_lane(*value, kRotatedQuery);
  }
  __syncthreads();
}

template <typename T, int kShare, int kHeads, bool kWhole>
__global__ void __launch_bounds__(kAttentionThreads) attention_kernel(AttentionParams a) {
  after_previous_launch();
  constexpr int kDims = kMaxHeadDim / kAttentionThreads;
  const int row = a.first_row + block_x();
  if (row >= *a.count) return;
  const Seen seen = seen_by(a, row);
  const int first_split = seen.begin / kSplit;
  const int last_split = (seen.end - 1) / kSplit;
  const int step = kWhole ? 1 : grid_z();  // blocks share the row's splits
  int split_index = kWhole ? first_split : first_split + block_z();
  if (split_index > last_split) return;

  const int thread = thread_x();
  const int k_dim = a.kv.k_dim;
  const int v_dim = a.kv.v_dim;
  const int kv_head = block_y() / a.head_groups;
  const int in_group = block_y() % a.head_groups * kHeads;
  const int first_head = kv_head * a.heads_per_kv + in_group;
  const int num_heads = a.heads_per_kv - in_group < kHeads ? a.heads_per_kv - in_group : kHeads;
  const int32_t* table = a.block_table + int64_t{a.seq_idx[row]} * a.max_blocks;

  HEARTH_DYN_SHARED(float, q);  // (kHeads, k_dim); then the runs' sums, (runs, kHeads, width)
  float* run_sums = q + kHeads * k_dim;
  __shared__ SplitScores<kHeads> split;
  for (int i = thread; i < kHeads * k_dim; i += kAttentionThreads) {
    // Heads past the group's last are zero; their results are dropped.
    q[i] =
        i / k_dim < num_heads ? a.q.data[row * a.q.stride + int64_t{first_head} * k_dim + i] : 0.0f;
  }
  __syncthreads();
  if constexpr (std::is_same_v<T, AnyType> || kScaled<T>) rotate_queries<kHeads>(a.kv, q);

  const ValueThreads shape = value_threads(v_dim);
  const int run = thread / shape.width;
  const int own_dim = thread % shape.width;
  [[maybe_unused]] float total_max[kHeads];  // these three are used only with kWhole
  [[maybe_unused]] float total_sum[kHeads] = {};
  [[maybe_unused]] float total[kDims][kHeads] = {};
#pragma unroll
  for (int h = 0; h < kHeads; ++h) total_max[h] = -INFINITY;
  for (bool more = true; more; split_index += step) {
    const int start = split_index * kSplit;
    const Seen here = {seen.begin > start ? seen.begin : start,
                       seen.end < start + kSplit ? seen.end : start + kSplit};
    const int first_tile = here.begin / kAttentionTile;
    const int last_tile = (here.end - 1) / kAttentionTile;
    for (int tile = first_tile + thread / kWarp; tile <= last_tile; tile += kAttentionWarps) {
      score_tile<T, kShare, kHeads>(a, q, table, kv_head, tile * kAttentionTile, here, split);
    }
    __syncthreads();
    for (int h = thread / kWarp; h < kHeads; h += kAttentionWarps) {
      weigh<kHeads>(split, h, first_tile * kAttentionTile - start,
                    (last_tile + 1) * kAttentionTile - start);
    }
    __syncthreads();

    float part[kDims][kHeads] = {};
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      const int d = own_dim + i * kAttentionThreads;
      if (run >= shape.runs || d >= v_dim) continue;
      const int run_begin = start + run * (kSplit / shape.runs);
      const int run_end = run_begin + kSplit / shape.runs;
      add_run<T, kHeads>(a, table, kv_head, d, here, run_begin, run_end, split, part[i]);
    }
    if (shape.runs > 1) {  // in this case there is one dimension per thread
      if (run < shape.runs) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          run_sums[(run * kHeads + h) * shape.width + own_dim] = part[0][h];
        }
      }
      __syncthreads();
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        part[0][h] = 0;
        for (int r = 0; r < shape.runs; ++r) {
          part[0][h] += run_sums[(r * kHeads + h) * shape.width + own_dim];
        }
      }
    }

    if constexpr (!kWhole) {
      for (int h = 0; h < num_heads; ++h) {
        float* to = partial_of(a, row, first_head + h, split_index);
#pragma unroll
        for (int i = 0; i < kDims; ++i) {
          const int d = own_dim + i * kAttentionThreads;
          if (run == 0 && d < v_dim) to[d] = part[i][h];
        }
        if (thread == 0) {
          to[v_dim] = split.maximum[h];
          to[v_dim + 1] = split.sum[h];
        }
      }
    } else {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const Merge with = merge(total_max[h], split.maximum[h]);
        total_sum[h] = fmaf(split.sum[h], with.add, total_sum[h] * with.keep);
#pragma unroll
        for (int i = 0; i < kDims; ++i) {
          total[i][h] = fmaf(part[i][h], with.add, total[i][h] * with.keep);
        }
        total_max[h] = with.maximum;
      }
    }
    more = split_index + step <= last_split;
    if (more) __syncthreads();  // the next split overwrites what this one read
  }

  if constexpr (kWhole) {
    for (int h = 0; h < num_heads; ++h) {
      const int head = first_head + h;
      float* out = a.out.data + row * a.out.stride + int64_t{head} * v_dim;
#pragma unroll
      for (int i = 0; i < kDims; ++i) {
        const int d = own_dim + i * kAttentionThreads;
        if (run != 0 || d >= v_dim) continue;
        out[d] = finished(total[i][h], total_max[h], total_sum[h],
                          a.sinks == nullptr ? nullptr : a.sinks + head);
      }
    }
  }
}

template <typename T, int kShare, int kHeads>
void launch_heads(cudaStream_t stream, AttentionParams params, int rows, bool whole) {
  params.head_groups = (params.heads_per_kv + kHeads - 1) / kHeads;
  const ValueThreads shape = value_threads(params.kv.v_dim);
  const size_t shared =
      sizeof(float) * kHeads * static_cast<size_t>(params.kv.k_dim + shape.runs * shape.width);
  const dim3 grid = attention_grid(params, rows, whole);
  if (whole) {
    HEARTH_LAUNCH(stream, (attention_kernel<T, kShare, kHeads, true>), grid, kAttentionThreads,
                  shared, params);
  } else {
    HEARTH_LAUNCH(stream, (attention_kernel<T, kShare, kHeads, false>), grid, kAttentionThreads,
                  shared, params);
  }
}

template <typename T>
void launch_attention(cudaStream_t stream, const AttentionParams& params, int rows, bool whole) {
  constexpr int kShare = Share<T>::kCount;
  if (key_share(params.kv.k_dim, sizeof(T)) != kShare) {
    launch_heads<T, 1, 1>(stream, params, rows, whole);
  } else if (params.heads_per_kv == 1) {
    launch_heads<T, kShare, 1>(stream, params, rows, whole);
  } else if (params.heads_per_kv <= 4) {
    launch_heads<T, kShare, 4>(stream, params, rows, whole);
  } else {
    launch_heads<T, kShare, kMaxHeads>(stream, params, rows, whole);
  }
}

}  // namespace
}  // namespace hearth::kernels
