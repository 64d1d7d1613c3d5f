#pragma once
// Attention in tiles for many rows: a block has 16 columns per warp, the heads of one KV head for
// as many consecutive rows of the same sequence as fit, and goes through all positions that they
// see. Chunks of K and V are copied to shared memory, one while another is multiplied; scores,
// weights and values stay in the registers of the warp that has the columns.

#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/attention/tiles_q8.cuh"

namespace hearth::kernels {
namespace {

constexpr int kManyWarps = 8;
/// Tiles of dimensions of V that a block can have; a head of more is divided between blocks.
constexpr int kManyDimTiles = 8;

__host__ __device__ inline int many_heads_of_block(int heads_per_kv, int warps) {
  return heads_per_kv < warps * kColumns ? heads_per_kv : warps * kColumns;
}
__host__ __device__ inline int many_rows_of_block(int heads_per_kv, int warps) {
  return warps * kColumns / many_heads_of_block(heads_per_kv, warps);
}
/// Blocks that share a head's dimensions of V.
__host__ __device__ inline int many_dim_parts(int head_dim) {
  return (head_dim / kKvTile + kManyDimTiles - 1) / kManyDimTiles;
}
/// The chunk of K and V in one of the two buffers.
template <typename T>
__host__ __device__ int chunk_bytes(int head_dim) {
  const int tiles = head_dim / kKvTile;
  const int dim_tiles = tiles < kManyDimTiles ? tiles : kManyDimTiles;
  return kChunkTiles * (Tiles<T>::key_bytes(head_dim) + Tiles<T>::key_scale_bytes(head_dim) +
                        dim_tiles * kWarp * kSlotBytes);
}
template <typename T>
int many_shared_bytes(int head_dim, int warps) {
  return warps * Tiles<T>::query_words(head_dim) * 4 + 2 * chunk_bytes<T>(head_dim);
}

/// The rows of the block's number: `count` of them from `first` on. A block's rows begin at
/// multiples of `most_rows` and at the start of a sequence. By one warp.
struct ManyRows {
  int first;
  int count;  ///< 0: there are fewer blocks than this one's number
  Seen seen;  ///< from the first to the last position that any of them sees
};
__device__ inline ManyRows many_rows(const AttentionParams& a, int most_rows) {
  const int lane = thread_x() % kWarp;
  const int count = *a.count;
  const auto begins = [&](int row) {
    return row < count && (row % most_rows == 0 || a.seq_idx[row] != a.seq_idx[row - 1]);
  };
  ManyRows rows{-1, 0, {0, 0}};
  int left = block_x();       // blocks before this one
  constexpr int kRounds = 8;  // of a row per lane, loaded together
  for (int base = 0; base < count && rows.first < 0; base += kRounds * kWarp) {
    bool begin[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) begin[i] = begins(base + i * kWarp + lane);
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      unsigned starts = __ballot_sync(kAllLanes, begin[i]);
      for (; starts != 0 && rows.first < 0; starts &= starts - 1) {
        if (left-- > 0) continue;
        rows.first = base + i * kWarp;
        while ((starts >> rows.first % kWarp & 1u) == 0) ++rows.first;
      }
    }
  }
  if (rows.first < 0) return rows;
  // At most 128 rows, up to the next multiple or sequence.
  const int past = (rows.first / most_rows + 1) * most_rows;
  int end = past < count ? past : count;
  const int seq = a.seq_idx[rows.first];
  Seen own{INT32_MAX, 0};
  for (int base = rows.first; base < end; base += kWarp) {
    const bool same = base + lane < end && a.seq_idx[base + lane] == seq;
    const unsigned others = ~__ballot_sync(kAllLanes, same);
    if (same) {
      const Seen next = seen_by(a, base + lane);
      own.begin = next.begin < own.begin ? next.begin : own.begin;
      own.end = next.end > own.end ? next.end : own.end;
    }
    if (others != 0) {
      int last = 0;
      while ((others >> last & 1u) == 0) ++last;
      end = base + last;
    }
  }
  rows.count = end - rows.first;
  for (int offset = 16; offset > 0; offset /= 2) {
    const int begin = __shfl_xor_sync(kAllLanes, own.begin, offset);
    const int past_seen = __shfl_xor_sync(kAllLanes, own.end, offset);
    own.begin = begin < own.begin ? begin : own.begin;
    own.end = past_seen > own.end ? past_seen : own.end;
  }
  rows.seen = own;
  return rows;
}

template <typename T, int kDimTiles>
__global__ void __launch_bounds__(kManyWarps* kWarp, 1) many_rows_kernel(AttentionParams a) {
  after_previous_launch();
  using Types = Tiles<T>;
  constexpr int kTerms = Types::kWeightTerms;
  const int thread = thread_x();
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const auto threads = static_cast<int>(blockDim.x);
  const int warps = threads / kWarp;
  const ManyRows rows = many_rows(a, many_rows_of_block(a.heads_per_kv, warps));
  if (rows.count == 0) return;
  const KvView& kv = a.kv;
  const int head_dim = kv.k_dim;
  const BlockHeads heads = block_heads(a, many_heads_of_block(a.heads_per_kv, warps));
  const int kv_head = heads.kv_head;
  const int num_columns = rows.count * heads.count;
  const int first_dims = block_z() * kManyDimTiles;
  const int dim_tiles =
      head_dim / kKvTile - first_dims < kDimTiles ? head_dim / kKvTile - first_dims : kDimTiles;
  const int32_t* table = a.block_table + int64_t{a.seq_idx[rows.first]} * a.max_blocks;
  const Seen seen = rows.seen;
  const int first_chunk = seen.begin / kChunk;
  const int last_chunk = (seen.end - 1) / kChunk;

  // Each warp's queries, then the two buffers: K per tile, with its scales, then V in slots.
  HEARTH_DYN_SHARED(uint32_t, shared);
  uint32_t* query = shared + warp * Types::query_words(head_dim);
  auto* buffers = reinterpret_cast<std::byte*>(shared + warps * Types::query_words(head_dim));
  const int buffer_bytes = chunk_bytes<T>(head_dim);
  const int key_bytes = Types::key_bytes(head_dim);
  const int key_tile_bytes = key_bytes + Types::key_scale_bytes(head_dim);
  const auto slot_of = [&](std::byte* buffer, int tile, int dims) {
    return buffer + kChunkTiles * key_tile_bytes + (tile * dim_tiles + dims) * kWarp * kSlotBytes;
  };

  // Lane i holds the block of tile i of a chunk.
  const auto blocks_of = [&](int chunk) {
    const int position = chunk * kChunk + lane * kKvTile;
    const bool there = lane < kChunkTiles && position < seen.end && position + kKvTile > seen.begin;
    return there ? table[position / kv.block_size] : -1;
  };
  const auto copy_chunk = [&](int chunk, int lane_block, std::byte* buffer) {
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      const int block = __shfl_sync(kAllLanes, lane_block, tile);
      if (block < 0) continue;
      const int offset = (chunk * kChunk + tile * kKvTile) % kv.block_size;
      const TileRow row = Types::key_row(kv, block, kv_head, offset);
      std::byte* to = buffer + tile * key_tile_bytes;
      for (int i = thread * 16; i < key_bytes; i += threads * 16) {
        start_copy<16, Through::kSecondLevel>(to + i, row.elements + i);
      }
      for (int i = thread * 16; i < Types::key_scale_bytes(head_dim); i += threads * 16) {
        start_copy<16, Through::kSecondLevel>(to + key_bytes + i, row.scales + i);
      }
      for (int dims = warp; dims < dim_tiles; dims += warps) {
        Types::copy_values(kv, block, kv_head, offset, (first_dims + dims) * kKvTile, lane,
                           slot_of(buffer, tile, dims) + lane * kSlotBytes);
      }
    }
    commit_copies();
  };
  // Brings what the thread itself has copied into the form of operands, and clears what no column
  // sees.
  const auto prepare_chunk = [&](int chunk, std::byte* buffer) {
    const int start = chunk * kChunk;
    if (!Types::kConverts && seen.begin <= start && seen.end >= start + kChunk) return;
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      const int tile_begin = start + tile * kKvTile;
      for (int dims = warp; dims < dim_tiles; dims += warps) {
        std::byte* slot = slot_of(buffer, tile, dims) + lane * kSlotBytes;
        uint4 v = Types::operand(slot);
        clear_unseen(tile_begin, seen.begin, seen.end, lane, v);
        *reinterpret_cast<uint4*>(slot) = v;
      }
    }
  };

  int next_blocks = blocks_of(first_chunk);
  copy_chunk(first_chunk, next_blocks, buffers + first_chunk % 2 * buffer_bytes);
  next_blocks = first_chunk < last_chunk ? blocks_of(first_chunk + 1) : -1;

  // The lane's columns, and the positions that any and that all of the warp's columns see.
  __shared__ Seen seen_by_column[kManyWarps * kColumns];
  __shared__ float factors[kManyWarps * kColumns];  // of their products
  const int first_column = warp * kColumns + lane / 4;
  const auto row_of = [&](int i) { return rows.first + (first_column + 8 * i) / heads.count; };
  const auto head_of = [&](int i) { return heads.first + (first_column + 8 * i) % heads.count; };
  Seen any{INT32_MAX, 0};
  Seen all{0, INT32_MAX};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool there = first_column + 8 * i < num_columns;
    const Seen own = there ? seen_by(a, row_of(i)) : Seen{0, 0};
    if (lane % 4 == 0) seen_by_column[first_column + 8 * i] = own;
    if (there) {
      any.begin = own.begin < any.begin ? own.begin : any.begin;
      any.end = own.end > any.end ? own.end : any.end;
      all.begin = own.begin > all.begin ? own.begin : all.begin;
      all.end = own.end < all.end ? own.end : all.end;
    }
  }
  for (int offset = 16; offset >= 4; offset /= 2) {
    const Seen other{__shfl_xor_sync(kAllLanes, any.begin, offset),
                     __shfl_xor_sync(kAllLanes, any.end, offset)};
    const Seen both{__shfl_xor_sync(kAllLanes, all.begin, offset),
                    __shfl_xor_sync(kAllLanes, all.end, offset)};
    any.begin = other.begin < any.begin ? other.begin : any.begin;
    any.end = other.end > any.end ? other.end : any.end;
    all.begin = both.begin > all.begin ? both.begin : all.begin;
    all.end = both.end < all.end ? both.end : all.end;
  }
  __shared__ Seen any_of_warp[kManyWarps];
  __shared__ Seen all_of_warp[kManyWarps];
  if (lane == 0) {
    any_of_warp[warp] = any;
    all_of_warp[warp] = all;
  }
  constexpr int kAtOnce = 4;  // queries that are loaded together
  for (int first = 0; first < kColumns; first += kAtOnce) {
    QueryRow own[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int column = warp * kColumns + first + i;
      own[i].load(column < num_columns
                      ? a.q.data + (rows.first + column / heads.count) * a.q.stride +
                            int64_t{heads.first + column % heads.count} * head_dim
                      : nullptr,
                  head_dim);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float unscale = Types::store_query(own[i], head_dim, first + i, query);
      if (lane == 0) factors[warp * kColumns + first + i] = unscale * a.scale;
    }
  }
  __syncwarp();

  Sums total[kDimTiles] = {};
  float total_max[2] = {-INFINITY, -INFINITY};
  float total_sum[2] = {};
  Sums part[kDimTiles] = {};  // these three: of the split
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};
  for (int chunk = first_chunk; chunk <= last_chunk; ++chunk) {
    std::byte* buffer = buffers + chunk % 2 * buffer_bytes;
    wait_for_copies<0>();
    prepare_chunk(chunk, buffer);
    __syncthreads();  // also after the last use of the other buffer
    if (chunk < last_chunk) {
      copy_chunk(chunk + 1, next_blocks, buffers + (chunk + 1) % 2 * buffer_bytes);
      if (chunk + 1 < last_chunk) next_blocks = blocks_of(chunk + 2);
    }
    const int start = chunk * kChunk;
    const Seen seen_by_any = any_of_warp[warp];
    if (seen_by_any.begin < start + kChunk && seen_by_any.end > start) {
      Sums scores[kChunkTiles] = {};
#pragma unroll(Types::kConverts ? 1 : 2)
      for (int step = 0; step * Types::kStepDims < head_dim; ++step) {
        typename Types::Query q;
        q.load(query, step);
#pragma unroll
        for (int tile = 0; tile < kChunkTiles; ++tile) {
          const std::byte* from = buffer + tile * key_tile_bytes;
          typename Types::Key key;
          key.load({from, from + key_bytes}, head_dim, step);
          Types::add_dots(scores[tile], q, key);
        }
      }
      const ColumnPair columns{{seen_by_column[first_column], seen_by_column[first_column + 8]},
                               {factors[first_column], factors[first_column + 8]}};
      const Seen seen_by_all = all_of_warp[warp];
      const bool all_seen = seen_by_all.begin <= start && seen_by_all.end >= start + kChunk;
      float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int tile = 0; tile < kChunkTiles; ++tile) {
        score(a, columns, start + tile * kKvTile, all_seen, scores[tile]);
        raise(scores[tile], most);
      }
      float reference[2];
      float keep[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float before = maximum[i];
        maximum[i] = fmaxf(before, column_max(most[i]));
        reference[i] = reference_of(maximum[i]);
        keep[i] = expf(before - reference[i]);
      }
      // Few chunks raise a maximum.
      if (__ballot_sync(kAllLanes, keep[0] != 1.0f || keep[1] != 1.0f) != 0) {
#pragma unroll
        for (int dims = 0; dims < kDimTiles; ++dims) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            part[dims][0][i] *= keep[i / 2];
            part[dims][1][i] *= keep[i / 2];
          }
        }
      }
      float halves[2][2] = {};  // sums of the weights of 32 positions
