#pragma once
// Attention in tiles for few rows: a block has up to 16 columns, the heads of one KV head for as
// many consecutive rows of the same sequence as fit. Its time is the latency of its loads, so they
// begin together: all of a split's K, half of it in registers, and V, in shared memory. A lane
// reads only the parts of K and V that it loaded itself. Then
//   1. each warp computes the scores of two tiles of positions and their maxima,
//   2. and, with those of the other warps, their weights;
//   3. each warp computes the values of every eighth tile of 16 dimensions.

#include "kernels/cuda/attention/merge_last.cuh"
#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/attention/tiles_q8.cuh"

namespace hearth::kernels {
namespace {

constexpr int kWarpTiles = kSplitTiles / kAttentionWarps;  // of K per warp
static_assert(kWarpTiles == 2, "a chunk's sum of weights is that of two warps");
/// Dimensions of K that a warp loads before it multiplies them, if it loads `ahead` tiles of V.
__host__ __device__ constexpr int few_dims(int ahead) { return ahead == kSplitTiles ? 128 : 32; }

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
  Seen common;   ///< positions that all of them see
};
/// Called by one warp. Independent values are loaded at the same time.
__device__ inline BlockRows few_rows(const AttentionParams& a) {
  const int lane = thread_x() % kWarp;
  BlockRows rows{a.first_row + block_x(), 0, 0, {0, 0}, {0, 0}, {0, 0}};
  const int past_launch = a.first_row + grid_x();
  const int own = rows.first + lane;
  const bool there = lane < a.block_rows && own < past_launch;
  const int count = *a.count;
  const int seq = there ? a.seq_idx[own] : -1;
  const int position = there && !a.to_all ? a.positions[own] : 0;
  const int before = blockIdx.x == 0 ? -1 : a.seq_idx[rows.first - 1];
  if (rows.first >= count) return rows;
  rows.seq = __shfl_sync(kAllLanes, seq, 0);
  if (grid_x() == 1) {
    rows.count = 1;
  } else {
    // Blocks of rows begin at multiples of `block_rows`, at the start of a sequence and at the
    // start of the launch.
    const int upto_next = a.block_rows - rows.first % a.block_rows;
    if (upto_next != a.block_rows && before == rows.seq) return rows;
    const bool same = there && seq == rows.seq && own < count && lane < upto_next;
    const unsigned others = ~__ballot_sync(kAllLanes, same);
    while ((others >> rows.count & 1u) == 0) ++rows.count;
  }
  rows.of_lane = a.to_all ? Seen{0, a.context_len[rows.seq]} : seen_from(a, position);
  rows.seen = {__shfl_sync(kAllLanes, rows.of_lane.begin, 0),
               __shfl_sync(kAllLanes, rows.of_lane.end, 0)};
  rows.common = rows.seen;
  for (int i = 1; i < rows.count; ++i) {
    const int begin = __shfl_sync(kAllLanes, rows.of_lane.begin, i);
    const int end = __shfl_sync(kAllLanes, rows.of_lane.end, i);
    rows.seen.begin = begin < rows.seen.begin ? begin : rows.seen.begin;
    rows.seen.end = end > rows.seen.end ? end : rows.seen.end;
    rows.common.begin = begin > rows.common.begin ? begin : rows.common.begin;
    rows.common.end = end < rows.common.end ? end : rows.common.end;
  }
  return rows;
}

/// The value of lane `from`.
template <typename T>
__device__ T* lane_pointer(T* own, int from) {
  return reinterpret_cast<T*>(
      __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(own), from));
}
__device__ inline TileRow lane_row(const TileRow& own, int from) {
  return {lane_pointer(own.elements, from),
          own.scales == nullptr ? nullptr : lane_pointer(own.scales, from)};
}

