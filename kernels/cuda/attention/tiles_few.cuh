#pragma once
// Attention in tiles for few rows: a block has up to 16 columns, the heads of one KV head for as
// many consecutive rows of the same sequence as fit. Its time is the latency of its loads, so they
// begin together: all of a split's K, half of it in registers, and V, in shared memory. A lane
// reads only the parts of K and V that it loaded itself. Then
//   1. each warp computes the scores of two tiles of positions and their maxima,
//   2. and, with those of the other warps, their weights;
//   3. each warp computes the values of every eighth tile of 16 dimensions.

#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/attention/tiles_q8.cuh"

namespace hearth::kernels {
namespace {

constexpr int kWarpTiles = kSplitTiles / kAttentionWarps;  // of K per warp
static_assert(kWarpTiles == 2, "a chunk's sum of weights is that of two warps");
/// Dimensions of K that a warp loads before it multiplies them, if it loads `ahead` tiles of V.
__host__ __device__ constexpr int few_dims(int ahead) { return ahead == kSplitTiles ? 128 : 32; }

__host__ __device__ inline int few_heads_of_block(int heads_per_kv) {
  return heads_per_kv < kColumns ? heads_per_kv : kColumns;
}
/// Rows that share a block: those of drafted tokens to verify.
__host__ __device__ inline int few_rows_of_block(int heads_per_kv) {
  return kColumns / few_heads_of_block(heads_per_kv);
}
/// Shared memory of a warp for its second tile of K, and later for its weights.
template <typename T>
__host__ __device__ int few_key_bytes(int head_dim, int dims) {
  const int at_once = head_dim < dims ? head_dim : dims;
  const int slots = (at_once + Tiles<T>::kStepDims - 1) / Tiles<T>::kStepDims * Tiles<T>::kKeySlots;
  const int weights = kWarpTiles * Tiles<T>::kWeightTerms;
  return (slots > weights ? slots : weights) * kWarp * kSlotBytes;
}
/// Queries, K and weights, and `ahead` tiles of V per warp that has any.
template <typename T>
int few_shared_bytes(int head_dim, int ahead) {
  const int tiles = head_dim / kKvTile;
  const int warps = tiles < kAttentionWarps ? tiles : kAttentionWarps;
  return Tiles<T>::query_words(head_dim) * 4 +
         kAttentionWarps * few_key_bytes<T>(head_dim, few_dims(ahead)) +
         warps * ahead * kWarp * kSlotBytes;
}

/// A step's rows that share a block: `count` of them from `first` on, of sequence `seq`.
struct BlockRows {
  int first;
  int count;  ///< 0: another block has them
  int seq;
  Seen of_lane;  ///< positions that row first + lane sees
  Seen seen;     ///< from the first to the last position that any of them sees
};
/// By one warp. What does not depend on each other is loaded at once.
__device__ inline BlockRows few_rows(const AttentionParams& a) {
  const int lane = thread_x() % kWarp;
  const int most_rows = few_rows_of_block(a.heads_per_kv);
  BlockRows rows{a.first_row + block_x(), 0, 0, {0, 0}, {0, 0}};
  const int past_launch = a.first_row + grid_x();
  const int own = rows.first + lane;
  const bool there = lane < most_rows && own < past_launch;
  const int count = *a.count;
  const int seq = there ? a.seq_idx[own] : -1;
  const int position = there && !a.to_all ? a.positions[own] : 0;
  const int before = blockIdx.x == 0 ? -1 : a.seq_idx[rows.first - 1];
  if (rows.first >= count) return rows;
  rows.seq = __shfl_sync(kAllLanes, seq, 0);
  // Blocks of rows begin at multiples of `most_rows`, at the start of a sequence and at the start
  // of the launch.
  if (rows.first % most_rows != 0 && before == rows.seq) return rows;
  const bool same =
      there && seq == rows.seq && own < count && rows.first / most_rows == own / most_rows;
  const unsigned others = ~__ballot_sync(kAllLanes, same);
  while ((others >> rows.count & 1u) == 0) ++rows.count;
  rows.of_lane = a.to_all ? Seen{0, a.context_len[rows.seq]} : seen_from(a, position);
  rows.seen = {__shfl_sync(kAllLanes, rows.of_lane.begin, 0),
               __shfl_sync(kAllLanes, rows.of_lane.end, 0)};
  for (int i = 1; i < rows.count; ++i) {
    const int begin = __shfl_sync(kAllLanes, rows.of_lane.begin, i);
    const int end = __shfl_sync(kAllLanes, rows.of_lane.end, i);
    rows.seen.begin = begin < rows.seen.begin ? begin : rows.seen.begin;
    rows.seen.end = end > rows.seen.end ? end : rows.seen.end;
  }
  return rows;
}

/// kWhole: one block for all splits of its rows. Otherwise they are dealt out to the blocks of the
/// grid's third dimension, and merge_kernel merges them. kAhead: tiles of V that a warp loads at
/// once.
template <typename T, bool kWhole, int kAhead>
__global__ void __launch_bounds__(kAttentionThreads, kWhole || kAhead < kSplitTiles ? 1 : 2)
    few_rows_kernel(AttentionParams a) {
  after_previous_launch();
  const BlockRows rows = few_rows(a);
  if (rows.count == 0) return;
  const int lane = thread_x() % kWarp;
  const int warp = thread_x() / kWarp;
  const KvView& kv = a.kv;
  const int head_dim = kv.k_dim;
  const int dim_tiles = head_dim / kKvTile;
  const BlockHeads heads = block_heads(a, few_heads_of_block(a.heads_per_kv));
  const int kv_head = heads.kv_head;
  const int num_columns = rows.count * heads.count;
  const int32_t* table = a.block_table + int64_t{rows.seq} * a.max_blocks;
  const Seen seen = rows.seen;
  const int first_split = seen.begin / kSplit;
  const int last_split = (seen.end - 1) / kSplit;
  const int step = kWhole ? 1 : grid_z();

  using Types = Tiles<T>;
  constexpr int kTerms = Types::kWeightTerms;
  HEARTH_DYN_SHARED(uint32_t, query);  // as operand A
  // Of the lane: per warp [slot] of K, then [tile][term] of weights; [tile] of V.
  constexpr int kDims = few_dims(kAhead);
  const int key_bytes = few_key_bytes<T>(head_dim, kDims);
  std::byte* key_slots =
      reinterpret_cast<std::byte*>(query + Types::query_words(head_dim)) + lane * kSlotBytes;
  std::byte* value_slots =
      key_slots + kAttentionWarps * key_bytes + warp * kAhead * kWarp * kSlotBytes;
  const auto weight_slot = [&](int tile, int term) {
    return key_slots + tile / kWarpTiles * key_bytes +
           (tile % kWarpTiles * kTerms + term) * kWarp * kSlotBytes;
  };
  __shared__ Seen seen_by_column[kColumns];
  __shared__ float factors[kColumns];  // of their products
  __shared__ float maxima[kAttentionWarps][kColumns];
  __shared__ float sums[kAttentionWarps][kColumns];

  const auto row_of = [&](int column) { return rows.first + column / heads.count; };
  const auto head_of = [&](int column) { return heads.first + column % heads.count; };
  {
    const int row = lane / heads.count;
    const int begin = __shfl_sync(kAllLanes, rows.of_lane.begin, row);
    const int end = __shfl_sync(kAllLanes, rows.of_lane.end, row);
    if (warp == 0 && lane < kColumns) {
      seen_by_column[lane] = lane < num_columns ? Seen{begin, end} : Seen{0, 0};
    }
  }
  const int own_column = lane / 4;  // and the one that is eight further

  constexpr int kWarpDims = kTileDims / kAttentionWarps;
  [[maybe_unused]] Sums total[kWarpDims] = {};  // these three are used only with kWhole
  [[maybe_unused]] float total_max[2] = {-INFINITY, -INFINITY};
  [[maybe_unused]] float total_sum[2] = {};
  bool queries_stored = false;
  for (int split = kWhole ? first_split : first_split + block_z(); split <= last_split;
       split += step) {
    const int start = split * kSplit;
    const int begin = seen.begin > start ? seen.begin : start;
    const int end = seen.end < start + kSplit ? seen.end : start + kSplit;
    // Tiles count from the start of the split here; lane i holds the block of tile i.
    const int first_tile = (begin - start) / kKvTile;
    const int last_tile = (end - 1 - start) / kKvTile;
    const int lane_block = lane >= first_tile && lane <= last_tile
                               ? table[(start + lane * kKvTile) / kv.block_size]
                               : 0;
    const auto block_of = [&](int tile) { return __shfl_sync(kAllLanes, lane_block, tile); };
    const auto offset_of = [&](int tile) { return (start + tile * kKvTile) % kv.block_size; };
    const auto has = [&](int tile) { return tile >= first_tile && tile <= last_tile; };

    constexpr int kSteps = (kDims + Types::kStepDims - 1) / Types::kStepDims;
    typename Types::Key keys[kSteps];  // of the first tile
    std::byte* own_slots = key_slots + warp * key_bytes;
    const int own_tile = kWarpTiles * warp;
    TileRow key_rows[kWarpTiles];
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      key_rows[i] = Types::key_row(kv, block_of(own_tile + i), kv_head, offset_of(own_tile + i));
    }
    const auto load_keys = [&](int first) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int at = first + s;
        if (at * Types::kStepDims >= head_dim) break;
        if (has(own_tile)) keys[s].load(key_rows[0], head_dim, at);
        if (has(own_tile + 1)) {
          Types::copy_key(key_rows[1], head_dim, at, lane,
                          own_slots + s * Types::kKeySlots * kWarp * kSlotBytes);
        }
      }
      commit_copies();
    };
    load_keys(0);
    const auto copy_values = [&](int dims, int first) {
#pragma unroll 4
      for (int i = 0; i < kAhead; ++i) {
        const int block = block_of(first + i);
        if (dims < dim_tiles && has(first + i)) {
          Types::copy_values(kv, block, kv_head, offset_of(first + i), dims * kKvTile, lane,
                             value_slots + i * kWarp * kSlotBytes);
        }
      }
      commit_copies();
    };
    copy_values(warp, 0);

