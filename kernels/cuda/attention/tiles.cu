// Attention on the tensor cores over KV in tiles (kernels/cuda/attention/kv_tiles.cuh): f16, bf16
// and q8_0. A block has up to 16 columns, each one head of one row: the heads of one KV head, for
// as many consecutive rows of the same sequence as fit. Per split of attention.cuh:
//   1. scores: a warp takes tiles of 16 positions, K being operand A and the columns operand B; a
//      query is the sum of two numbers of the KV's type, so nearly all of its bits count (q8_0:
//      kernels/cuda/attention/tiles_q8.cuh)
//   2. one warp per column: the split's maximum, weights exp(score - maximum), rounded (to f16, or
//      to the sum of two bf16), and the sum of these rounded weights
//   3. a warp takes tiles of 16 dimensions, with V as operand A and the weights as operand B, and
//      adds up the split's tiles of positions, ascending
// Splits are merged as in attention.cuh. A position that a column does not see has weight 0 and
// changes no bit of its sums (provided V is finite, which a KV cache of f16 cannot guarantee), so a
// row's result depends neither on the other rows of its block nor on their number. Elements of V
// that no column sees count as 0: they may hold anything.

#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/attention/tiles_q8.cuh"

namespace hearth::kernels {
namespace {

constexpr int kColumnStride = kSplit + 8;  // of scores: neighbouring columns are in different banks
constexpr int kColumnsPerWarp = kColumns / kAttentionWarps;
/// Tiles of K, and of V, that a warp loads before it multiplies the first of them. With few rows,
/// memory is the bottleneck; with many, registers are better spent on more blocks.
template <bool kWhole>
constexpr int kTilesAhead = kWhole ? 1 : 2;

__host__ __device__ inline int heads_of_block(int heads_per_kv) {
  return heads_per_kv < kColumns ? heads_per_kv : kColumns;
}
/// Rows that share a block: those of a prefill, or of drafted tokens to verify.
__host__ __device__ inline int rows_of_block(int heads_per_kv) {
  return kColumns / heads_of_block(heads_per_kv);
}

/// Step 1 for one tile of positions.
template <typename T, int kAhead>
__device__ void score_tile(const AttentionParams& a, const Column* columns, int column_tiles,
                           const uint32_t* query, int64_t block, int kv_head, int tile_begin,
                           uint32_t* scores) {
  const int lane = thread_x() % kWarp;
  float c[kColumnTiles][4] = {};
  Tiles<T>::template dots<kAhead>(a.kv, block, kv_head, tile_begin % a.kv.block_size, column_tiles,
                                  query, c);
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) {
    if (tile >= column_tiles) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * tile + lane % 4 * 2 + i % 2;
      const int position = tile_begin + lane / 4 + i / 2 * 8;
      const Seen& seen = columns[column].seen;
      float value = c[tile][i] * columns[column].unscale * a.scale;
      if (a.soft_cap > 0) value = a.soft_cap * tanhf(value / a.soft_cap);
      if (position < seen.begin || position >= seen.end) value = -INFINITY;
      scores[column * kColumnStride + position % kSplit] = __float_as_uint(value);
    }
  }
}

/// True if a column sees a position of the split.
__device__ inline bool sees(const Column& c, int start) {
  return c.row >= 0 && c.seen.begin < start + kSplit && c.seen.end > start;
}

/// Step 2 for one column, by one warp, over positions [first, last) of the split, which are whole
/// tiles.
template <typename T>
__device__ void weigh(Column& column, int start, int first, int last, uint32_t* scores) {
  const int lane = thread_x() % kWarp;
  const bool there = sees(column, start);
  float maximum = -INFINITY;
  for (int i = first + lane; i < last; i += kWarp) {
    maximum = fmaxf(maximum, __uint_as_float(scores[i]));
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, offset));
  }
  // In the order of absolute positions: the start of the block's range within a split must not
  // change which thread adds what.
  float sum = 0;
  for (int i = lane; i < kSplit; i += kWarp) {
    if (i < first || i >= last) continue;
    float left = there ? expf(__uint_as_float(scores[i]) - maximum) : 0.0f;
    uint32_t packed = 0;
#pragma unroll
    for (int term = 0; term < Tiles<T>::kWeightTerms; ++term) {
      const auto rounded = take_term<typename Tiles<T>::Number>(&left);
      packed |= static_cast<uint32_t>(bits_of(rounded)) << 16 * term;
      sum += to_float(rounded);
    }
    scores[i] = packed;
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    column.maximum = maximum;
    column.sum = sum;
  }
}

