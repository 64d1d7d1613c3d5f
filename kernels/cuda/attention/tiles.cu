// Attention on the tensor cores over KV in tiles: launches of kernels/cuda/attention/tiles_few.cuh
// and kernels/cuda/attention/tiles_many.cuh. They and kernels/cuda/attention/tiles_wgmma.cuh give a
// row the same bits.

#include "kernels/cuda/attention/tiles_few.cuh"
#include "kernels/cuda/attention/tiles_many.cuh"
#include "kernels/cuda/device_limits.cuh"

namespace hearth::kernels {
namespace {

/// From this number of rows on, the kernel for many rows is faster, provided that sequences have
/// several rows each: it computes a single row with only one warp.
constexpr int kManyRows = 64;
constexpr int kManyPerSequence = 4;
bool many(int rows, int num_seqs) {
  return rows >= kManyRows && rows >= kManyPerSequence * num_seqs;
}

template <typename T, bool kWhole, int kAhead>
void launch_few(cudaStream_t stream, AttentionParams params, int rows) {
  const int heads = params.heads_per_kv < kColumns ? params.heads_per_kv : kColumns;
  params.head_groups = (params.heads_per_kv + heads - 1) / heads;
  params.block_heads = heads;
  params.block_rows = kColumns / heads;  // drafted tokens to verify share a block
  const int shared = few_shared_bytes<T>(params.kv.k_dim, kAhead);
  constexpr int kMergeBytes = sizeof(MergeFactors);
  HEARTH_EXPECT(shared >= kMergeBytes, shared);
  constexpr auto kKernel = few_rows_kernel<T, kWhole, kAhead>;
  allow_shared<kKernel>();
  HEARTH_LAUNCH(stream, kKernel, attention_grid(params, rows, kWhole), kAttentionThreads,
                static_cast<size_t>(shared), params);
}

dim3 many_grid(const AttentionParams& params, int rows, int num_seqs, int warps) {
  const int heads = many_heads_of_block(params.heads_per_kv, warps);
  const int most_rows = many_rows_of_block(params.heads_per_kv, warps);
  const int head_groups = (params.heads_per_kv + heads - 1) / heads;
  return {static_cast<unsigned>((rows + most_rows - 1) / most_rows + num_seqs - 1),
          static_cast<unsigned>(params.kv.num_kv_heads * head_groups),
          static_cast<unsigned>(many_dim_parts(params.kv.k_dim))};
}

/// Warps per block of the kernel for many rows; 0: it lacks the shared memory.
template <typename T>
int many_warps(const AttentionParams& params, int rows, int num_seqs) {
  const auto fits = [&](int warps) {
    return many_shared_bytes<T>(params.kv.k_dim, warps) <= device_limits().shared_bytes;
  };
  int warps = kManyWarps;
  while (warps > 0 && !fits(warps)) warps /= 2;
  // Half a block, with one warp in each of a multiprocessor's four parts, ends sooner than a whole
  // one, so blocks are halved if there is a multiprocessor for each.
  if (warps == kManyWarps) {
    const dim3 halved = many_grid(params, rows, num_seqs, warps / 2);
    if (halved.x * halved.y * halved.z <= static_cast<unsigned>(device_limits().multiprocessors)) {
      warps /= 2;
    }
  }
  return warps;
}

template <typename T, int kDimTiles>
void launch_many(cudaStream_t stream, AttentionParams params, int rows, int num_seqs, int warps) {
  const dim3 grid = many_grid(params, rows, num_seqs, warps);
  params.head_groups = static_cast<int32_t>(grid.y) / params.kv.num_kv_heads;
  constexpr auto kKernel = many_rows_kernel<T, kDimTiles>;
  allow_shared<kKernel>();
  HEARTH_LAUNCH(stream, kKernel, grid, warps * kWarp,
                static_cast<size_t>(many_shared_bytes<T>(params.kv.k_dim, warps)), params);
}

template <typename T>
void launch_tiles(cudaStream_t stream, const AttentionParams& params, int rows, int num_seqs,
                  bool whole) {
  const int head_dim = params.kv.k_dim;
  if (whole && many(rows, num_seqs)) {
    if (const int warps = many_warps<T>(params, rows, num_seqs); warps > 0) {
      return head_dim <= 4 * kKvTile ? launch_many<T, 4>(stream, params, rows, num_seqs, warps)
                                     : launch_many<T, 8>(stream, params, rows, num_seqs, warps);
    }
  }
  const bool ahead = few_shared_bytes<T>(head_dim, kSplitTiles) <= device_limits().shared_bytes;
  if (whole) {
    ahead ? launch_few<T, true, kSplitTiles>(stream, params, rows)
          : launch_few<T, true, kChunkTiles>(stream, params, rows);
  } else {
    ahead ? launch_few<T, false, kSplitTiles>(stream, params, rows)
          : launch_few<T, false, kChunkTiles>(stream, params, rows);
  }
}

}  // namespace

void attend_tiles(cudaStream_t stream, KvType type, const AttentionParams& params, int rows,
                  int num_seqs, bool whole, bool wgmma) {
  if (wgmma && whole && many(rows, num_seqs) && wgmma_supports(type, params.kv.k_dim)) {
    return attend_wgmma(stream, type, params, rows, num_seqs);
  }
  switch (type) {
    case KvType::kF16: return launch_tiles<Half>(stream, params, rows, num_seqs, whole);
    case KvType::kBF16: return launch_tiles<BFloat16>(stream, params, rows, num_seqs, whole);
    case KvType::kQ8_0: return launch_tiles<int8_t>(stream, params, rows, num_seqs, whole);
    default: HEARTH_EXPECT(false, static_cast<int>(type));
  }
}

}  // namespace hearth::kernels
