#pragma once
// Attention in tiles for many rows with wgmma. In a block, one or two warpgroups multiply, with 64
// columns each, and the last one copies K and V to shared memory, up to kStages chunks ahead, as
// operand B. Scores, weights and values stay in registers; what earlier splits summed up waits in
// shared memory. A warpgroup queues a chunk's values together with the next chunk's scores, and
// computes weights while the tensor cores work for the other one. They wait for each other at
// barriers
//   kFull   each multiplying warpgroup, for the copying one: a chunk has been copied
//   kFree   the copying one, for all others: they have multiplied a chunk
//   kTurn   two that multiply, for each other: they queue their products in turn
//
// K and V are stored in the order of operand A (kernels/cuda/attention/kv_tiles.cuh): register r of
// a tile's 32 lanes is a core matrix of operand B, of 8 positions (or dimensions) and 16 bytes.

#include "kernels/cuda/attention/many_columns.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace hearth::kernels {
namespace {

constexpr int kGroupColumns = 4 * kColumns;  // of a warpgroup
constexpr int kMostGroups = 2;               // that multiply
constexpr int kWgmmaThreads = (kMostGroups + 1) * kWarpgroup;
constexpr int kStages = 4;
constexpr int kCoreBytes = 128;

/// K: [16 dimensions][8 dimensions][8 positions][core matrix].
/// V: [16 positions][8 positions][8 dimensions][core matrix].
template <int kHeadDim>
struct ChunkOperands {
  static constexpr int kKeyColumns = kChunk / 8;
  static constexpr int kValueColumns = kHeadDim / 8;
  alignas(128) std::byte keys[kHeadDim / 8 * kKeyColumns * kCoreBytes];
  alignas(128) std::byte values[kChunk / 8 * kValueColumns * kCoreBytes];
};

/// What a block computes.
struct WgmmaBlock {
  ManyColumns columns;
  int groups;  ///< that multiply
  int first_chunk;
  int last_chunk;
};

template <int kHeadDim>
struct WgmmaMemory {
  ChunkOperands<kHeadDim> stages[kStages];
  struct PerWarp {
    union {
      uint32_t queries[kColumns * kHeadDim];  // as operand A, until they are in registers
      float4 values[kHeadDim / 8][kWarp];     // of earlier splits
    };
    TotalColumns totals[kWarp];  // of earlier splits
    // Of a lane's two columns.
    struct alignas(16) Factors {
      float of_products[2];
      Seen seen_by_all;  // columns of the warp
    } factors[kWarp];
    struct alignas(16) {
      Seen column[2];
    } seen[kWarp];
    float factors_by_column[kColumns];
  } warps[kMostGroups * 4];
  WgmmaBlock block;
};

/// Barriers; those of stages and of multiplying groups are consecutive.
constexpr int kFull = 1;                              // [group][stage]
constexpr int kFree = kFull + kMostGroups * kStages;  // [stage]
constexpr int kTurn = kFree + kStages;                // [group]
static_assert(kTurn + kMostGroups <= 16);

#if defined(HEARTH_HAS_WGMMA)

/// wgmma's registers as a lane's sums of several tiles.
template <int kFloats>
__device__ Sums (&sums_of(float (&registers)[kFloats]))[kFloats / 8] {
  return reinterpret_cast<Sums(&)[kFloats / 8]>(registers);
}

/// The value, which is the same in all lanes, where it takes no register of each.
__device__ inline int same_in_warp(int value) { return __shfl_sync(kAllLanes, value, 0); }

/// The warpgroup that copies. Warp w has positions 16 w .. 16 w + 15 of each chunk.
template <typename T, int kHeadDim>
struct ChunkCopies {
  static constexpr int kTiles = kHeadDim / kKvTile;

  const AttentionParams& a;
  WgmmaMemory<kHeadDim>& memory;
  const WgmmaBlock& block = memory.block;
  const int32_t* table =
      a.block_table + int64_t{a.seq_idx[block.columns.rows.first]} * a.max_blocks;
  int lane = thread_x() % kWarp;
  int warp = thread_x() / kWarp % 4;