/// Clears elements outside positions [begin, end) in a tile of V that starts at tile_begin.
__device__ inline void clear_unseen(int tile_begin, int begin, int end, uint32_t (&v)[4]) {
  if (begin <= tile_begin && end >= tile_begin + kKvTile) return;
  const int lane = thread_x() % kWarp;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int position = tile_begin + lane % 4 * 2 + r / 2 * 8 + e;
      if (position < begin || position >= end) v[r] &= e == 0 ? 0xffff0000u : 0x0000ffffu;
    }
  }
}

/// One step of the sums of 16 dimensions and 8 columns. `weights` starts at the tile's first
/// position.
template <typename T>
__device__ void add_tile(const uint32_t (&v)[4], const uint32_t* weights, float (&c)[4]) {
  const int lane = thread_x() % kWarp;
  const uint32_t* own = weights + lane / 4 * kColumnStride + lane % 4 * 2;
  const auto low = load_as<uint2>(own);
  const auto high = load_as<uint2>(own + 8);
#pragma unroll
  for (int term = 0; term < Tiles<T>::kWeightTerms; ++term) {
    const unsigned halves =
        term == 0 ? 0x5410 : 0x7632;  // the lower or the upper halves of both numbers
    mma_k16<typename Tiles<T>::Number>(c, v, __byte_perm(low.x, low.y, halves),
                                       __byte_perm(high.x, high.y, halves));
  }
}

constexpr int kWarpDims = kMaxTiledHeadDim / kKvTile / kAttentionWarps;  // tiles of V per warp

/// The tiles of V that a warp handles. If there are few, two warps share each tile, with half of
/// the columns each.
struct WarpTiles {
  int first;
  int step;
  int end;
  int only;  ///< the column tile; -1: all

  __device__ explicit WarpTiles(int head_dim) {
    const int warp = thread_x() / kWarp;
    const int tiles = head_dim / kKvTile;
    const bool few = 2 * tiles <= kAttentionWarps;
    static_assert(kColumnTiles == 2);
    first = few ? warp % (kAttentionWarps / 2) : warp;
    step = few ? tiles : kAttentionWarps;
    end = tiles;
    only = few ? warp / (kAttentionWarps / 2) : -1;
  }
  __device__ bool has(int column_tile) const { return only < 0 || only == column_tile; }
};