    if (!queries_stored) {
      queries_stored = true;
      // Unused columns may hold anything: a column affects no other.
#pragma unroll
      for (int i = 0; i < kColumns / kAttentionWarps; ++i) {
        const int column = warp + i * kAttentionWarps;
        if (column >= num_columns) break;
        QueryRow row;
        row.load(a.q.data + row_of(column) * a.q.stride + int64_t{head_of(column)} * head_dim,
                 head_dim);
        const float unscale = Types::store_query(row, head_dim, column, query);
        if (lane == 0) factors[column] = unscale * a.scale;
      }
      __syncthreads();
    }

    Sums scores[kWarpTiles] = {};
    for (int first = 0; first * Types::kStepDims < head_dim; first += kSteps) {
      if (first == 0) {
        wait_for_copies<1>();  // not for V
      } else {
        load_keys(first);
        wait_for_copies<0>();
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int at = first + s;
        if (at * Types::kStepDims >= head_dim) break;
        typename Types::Query q;
        q.load(query, at);
        if (has(own_tile)) Types::add_dots(scores[0], q, keys[s]);
        if (has(own_tile + 1)) {
          typename Types::Key key;
          key.load_copied(own_slots + s * Types::kKeySlots * kWarp * kSlotBytes, head_dim, at);
          Types::add_dots(scores[1], q, key);
        }
      }
    }
    float most[2] = {-INFINITY, -INFINITY};
    const ColumnPair columns{{seen_by_column[own_column], seen_by_column[own_column + 8]},
                             {factors[own_column], factors[own_column + 8]}};
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      if (!has(own_tile + i)) continue;
      score(a, columns, start + (own_tile + i) * kKvTile, false, scores[i]);
      raise(scores[i], most);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      most[i] = column_max(most[i]);
      if (lane % 4 == 0) maxima[warp][own_column + 8 * i] = most[i];
    }
    __syncthreads();

    float maximum[2] = {-INFINITY, -INFINITY};
    float keep[kSplitChunks][2];
    float reference[2] = {};