  __device__ void run() const {
    const int first_chunk = same_in_warp(block.first_chunk);
    const int last_chunk = same_in_warp(block.last_chunk);
    const int groups = same_in_warp(block.groups);
    uint4 keys[kTiles];
    uint4 values[kTiles];
    int pool_block = block_of(first_chunk);
    load(tiles_of<true>(first_chunk, pool_block), keys);
    for (int chunk = first_chunk; chunk <= last_chunk; ++chunk) {
      load(tiles_of<false>(chunk, pool_block), values);
      if (chunk < last_chunk) pool_block = block_of(chunk + 1);
      if (chunk - kStages >= first_chunk) {
        arrive_and_wait(kFree + chunk % kStages, (groups + 1) * kWarpgroup);
      }
      ChunkOperands<kHeadDim>& to = memory.stages[chunk % kStages];
      constexpr int kKeyStep = ChunkOperands<kHeadDim>::kKeyColumns * kCoreBytes;
      constexpr int kValueStep = ChunkOperands<kHeadDim>::kValueColumns * kCoreBytes;
      store(keys, to.keys + warp * 2 * kCoreBytes, 2 * kKeyStep, kKeyStep);
      clear(chunk, values);
      store(values, to.values + warp * 2 * kValueStep, 2 * kCoreBytes, kValueStep);
      shared_writes_before_products();
      arrive(kFull + chunk % kStages, 2 * kWarpgroup);
      if (groups > 1) arrive(kFull + kStages + chunk % kStages, 2 * kWarpgroup);
      // Not before: shared_writes_before_products() would wait for them.
      if (chunk < last_chunk) load(tiles_of<true>(chunk + 1, pool_block), keys);
    }
  }

 private:
  /// The block of the pool with the warp's positions of a chunk; -1: no column sees them.
  __device__ int block_of(int chunk) const {
    const Seen& seen = block.columns.rows.seen;
    const int position = chunk * kChunk + warp * kKvTile;
    const bool there = position < seen.end && position + kKvTile > seen.begin;
    return there ? table[position / a.kv.block_size] : -1;
  }
  struct TileSource {
    const T* first;  ///< the lane's part of the first tile
    bool there;      ///< otherwise the tiles are zero
  };
  /// The warp's tiles of K or of V.
  template <bool kKeys>
  __device__ TileSource tiles_of(int chunk, int pool_block) const {
    const KvView& kv = a.kv;
    const int position = chunk * kChunk + warp * kKvTile;
    const int64_t at =
        kv_tile(block.columns.heads.kv_head, position % kv.block_size, 0, kHeadDim, kv.block_size) +
        lane * 8;
    const T* first =
        kKeys ? kernels::keys<const T>(kv, pool_block) : kernels::values<const T>(kv, pool_block);
    return {first + at, pool_block >= 0};
  }
  __device__ void load(const TileSource& from, uint4 (&tiles)[kTiles]) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      tiles[i] = from.there ? load_as<uint4>(from.first + i * kKvTileElements) : uint4{0, 0, 0, 0};
    }
  }
  /// Registers 0 and 1 of a tile are adjacent core matrices; 2 and 3 follow `upper_step` bytes
  /// later.
  __device__ void store(const uint4 (&tiles)[kTiles], std::byte* to, int tile_step,
                        int upper_step) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const uint32_t words[4] = {tiles[i].x, tiles[i].y, tiles[i].z, tiles[i].w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        *reinterpret_cast<uint32_t*>(to + i * tile_step + r / 2 * upper_step + r % 2 * kCoreBytes +
                                     lane * 4) = words[r];
      }
    }
  }
  __device__ void clear(int chunk, uint4 (&values)[kTiles]) const {
    const Seen& seen = block.columns.rows.seen;
    if (seen.begin <= chunk * kChunk && seen.end >= (chunk + 1) * kChunk) return;
#pragma unroll
    for (uint4& tile : values) {
      clear_unseen(chunk * kChunk + warp * kKvTile, seen.begin, seen.end, lane, tile);
    }
  }
};

/// A warpgroup that multiplies.
template <typename T, int kHeadDim>
struct ChunkProducts {
  static constexpr int kSteps = kHeadDim / kKvTile;
  static constexpr int kTerms = Tiles<T>::kWeightTerms;

  const AttentionParams& a;
  WgmmaMemory<kHeadDim>& memory;
  const WgmmaBlock& block = memory.block;
  int lane = thread_x() % kWarp;
  int warp = thread_x() / kWarp;
  bool second = warp >= 4;  ///< of two groups that multiply
  typename WgmmaMemory<kHeadDim>::PerWarp& own = memory.warps[warp];

  uint32_t queries[kSteps][2][4];
  float scores[kChunk / 2];
  float part[kHeadDim / 2];  ///< values of the split
  SplitColumns split;