template <typename T, bool kWhole>
__global__ void __launch_bounds__(kAttentionThreads, kWhole ? 3 : 4)
    attention_tiles_kernel(AttentionParams a) {
  const int first_row = a.first_row + block_x();
  const int count = *a.count;
  if (first_row >= count) return;
  const int seq = a.seq_idx[first_row];
  const int block_heads = heads_of_block(a.heads_per_kv);
  const int most_rows = rows_of_block(a.heads_per_kv);
  // Blocks of rows begin at multiples of `most_rows`, at the start of a sequence and at the start
  // of the launch.
  if (blockIdx.x != 0 && first_row % most_rows != 0 && a.seq_idx[first_row - 1] == seq) return;
  const int past_launch = a.first_row + grid_x();
  const int end_row = past_launch < count ? past_launch : count;
  int num_rows = 1;
  while ((first_row + num_rows) % most_rows != 0 && first_row + num_rows < end_row &&
         a.seq_idx[first_row + num_rows] == seq) {
    ++num_rows;
  }

  const auto thread = thread_x();
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const KvView& kv = a.kv;
  const int head_dim = kv.k_dim;
  const int kv_head = block_y() / a.head_groups;
  const int in_group = block_y() % a.head_groups * block_heads;
  const int group_heads =
      a.heads_per_kv - in_group < block_heads ? a.heads_per_kv - in_group : block_heads;
  const int num_columns = num_rows * group_heads;
  const int column_tiles = (num_columns + 7) / 8;
  const int32_t* table = a.block_table + int64_t{seq} * a.max_blocks;

  // The positions that the block sees: from the first to the last that any of its rows sees.
  Seen seen = seen_by(a, first_row);
  for (int i = 1; i < num_rows; ++i) {
    const Seen next = seen_by(a, first_row + i);
    seen.begin = next.begin < seen.begin ? next.begin : seen.begin;
    seen.end = next.end > seen.end ? next.end : seen.end;
  }
  const int first_split = seen.begin / kSplit;
  const int last_split = (seen.end - 1) / kSplit;
  // Without kWhole the splits are dealt out to the blocks of the grid's third dimension.
  const int step = kWhole ? 1 : grid_z();
  int split = kWhole ? first_split : first_split + block_z();
  if (split > last_split) return;

  __shared__ Column columns[kColumns];
  HEARTH_DYN_SHARED(uint32_t, scores);  // (kColumns, kColumnStride); then the queries as operand B
  auto* query = scores + kColumns * kColumnStride;
  if (thread < kColumns) {
    Column& c = columns[thread];
    const bool there = thread < num_columns;
    c.row = there ? first_row + thread / group_heads : -1;
    c.head = kv_head * a.heads_per_kv + in_group + thread % group_heads;
    c.seen = there ? seen_by(a, c.row) : Seen{0, 0};
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kColumnsPerWarp; ++i) {
    Tiles<T>::store_query(a, warp * kColumnsPerWarp + i, columns, query);
  }
  __syncthreads();

  constexpr int kAhead = kTilesAhead<kWhole>;
  const WarpTiles own(head_dim);
  [[maybe_unused]] float total[kWarpDims][kColumnTiles][4] =
      {};  // these three are used only with kWhole
  [[maybe_unused]] float total_max[kColumnTiles][2];
  [[maybe_unused]] float total_sum[kColumnTiles][2] = {};
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) {
    total_max[tile][0] = total_max[tile][1] = -INFINITY;
  }
  for (bool more = true; more; split += step) {
    const int start = split * kSplit;
    const int begin = seen.begin > start ? seen.begin : start;
    const int end = seen.end < start + kSplit ? seen.end : start + kSplit;
    const int first_tile = begin / kKvTile;
    const int last_tile = (end - 1) / kKvTile;
    const auto block_of = [&](int tile) { return table[tile * kKvTile / kv.block_size]; };
    for (int tile = first_tile + warp; tile <= last_tile; tile += kAttentionWarps) {
      score_tile<T, kAhead>(a, columns, column_tiles, query, block_of(tile), kv_head,
                            tile * kKvTile, scores);
    }
    __syncthreads();
    for (int i = warp; i < 8 * column_tiles; i += kAttentionWarps) {
      weigh<T>(columns[i], start, first_tile * kKvTile - start, (last_tile + 1) * kKvTile - start,
               scores + i * kColumnStride);
    }
    __syncthreads();

    float part[kWarpDims][kColumnTiles][4] = {};
    for (int group = first_tile; group <= last_tile; group += kAhead) {
#pragma unroll
      for (int i = 0; i < kWarpDims; ++i) {
        const int dims = own.first + i * own.step;
        if (dims >= own.end) break;
        typename Tiles<T>::Values stored[kAhead];
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
          const int tile = group + ahead;
          if (tile > last_tile) break;
          stored[ahead].load(kv, block_of(tile), kv_head, tile * kKvTile % kv.block_size,
                             dims * kKvTile);
        }
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
          const int tile = group + ahead;
          if (tile > last_tile) break;
          uint32_t v[4];
          stored[ahead].operand(v);
          clear_unseen(tile * kKvTile, seen.begin, seen.end, v);
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) {
            if (j >= column_tiles || !own.has(j)) continue;
            add_tile<T>(v, scores + 8 * j * kColumnStride + tile * kKvTile - start, part[i][j]);
          }
        }
      }
    }

    if constexpr (!kWhole) {
#pragma unroll
      for (int i = 0; i < kWarpDims; ++i) {
        const int dims = own.first + i * own.step;
        if (dims >= own.end) break;
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const Column& c = columns[8 * j + lane % 4 * 2 + e % 2];
            if (!sees(c, start) || !own.has(j)) continue;
            partial_of(a, c.row, c.head, split)[dims * kKvTile + lane / 4 + e / 2 * 8] =
                part[i][j][e];
          }
        }
      }
      if (thread < num_columns && sees(columns[thread], start)) {
        const Column& c = columns[thread];
        float* to = partial_of(a, c.row, c.head, split) + head_dim;
        to[0] = c.maximum;
        to[1] = c.sum;
      }
    } else {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const Column& c = columns[8 * j + lane % 4 * 2 + e];
          if (!sees(c, start)) continue;
          const Merge with = merge(total_max[j][e], c.maximum);
          total_max[j][e] = with.maximum;
          total_sum[j][e] = fmaf(c.sum, with.add, total_sum[j][e] * with.keep);
#pragma unroll
          for (int i = 0; i < kWarpDims; ++i) {
#pragma unroll
            for (int r = e; r < 4; r += 2) {
              total[i][j][r] = fmaf(part[i][j][r], with.add, total[i][j][r] * with.keep);
            }
          }
        }
      }
    }
    more = split + step <= last_split;
    if (more) __syncthreads();  // the next split overwrites what this one read
  }

  if constexpr (kWhole) {
#pragma unroll
    for (int i = 0; i < kWarpDims; ++i) {
      const int dims = own.first + i * own.step;
      if (dims >= own.end) break;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Column& c = columns[8 * j + lane % 4 * 2 + e % 2];
          if (c.row < 0 || !own.has(j)) continue;
          const int64_t d = dims * kKvTile + lane / 4 + e / 2 * 8;
          a.out.data[c.row * a.out.stride + int64_t{c.head} * head_dim + d] =
              finished(total[i][j][e], total_max[j][e % 2], total_sum[j][e % 2],
                       a.sinks == nullptr ? nullptr : a.sinks + c.head);
        }
      }
    }
  }
}

