// One block of four warps per (query row, head): it walks the splits of kAttentionSplit positions
// that the row sees, in ascending order. Per split:
//   1. scores: each warp takes tiles of kAttentionTile positions; two lanes per position add up the
//      even and the odd shares of the head dimension, then add to each other;
//   2. one warp, one lane per tile: running maximum over the tiles, weights exp(score - maximum),
//      and the factor that rescales what earlier tiles gave;
//   3. one thread per value dimension: tiles in ascending order, positions in ascending order, one
//      chain of fma. Partial results of splits merge the same way.
// Nothing of it depends on other rows, so a row's result is the same in any step. Positions that
// the row does not see are never read: they may hold anything.

#include "kernels/cuda_kv.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTiles = kAttentionSplit / kAttentionTile;
static_assert(kTiles == kWarp, "step 2 has one lane per tile");
static_assert(2 * kAttentionTile == kWarp, "step 1 has two lanes per position");

struct AttentionParams {
  const int32_t* count;
  const int32_t* positions;
  const int32_t* seq_idx;
  const int32_t* block_table;
  int32_t max_blocks;
  int32_t heads_per_kv;
  RowsView q;
  RowsView out;
  KvView kv;
  float scale;
  float soft_cap;
  int32_t window;
  const float* sinks;
};

/// What one split leaves in shared memory.
struct Split {
  float weight[kAttentionSplit];  // scores, then exp(score - maximum up to the position's tile)
  float rescale[kTiles];          // exp(maximum before the tile - maximum with it)
  float sum[kTiles];              // of the tile's weights
  float maximum;                  // over the whole split
};

/// Shares half, half + 2, ... of q . k for one position. Both lanes' sums make the dot product.
template <typename T, int kShare>
__device__ float half_dot(const float* q, const T* key, const KvView& kv, int kv_head, int offset,
                          int half) {
  float sum = 0;
  for (int share = half; share < kv.head_dim / kShare; share += 2) {
    const T* at =
        key + key_element(kv_head, offset, share * kShare, kv.head_dim, kv.block_size, kShare);
    if constexpr (kShare > 1) {
      const Share<T> k = *reinterpret_cast<const Share<T>*>(at);
#pragma unroll
      for (int i = 0; i < kShare; ++i)
        sum = fmaf(q[share * kShare + i], to_float(k.element[i]), sum);
    } else {
      sum = fmaf(q[share], to_float(*at), sum);
    }
  }
  return sum;
}

/// Step 1 for one tile: scores of positions [begin, end) of it, -infinity for the others.
template <typename T, int kShare>
__device__ void score_tile(const AttentionParams& a, const float* q, const int32_t* table,
                           int kv_head, int tile, int begin, int end, float* scores) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int position = tile * kAttentionTile + lane % kAttentionTile;
  const bool seen = position >= begin && position < end;
  float score = 0;
  if (seen) {
    const T* key = keys<T>(a.kv, table[position / a.kv.block_size]);
    score = half_dot<T, kShare>(q, key, a.kv, kv_head, position % a.kv.block_size,
                                lane / kAttentionTile);
  }
  score += __shfl_xor_sync(kAllLanes, score, kAttentionTile);
  score *= a.scale;
  if (a.soft_cap > 0) score = a.soft_cap * tanhf(score / a.soft_cap);
  if (lane < kAttentionTile) scores[position % kAttentionSplit] = seen ? score : -INFINITY;
}

/// Step 2, by one warp: tiles [first, last] of the split were scored.
__device__ void weigh(Split& split, int first, int last) {
  const int tile = static_cast<int>(threadIdx.x) % kWarp;
  const bool scored = tile >= first && tile <= last;
  float* weights = split.weight + tile * kAttentionTile;
  float maximum = -INFINITY;
  if (scored) {
    for (int i = 0; i < kAttentionTile; ++i) maximum = fmaxf(maximum, weights[i]);
  }
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const float below = __shfl_up_sync(kAllLanes, maximum, offset);
    maximum = fmaxf(maximum, below);
  }
  const float before = __shfl_up_sync(kAllLanes, maximum, 1);
  if (tile == last) split.maximum = maximum;
  if (!scored) return;
  float sum = 0;
  for (int i = 0; i < kAttentionTile; ++i) {
    weights[i] = expf(weights[i] - maximum);
    sum += weights[i];
  }
  split.sum[tile] = sum;
  split.rescale[tile] = tile == first ? 0.0f : expf(before - maximum);
}