/// kWhole: one block for all splits of its rows. Otherwise they are dealt out to the blocks of the
/// grid's third dimension, and merge_kernel merges them, or the last of these blocks. kAhead: tiles
/// of V that a warp loads at once.
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
  const BlockHeads heads = block_heads(a, a.block_heads);
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
  __shared__ float keeps[kSplitChunks][kColumns];  // of what earlier chunks left

  // Lane c knows where column c is.
  int row_of_lane = 0;
  int head_of_lane = heads.first + lane % kColumns;
  while (head_of_lane >= heads.first + heads.count) {  // a division takes longer
    head_of_lane -= heads.count;
    ++row_of_lane;
  }
  {
    const int begin = __shfl_sync(kAllLanes, rows.of_lane.begin, row_of_lane);
    const int end = __shfl_sync(kAllLanes, rows.of_lane.end, row_of_lane);
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
    // Tiles count from the start of the split here; lane i knows where tile i is.
    const int first_tile = (begin - start) / kKvTile;
    const int last_tile = (end - 1 - start) / kKvTile;
    const auto has = [&](int tile) { return tile >= first_tile && tile <= last_tile; };
    TileRow key_of_lane, value_of_lane;
    {
      const auto position = static_cast<unsigned>(start + lane * kKvTile);
      const unsigned entry = position / static_cast<unsigned>(kv.block_size);
      const int64_t block = has(lane) ? table[entry] : 0;
      const auto offset = static_cast<int>(position - entry * kv.block_size);
      key_of_lane = Types::key_row(kv, block, kv_head, offset);
      value_of_lane = Types::value_row(kv, block, kv_head, offset);
    }

    constexpr int kSteps = (kDims + Types::kStepDims - 1) / Types::kStepDims;
    typename Types::Key keys[kSteps];  // of the first tile
    std::byte* own_slots = key_slots + warp * key_bytes;
    const int own_tile = kWarpTiles * warp;
    TileRow key_rows[kWarpTiles];
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      key_rows[i] = lane_row(key_of_lane, own_tile + i);
    }
    const auto load_keys = [&](int first) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int at = first + s;
        if (at * Types::kStepDims >= head_dim) break;
        keys[s].load(key_rows[0], head_dim, at);
        Types::copy_key(key_rows[1], head_dim, at, lane,
                        own_slots + s * Types::kKeySlots * kWarp * kSlotBytes);
      }
      commit_copies();
    };
    // One of the two tiles may have no position of the split; its scores are computed and not
    // used.
    const bool any_tile = own_tile <= last_tile && own_tile + kWarpTiles > first_tile;
    if (any_tile) load_keys(0);
    const auto copy_values = [&](int dims, int first) {
#pragma unroll 4
      for (int i = 0; i < kAhead; ++i) {
        const TileRow row = lane_row(value_of_lane, first + i);
        if (dims < dim_tiles && has(first + i)) {
          Types::copy_values(row, dims, lane, value_slots + i * kWarp * kSlotBytes);
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
        row.load(lane_pointer(a.q.data + (rows.first + row_of_lane) * a.q.stride +
                                  int64_t{head_of_lane} * head_dim,
                              column),
                 head_dim);
        const float unscale = Types::store_query(row, head_dim, column, query);
        if (lane == 0) factors[column] = unscale * a.scale;
      }
      __syncthreads();
    }

    Sums scores[kWarpTiles] = {};
    for (int first = 0; any_tile && first * Types::kStepDims < head_dim; first += kSteps) {
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
        Types::add_dots(scores[0], q, keys[s]);
        typename Types::Key key;
        key.load_copied(own_slots + s * Types::kKeySlots * kWarp * kSlotBytes, head_dim, at);
        Types::add_dots(scores[1], q, key);
      }
    }
    float most[2] = {-INFINITY, -INFINITY};
    const ColumnPair columns{{seen_by_column[own_column], seen_by_column[own_column + 8]},
                             {factors[own_column], factors[own_column + 8]}};
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      if (!has(own_tile + i)) continue;
      const int first = start + (own_tile + i) * kKvTile;
      score(a, columns, first, rows.common.begin <= first && rows.common.end >= first + kKvTile,
            scores[i]);
      raise(scores[i], most);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      most[i] = column_max(most[i]);
      if (lane % 4 == 0) maxima[warp][own_column + 8 * i] = most[i];
    }
    __syncthreads();

    // The maximum up to a chunk, of one column.
    const auto raised = [&](float before, int chunk, int column) {
      return fmaxf(before, fmaxf(maxima[2 * chunk][column], maxima[2 * chunk + 1][column]));
    };
    if (thread_x() < kSplitChunks * kColumns) {
      const int own = thread_x() / kColumns;
      const int column = thread_x() % kColumns;
      float before = -INFINITY;
#pragma unroll 1
      for (int chunk = 0; chunk < own; ++chunk) before = raised(before, chunk, column);
      keeps[own][column] = expf(before - reference_of(raised(before, own, column)));
    }
    float maximum[2] = {-INFINITY, -INFINITY};
    float reference[2] = {};