template <typename T>
void launch_tiles(cudaStream_t stream, AttentionParams params, int rows, bool whole) {
  const int heads = heads_of_block(params.heads_per_kv);
  params.head_groups = (params.heads_per_kv + heads - 1) / heads;
  const size_t shared =
      sizeof(uint32_t) *
      static_cast<size_t>(kColumns * kColumnStride + Tiles<T>::query_words(params.kv.k_dim));
  const dim3 grid = attention_grid(params, rows, whole);
  if (whole) {
    HEARTH_LAUNCH(stream, (attention_tiles_kernel<T, true>), grid, kAttentionThreads, shared,
                  params);
  } else {
    HEARTH_LAUNCH(stream, (attention_tiles_kernel<T, false>), grid, kAttentionThreads, shared,
                  params);
  }
}

}  // namespace

void attend_tiles(cudaStream_t stream, DType dtype, const AttentionParams& params, int rows,
                  bool whole) {
  switch (dtype) {
    case DType::kF16: return launch_tiles<Half>(stream, params, rows, whole);
    case DType::kBF16: return launch_tiles<BFloat16>(stream, params, rows, whole);
    case DType::kQ8_0: return launch_tiles<int8_t>(stream, params, rows, whole);
    default: HEARTH_EXPECT(false, static_cast<int>(dtype));
  }
}

}  // namespace hearth::kernels