  __device__ ChunkProducts(const AttentionParams& params, WgmmaMemory<kHeadDim>& shared)
      : a(params), memory(shared) {}

  __device__ void run() {
    load_queries();
    clear_part();
    if (second) end_turn();  // the first turn is that of the first group
    wait_for_chunk(block.first_chunk);
    wait_for_turn();
    begin_products();
    multiply_keys(block.first_chunk);
    commit_products();
    end_turn();
    wait_for_products<0>();
    settle(scores);
    for (int chunk = block.first_chunk;; ++chunk) {
      uint32_t weights[kChunkTiles][kTerms][4];
      float halves[2][2] = {};  // sums of the weights of 32 positions
      float keep[2];
      weigh_scores(chunk, weights, halves, keep);
      const bool more = chunk < block.last_chunk;
      if (more) wait_for_chunk(chunk + 1);
      wait_for_turn();
      multiply_values(chunk, weights);
      // After the last chunk its scores are computed again, and dropped.
      multiply_keys(more ? chunk + 1 : chunk);
      commit_products();
      if (more || !second) end_turn();
      split.add(halves, keep);
      wait_for_products<0>();
      settle(part);
      settle(scores);
      if (chunk + kStages <= block.last_chunk) {
        arrive(kFree + chunk % kStages, (block.groups + 1) * kWarpgroup);
      }
      if (chunk % kSplitChunks == kSplitChunks - 1 || chunk == block.last_chunk) {
        end_split(chunk / kSplitChunks);
      }
      if (chunk == block.last_chunk) break;
    }
    write();
  }

 private:
  // The numbers of barriers are constants, for which no register is needed.
  __device__ void wait_for_chunk(int chunk) const {
    if (second) {
      arrive_and_wait(kFull + kStages + chunk % kStages, 2 * kWarpgroup);
    } else {
      arrive_and_wait(kFull + chunk % kStages, 2 * kWarpgroup);
    }
  }
  __device__ bool in_turn() const { return block.groups > 1; }
  __device__ void wait_for_turn() const {
    if (!in_turn()) return;
    if (second) {
      arrive_and_wait(kTurn + 1, 2 * kWarpgroup);
    } else {
      arrive_and_wait(kTurn, 2 * kWarpgroup);
    }
  }
  __device__ void end_turn() const {
    if (!in_turn()) return;
    if (second) {
      arrive(kTurn, 2 * kWarpgroup);
    } else {
      arrive(kTurn + 1, 2 * kWarpgroup);
    }
  }