template <typename T, int kShare, int kDims>
__global__ void __launch_bounds__(kThreads) attention_kernel(AttentionParams a) {
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  if (row >= *a.count) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int head_dim = a.kv.head_dim;
  const int kv_head = head / a.heads_per_kv;
  const int position = a.positions[row];
  const int lowest = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  const int32_t* table = a.block_table + static_cast<int64_t>(a.seq_idx[row]) * a.max_blocks;

  HEARTH_DYN_SHARED(float, q);
  __shared__ Split split;
  const float* query = a.q.data + row * a.q.stride + static_cast<int64_t>(head) * head_dim;
  for (int d = thread; d < head_dim; d += kThreads) q[d] = query[d];
  __syncthreads();

  float total_max = -INFINITY;
  float total_sum = 0;
  float total[kDims] = {};
  for (int s = lowest / kAttentionSplit; s <= position / kAttentionSplit; ++s) {
    const int start = s * kAttentionSplit;
    const int begin = lowest > start ? lowest : start;
    const int end = position + 1 < start + kAttentionSplit ? position + 1 : start + kAttentionSplit;
    const int first = (begin - start) / kAttentionTile;
    const int last = (end - 1 - start) / kAttentionTile;
    for (int tile = first + thread / kWarp; tile <= last; tile += kWarps) {
      score_tile<T, kShare>(a, q, table, kv_head, start / kAttentionTile + tile, begin, end,
                            split.weight);
    }
    __syncthreads();
    if (thread < kWarp) weigh(split, first, last);
    __syncthreads();

    float sum = 0;
    float part[kDims] = {};
    for (int tile = first; tile <= last; ++tile) {
      sum = fmaf(sum, split.rescale[tile], split.sum[tile]);
#pragma unroll
      for (int i = 0; i < kDims; ++i) part[i] *= split.rescale[tile];
      const int at = start + tile * kAttentionTile;
      const T* value = values<T>(a.kv, table[at / a.kv.block_size]);
      const int from = begin > at ? begin : at;
      const int to = end < at + kAttentionTile ? end : at + kAttentionTile;
      for (int p = from; p < to; ++p) {
        const float weight = split.weight[p - start];
        const T* v =
            value + value_element(kv_head, p % a.kv.block_size, 0, head_dim, a.kv.block_size);
#pragma unroll
        for (int i = 0; i < kDims; ++i) {
          const int d = thread + i * kThreads;
          if (d < head_dim) part[i] = fmaf(weight, to_float(v[d]), part[i]);
        }
      }
    }
    const float maximum = fmaxf(total_max, split.maximum);
    const float keep = expf(total_max - maximum);
    const float add = expf(split.maximum - maximum);
    total_sum = fmaf(sum, add, total_sum * keep);
#pragma unroll
    for (int i = 0; i < kDims; ++i) total[i] = fmaf(part[i], add, total[i] * keep);
    total_max = maximum;
    __syncthreads();  // the next split overwrites what this one read
  }

  float keep = 1.0f;
  if (a.sinks != nullptr) {
    const float maximum = fmaxf(total_max, a.sinks[head]);
    keep = expf(total_max - maximum);
    total_sum = total_sum * keep + expf(a.sinks[head] - maximum);
  }
  float* out = a.out.data + row * a.out.stride + static_cast<int64_t>(head) * head_dim;
#pragma unroll
  for (int i = 0; i < kDims; ++i) {
    const int d = thread + i * kThreads;
    if (d < head_dim) out[d] = total[i] * keep / total_sum;
  }
}

template <typename T, int kShare>
void attend(cudaStream_t stream, const AttentionParams& params, int32_t rows, int32_t heads) {
  const int head_dim = params.kv.head_dim;
  const size_t shared = static_cast<size_t>(head_dim) * sizeof(float);
  const dim3 grid = grid2(rows, heads);
  if (head_dim <= kThreads) {
    HEARTH_LAUNCH(stream, (attention_kernel<T, kShare, 1>), grid, kThreads, shared, params);
  } else if (head_dim <= 2 * kThreads) {
    HEARTH_LAUNCH(stream, (attention_kernel<T, kShare, 2>), grid, kThreads, shared, params);
  } else {
    HEARTH_EXPECT(head_dim <= 4 * kThreads, head_dim);
    HEARTH_LAUNCH(stream, (attention_kernel<T, kShare, 4>), grid, kThreads, shared, params);
  }
}

template <typename T>
void attend(void* state, const AttentionParams& params, const AttentionArgs& args) {
  cudaStream_t stream = cuda_state(state).stream.get();
  constexpr int kShare = Share<T>::kCount;
  if (key_share(args.kv.head_dim, sizeof(T)) == kShare) {
    attend<T, kShare>(stream, params, args.batch->num_tokens, args.num_heads);
  } else {
    attend<T, 1>(stream, params, args.batch->num_tokens, args.num_heads);
  }
}

}  // namespace

void cuda::attention(void* state, const AttentionArgs& args) {
  const BatchIndex& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  const GroupIndex& group = batch.groups[args.group];
  const AttentionParams params{row_count(batch, Rows::kTokens),
                               batch.positions,
                               batch.seq_idx,
                               group.block_table,
                               group.max_blocks,
                               args.num_heads / args.kv.num_kv_heads,
                               rows_view(args.q),
                               rows_view(args.out),
                               kv_view(args.kv),
                               args.scale,
                               args.soft_cap,
                               args.window,
                               args.sinks == nullptr ? nullptr : args.sinks->vector};
  switch (args.kv.dtype) {
    case DType::kF32: return attend<float>(state, params, args);
    case DType::kF16: return attend<Half>(state, params, args);
    case DType::kBF16: return attend<BFloat16>(state, params, args);
    default: HEARTH_EXPECT(false, static_cast<int>(args.kv.dtype));
  }
}

}  // namespace hearth::kernels
