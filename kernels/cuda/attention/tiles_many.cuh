#pragma once
// Attention in tiles for many rows: a block has 16 columns per warp, the heads of one KV head for
// as many consecutive rows of the same sequence as fit, and goes through all positions that they
// see. Chunks of K and V are copied to shared memory, one while another is multiplied; scores,
// weights and values stay in the registers of the warp that has the columns.

#include "kernels/cuda/attention/many_columns.cuh"
#include "kernels/cuda/attention/tiles_q8.cuh"

namespace hearth::kernels {
namespace {

constexpr int kManyWarps = 8;
/// Tiles of dimensions of V that a block can have; a head of more is divided between blocks.
constexpr int kManyDimTiles = 8;

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

template <typename T, int kDimTiles>
__global__ void __launch_bounds__(kManyWarps* kWarp, 1) many_rows_kernel(AttentionParams a) {
  after_previous_launch();
  using Types = Tiles<T>;
  constexpr int kTerms = Types::kWeightTerms;
  const int thread = thread_x();
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int threads = threads_of_block();
  const int warps = threads / kWarp;
  const ManyRows rows = many_rows(a, many_rows_of_block(a.heads_per_kv, warps), block_x());
  if (rows.count == 0) return;
  const KvView& kv = a.kv;
  const int head_dim = kv.k_dim;
  const ManyColumns columns{rows, block_heads(a, many_heads_of_block(a.heads_per_kv, warps))};
  const int kv_head = columns.heads.kv_head;
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
      const TileRow values = Types::value_row(kv, block, kv_head, offset);
      for (int dims = warp; dims < dim_tiles; dims += warps) {
        Types::copy_values(values, first_dims + dims, lane,
                           slot_of(buffer, tile, dims) + lane * kSlotBytes);
      }
    }
    commit_copies();
  };
  // Converts the parts that this thread has copied to operands, and clears positions that no column
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

  __shared__ Seen seen_by_column[kManyWarps * kColumns];
  __shared__ float factors[kManyWarps * kColumns];  // of their products
  __shared__ Seen seen_by_any[kManyWarps];
  __shared__ Seen seen_by_all[kManyWarps];
  const int first_column = warp * kColumns + lane / 4;  // the lane's; the other is 8 further
  {
    const WarpSeen of_warp = seen_by_warp(a, columns, warp);
    if (lane % 4 == 0) {
      seen_by_column[first_column] = of_warp.own[0];
      seen_by_column[first_column + 8] = of_warp.own[1];
    }
    if (lane == 0) {
      seen_by_any[warp] = of_warp.any;
      seen_by_all[warp] = of_warp.all;
    }
  }
  store_queries<T>(a, columns, warp, query, factors + warp * kColumns);

  Sums total[kDimTiles] = {};
  TotalColumns totals;
  Sums part[kDimTiles] = {};  // of the split
  SplitColumns split;
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
    if (seen_by_any[warp].begin < start + kChunk && seen_by_any[warp].end > start) {
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
      const ColumnPair pair{{seen_by_column[first_column], seen_by_column[first_column + 8]},
                            {factors[first_column], factors[first_column + 8]}};
      const bool all_seen =
          seen_by_all[warp].begin <= start && seen_by_all[warp].end >= start + kChunk;
      float reference[2];
      float keep[2];
      split.raise_to(a, pair, start, all_seen, scores, reference, keep);
      keep_values(keep, part);
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
      split.add(halves, keep);
    }
    if (chunk % kSplitChunks == kSplitChunks - 1 || chunk == last_chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (sees(seen_by_column[first_column + 8 * i], chunk / kSplitChunks)) {
          const Merge with = totals.add(split, i);
#pragma unroll
          for (int dims = 0; dims < kDimTiles; ++dims) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float& value = total[dims][e / 2][2 * i + e % 2];
              value = fmaf(part[dims][e / 2][2 * i + e % 2], with.add, value * with.keep);
            }
          }
        }
      }
      split = {};
#pragma unroll
      for (int dims = 0; dims < kDimTiles; ++dims) {
#pragma unroll
        for (int i = 0; i < 4; ++i) part[dims][0][i] = part[dims][1][i] = 0.0f;
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int column = first_column + 8 * i;
    if (column >= columns.count()) continue;
    const int head = columns.head(column);
    float* out = a.out.data + columns.row(column) * a.out.stride + int64_t{head} * head_dim +
                 first_dims * kKvTile + lane % 4 * 2;
    const float* sink = a.sinks == nullptr ? nullptr : a.sinks + head;
#pragma unroll
    for (int dims = 0; dims < kDimTiles; ++dims) {
      if (dims >= dim_tiles) break;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        out[dims * kKvTile + e / 2 * 8 + e % 2] =
            finished(total[dims][e / 2][2 * i + e % 2], totals.maximum[i], totals.sum[i], sink);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