#pragma unroll
    for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        maximum[i] = raised(maximum[i], chunk, own_column + 8 * i);
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
        split_sum[i] = fmaf(split_sum[i], keeps[chunk][column],
                            sums[2 * chunk][column] + sums[2 * chunk + 1][column]);
      }
    }
    [[maybe_unused]] float* to[2] = {};
    if constexpr (!kWhole) {
      float* own = partial_of(a, rows.first + row_of_lane, head_of_lane, split);
#pragma unroll
      for (int i = 0; i < 2; ++i) to[i] = lane_pointer(own, own_column + 8 * i);
    }
#pragma unroll
    for (int own = 0; own < kWarpDims; ++own) {
      const int dims = warp + own * kAttentionWarps;
      if (dims >= dim_tiles) break;
      Sums part = {};
      const auto add_tile = [&](int tile, bool whole) {
        uint4 v = Types::operand(value_slots + tile % kAhead * kWarp * kSlotBytes);
        if (!whole) clear_unseen(start + tile * kKvTile, seen.begin, seen.end, lane, v);
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
      };
#pragma unroll 1
      for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
        if (chunk * kChunkTiles % kAhead == 0) {
          if (own > 0 || chunk > 0) copy_values(dims, chunk * kChunkTiles);
          wait_for_copies<0>();
        }
        const float keep[2] = {keeps[chunk][own_column], keeps[chunk][own_column + 8]};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          part[0][i] *= keep[i / 2];
          part[1][i] *= keep[i / 2];
        }
        const int first = start + chunk * kChunk;
        if (seen.begin <= first && seen.end >= first + kChunk) {
#pragma unroll
          for (int i = 0; i < kChunkTiles; ++i) add_tile(chunk * kChunkTiles + i, true);
        } else {
#pragma unroll 1
          for (int i = 0; i < kChunkTiles; ++i) {
            if (has(chunk * kChunkTiles + i)) add_tile(chunk * kChunkTiles + i, false);
          }
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
            to[i / 2][d] = part[upper][i];
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
        to[i][head_dim] = maximum[i];
        to[i][head_dim + 1] = split_sum[i];
      }
    }
    if (split + step <= last_split) {
      __syncthreads();  // the next split overwrites what this one read
    }
  }

  if constexpr (!kWhole) {
    const int splits = last_split - first_split + 1;
    if (a.merge.arrivals != nullptr && block_z() < splits) {
      merge_last(a, rows.first, rows.count, splits < step ? splits : step,
                 *reinterpret_cast<MergeFactors*>(query));
    }
  } else {
    float* own_out =
        a.out.data + (rows.first + row_of_lane) * a.out.stride + int64_t{head_of_lane} * head_dim;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = own_column + 8 * i;
      float* out = lane_pointer(own_out, column);
      if (column >= num_columns) continue;
      const int head = heads.first + column % heads.count;
      const float* sink = a.sinks == nullptr ? nullptr : a.sinks + head;
#pragma unroll
      for (int own = 0; own < kWarpDims; ++own) {
        const int dims = warp + own * kAttentionWarps;
        if (dims >= dim_tiles) break;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          out[dims * kKvTile + j / 2 * 8 + lane % 4 * 2 + j % 2] =
              finished(total[own][j / 2][2 * i + j % 2], total_max[i], total_sum[i], sink);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