#pragma unroll
      for (int tile = 0; tile < kChunkTiles; ++tile) {
        uint32_t operand[kTerms][4];
        weigh<T>(scores[tile], reference, operand, halves[tile / 2]);
#pragma unroll
        for (int dims = 0; dims < kDimTiles; ++dims) {
          if (dims >= dim_tiles) break;
          const auto v = load_as<uint4>(slot_of(buffer, tile, dims) + lane * kSlotBytes);
          add_values<T>(operand, v, part[dims]);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sum[i] = fmaf(sum[i], keep[i], column_sum(halves[0][i]) + column_sum(halves[1][i]));
      }
    }
    if (chunk % kSplitChunks == kSplitChunks - 1 || chunk == last_chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (sees(seen_by_column[first_column + 8 * i], chunk / kSplitChunks)) {
          const Merge with = merge(total_max[i], maximum[i]);
          total_max[i] = with.maximum;
          total_sum[i] = fmaf(sum[i], with.add, total_sum[i] * with.keep);
#pragma unroll
          for (int dims = 0; dims < kDimTiles; ++dims) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float& value = total[dims][e / 2][2 * i + e % 2];
              value = fmaf(part[dims][e / 2][2 * i + e % 2], with.add, value * with.keep);
            }
          }
        }
        maximum[i] = -INFINITY;
        sum[i] = 0.0f;
      }
#pragma unroll
      for (int dims = 0; dims < kDimTiles; ++dims) {
#pragma unroll
        for (int i = 0; i < 4; ++i) part[dims][0][i] = part[dims][1][i] = 0.0f;
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (first_column + 8 * i >= num_columns) continue;
    float* out = a.out.data + row_of(i) * a.out.stride + int64_t{head_of(i)} * head_dim +
                 first_dims * kKvTile + lane % 4 * 2;
    const float* sink = a.sinks == nullptr ? nullptr : a.sinks + head_of(i);
#pragma unroll
    for (int dims = 0; dims < kDimTiles; ++dims) {
      if (dims >= dim_tiles) break;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        out[dims * kKvTile + e / 2 * 8 + e % 2] =
            finished(total[dims][e / 2][2 * i + e % 2], total_max[i], total_sum[i], sink);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