#pragma unroll
    for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = own_column + 8 * i;
        const float before = maximum[i];
        maximum[i] = fmaxf(before, fmaxf(maxima[2 * chunk][column], maxima[2 * chunk + 1][column]));
        keep[chunk][i] = expf(before - reference_of(maximum[i]));
        if (warp / 2 == chunk) reference[i] = reference_of(maximum[i]);
      }
    }
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      if (!has(own_tile + i)) continue;
      uint32_t operand[kTerms][4];
      weigh<T>(scores[i], reference, operand, sum);
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        *reinterpret_cast<uint4*>(weight_slot(own_tile + i, term)) = {
            operand[term][0], operand[term][1], operand[term][2], operand[term][3]};
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] = column_sum(sum[i]);
      if (lane % 4 == 0) sums[warp][own_column + 8 * i] = sum[i];
    }
    __syncthreads();

    float split_sum[2] = {};
#pragma unroll
    for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = own_column + 8 * i;
        split_sum[i] = fmaf(split_sum[i], keep[chunk][i],
                            sums[2 * chunk][column] + sums[2 * chunk + 1][column]);
      }
    }
#pragma unroll
    for (int own = 0; own < kWarpDims; ++own) {
      const int dims = warp + own * kAttentionWarps;
      if (dims >= dim_tiles) break;
      Sums part = {};
#pragma unroll
      for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
        if (chunk * kChunkTiles % kAhead == 0) {
          if (own > 0 || chunk > 0) copy_values(dims, chunk * kChunkTiles);
          wait_for_copies<0>();
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          part[0][i] *= keep[chunk][i / 2];
          part[1][i] *= keep[chunk][i / 2];
        }
#pragma unroll
        for (int i = 0; i < kChunkTiles; ++i) {
          const int tile = chunk * kChunkTiles + i;
          if (!has(tile)) continue;
          uint4 v = Types::operand(value_slots + tile % kAhead * kWarp * kSlotBytes);
          clear_unseen(start + tile * kKvTile, seen.begin, seen.end, lane, v);
          uint32_t operand[kTerms][4];
#pragma unroll
          for (int term = 0; term < kTerms; ++term) {
            const auto w = load_as<uint4>(weight_slot(tile, term));
            operand[term][0] = w.x;
            operand[term][1] = w.y;
            operand[term][2] = w.z;
            operand[term][3] = w.w;
          }
          add_values<T>(operand, v, part);
        }
      }
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Seen& by = seen_by_column[own_column + i / 2 * 8];
          if (!sees(by, split)) continue;
          if constexpr (kWhole) {
            const Merge with = merge(total_max[i / 2], maximum[i / 2]);
            total[own][upper][i] = fmaf(part[upper][i], with.add, total[own][upper][i] * with.keep);
          } else {
            const int d = dims * kKvTile + upper * 8 + lane % 4 * 2 + i % 2;
            partial_of(a, row_of(own_column + i / 2 * 8), head_of(own_column + i / 2 * 8),
                       split)[d] = part[upper][i];
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!sees(seen_by_column[own_column + 8 * i], split)) continue;
      if constexpr (kWhole) {
        const Merge with = merge(total_max[i], maximum[i]);
        total_max[i] = with.maximum;
        total_sum[i] = fmaf(split_sum[i], with.add, total_sum[i] * with.keep);
      } else if (warp == 0 && lane % 4 == 0) {
        float* to = partial_of(a, row_of(own_column + 8 * i), head_of(own_column + 8 * i), split) +
                    head_dim;
        to[0] = maximum[i];
        to[1] = split_sum[i];
      }
    }
    if (split + step <= last_split) {
      __syncthreads();  // the next split overwrites what this one read
    }
  }

  if constexpr (kWhole) {
#pragma unroll
    for (int own = 0; own < kWarpDims; ++own) {
      const int dims = warp + own * kAttentionWarps;
      if (dims >= dim_tiles) break;
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (own_column + i / 2 * 8 >= num_columns) continue;
          const int head = head_of(own_column + i / 2 * 8);
          const int64_t d = dims * kKvTile + upper * 8 + lane % 4 * 2 + i % 2;
          a.out.data[row_of(own_column + i / 2 * 8) * a.out.stride + int64_t{head} * head_dim + d] =
              finished(total[own][upper][i], total_max[i / 2], total_sum[i / 2],
                       a.sinks == nullptr ? nullptr : a.sinks + head);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