  __device__ void load_queries() {
    const WarpSeen seen = seen_by_warp(a, block.columns, warp);
    store_queries<T>(a, block.columns, warp, own.queries, own.factors_by_column);
    own.factors[lane] = {{own.factors_by_column[lane / 4], own.factors_by_column[lane / 4 + 8]},
                         seen.all};
    own.seen[lane] = {{seen.own[0], seen.own[1]}};
    own.totals[lane] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      typename Tiles<T>::Query query;
      query.load(own.queries, step);
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        const uint4& q = query.term[term];
        queries[step][term][0] = q.x;
        queries[step][term][1] = q.y;
        queries[step][term][2] = q.z;
        queries[step][term][3] = q.w;
      }
    }
    __syncwarp();  // others write values there
  }

  __device__ void multiply_keys(int chunk) {
    constexpr int kStep = ChunkOperands<kHeadDim>::kKeyColumns * kCoreBytes;
    const OperandB keys = operand_b(memory.stages[chunk % kStages].keys, kStep, kCoreBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const OperandB key = keys.plus(step * 2 * kStep);
      if (step == 0) {
        multiply_k16<T, false>(scores, queries[step][0], key);
      } else {
        multiply_k16<T, true>(scores, queries[step][0], key);
      }
      multiply_k16<T, true>(scores, queries[step][1], key);
    }
  }
  __device__ void multiply_values(int chunk, uint32_t (&weights)[kChunkTiles][kTerms][4]) {
    constexpr int kStep = ChunkOperands<kHeadDim>::kValueColumns * kCoreBytes;
    const OperandB values = operand_b(memory.stages[chunk % kStages].values, kStep, kCoreBytes);
    settle(part);
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
#pragma unroll
      for (int term = 0; term < kTerms; ++term) settle(weights[tile][term]);
    }
    begin_products();
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        multiply_k16<T, true>(part, weights[tile][term], values.plus(tile * 2 * kStep));
      }
    }
    if constexpr (kTerms > 1) {  // there are not enough registers for weights and scores
      commit_products();
      wait_for_products<0>();
      begin_products();
    }
  }

  /// Products become weights; `part` is scaled to the new maxima.
  __device__ void weigh_scores(int chunk, uint32_t (&weights)[kChunkTiles][kTerms][4],
                               float (&halves)[2][2], float (&keep)[2]) {
    const int start = chunk * kChunk;
    const auto factors = own.factors[lane];
    const bool all_seen =
        factors.seen_by_all.begin <= start && factors.seen_by_all.end >= start + kChunk;
    ColumnPair pair{{}, {factors.of_products[0], factors.of_products[1]}};
    if (!all_seen) {
      pair.seen[0] = own.seen[lane].column[0];
      pair.seen[1] = own.seen[lane].column[1];
    }
    float reference[2];
    split.raise_to(a, pair, start, all_seen, sums_of(scores), reference, keep);
    keep_values(keep, sums_of(part));
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      weigh<T>(sums_of(scores)[tile], reference, weights[tile], halves[tile / 2]);
      if constexpr (kTerms > 1) {  // one after the other: else they take too many registers
#pragma unroll
        for (int term = 0; term < kTerms; ++term) settle(weights[tile][term]);
      }
    }
  }

  __device__ void clear_part() {
#pragma unroll
    for (float& value : part) value = 0;
  }
  /// Adds the split's values to those of earlier ones.
  __device__ void end_split(int index) {
    const bool first = index == block.first_chunk / kSplitChunks;
    bool seen[2];
    Merge with[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      seen[i] = sees(own.seen[lane].column[i], index);
      if (seen[i]) with[i] = own.totals[lane].add(split, i);
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i) {
      const float4 before = first ? float4{0, 0, 0, 0} : own.values[i][lane];
      float values[4] = {before.x, before.y, before.z, before.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (!seen[e / 2]) continue;
        values[e] = fmaf(part[4 * i + e], with[e / 2].add, values[e] * with[e / 2].keep);
      }
      own.values[i][lane] = {values[0], values[1], values[2], values[3]};
    }
    split = {};
    clear_part();
  }

  __device__ void write() const {
    const TotalColumns& total = own.totals[lane];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = warp * kColumns + lane / 4 + 8 * i;
      if (column >= block.columns.count()) continue;
      const int head = block.columns.head(column);
      float* out = a.out.data + block.columns.row(column) * a.out.stride +
                   int64_t{head} * kHeadDim + lane % 4 * 2;
      const float* sink = a.sinks == nullptr ? nullptr : a.sinks + head;
#pragma unroll 2
      for (int d = 0; d < kHeadDim / 8; ++d) {
        const float4& stored = own.values[d][lane];
        const float values[4] = {stored.x, stored.y, stored.z, stored.w};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          out[8 * d + e] = finished(values[2 * i + e], total.maximum[i], total.sum[i], sink);
        }
      }
    }
  }
};

#endif

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kWgmmaThreads, 1) wgmma_rows_kernel(AttentionParams a) {
#if defined(HEARTH_HAS_WGMMA)
  after_previous_launch();
  using Memory = WgmmaMemory<kHeadDim>;
  HEARTH_DYN_SHARED(Memory, memory);
  const int group = thread_x() / kWarpgroup;
  const int launched = threads_of_block() / kWarpgroup - 1;
  if (thread_x() < kWarp) {
    // Later rows see more positions: their blocks begin first.
    const ManyRows rows =
        many_rows(a, many_rows_of_block(a.heads_per_kv, launched * 4), grid_x() - 1 - block_x());
    const ManyColumns columns{rows,
                              block_heads(a, many_heads_of_block(a.heads_per_kv, launched * 4))};
    if (thread_x() == 0) {
      memory->block = {columns, (columns.count() + kGroupColumns - 1) / kGroupColumns,
                       rows.seen.begin / kChunk, (rows.seen.end - 1) / kChunk};
    }
  }
  __syncthreads();
  if (memory->block.groups == 0) return;
  // Of 168 registers that each of three warpgroups begins with.
  if (group == launched) {
    give_registers<88>();
    ChunkCopies<T, kHeadDim>{a, *memory}.run();
  } else if (group < memory->block.groups) {
    take_registers<208>();
    ChunkProducts<T, kHeadDim>(a, *memory).run();
  }
#endif
}

}  // namespace
}  // namespace hearth::kernels
