// Attention on the tensor cores over KV in tiles: launches of
// kernels/cuda/attention/tiles_wgmma.cuh.

#include "kernels/cuda/attention/tiles_wgmma.cuh"
#include "kernels/cuda/device_limits.cuh"

namespace hearth::kernels {
namespace {

/// Blocks that share one KV head, and blocks of rows.
struct WgmmaGrid {
  int head_groups;
  int rows;
};
WgmmaGrid wgmma_grid(const AttentionParams& params, int rows, int num_seqs, int groups) {
  const int heads = many_heads_of_block(params.heads_per_kv, groups * 4);
  const int most_rows = many_rows_of_block(params.heads_per_kv, groups * 4);
  return {(params.heads_per_kv + heads - 1) / heads,
          (rows + most_rows - 1) / most_rows + num_seqs - 1};
}

template <typename T, int kHeadDim>
void launch_wgmma(cudaStream_t stream, AttentionParams params, int rows, int num_seqs) {
  // Blocks with one warpgroup that multiplies if there is a multiprocessor for each.
  int groups = 1;
  WgmmaGrid grid = wgmma_grid(params, rows, num_seqs, groups);
  const int kv_heads = params.kv.num_kv_heads;
  if (grid.rows * grid.head_groups * kv_heads > device_limits().multiprocessors) {
    groups = kMostGroups;
    grid = wgmma_grid(params, rows, num_seqs, groups);
  }
  params.head_groups = grid.head_groups;
  constexpr auto kKernel = wgmma_rows_kernel<T, kHeadDim>;
  allow_shared<kKernel>();
  HEARTH_LAUNCH(stream, kKernel, grid2(grid.rows, kv_heads * grid.head_groups),
                (groups + 1) * kWarpgroup, sizeof(WgmmaMemory<kHeadDim>), params);
}

template <typename T>
void launch_any_dim(cudaStream_t stream, const AttentionParams& params, int rows, int num_seqs) {
  switch (params.kv.k_dim) {
    case 64: return launch_wgmma<T, 64>(stream, params, rows, num_seqs);
    case 96: return launch_wgmma<T, 96>(stream, params, rows, num_seqs);
    case 128: return launch_wgmma<T, 128>(stream, params, rows, num_seqs);
    default: HEARTH_EXPECT(false, params.kv.k_dim);
  }
}

}  // namespace

bool wgmma_supports(KvType type, int head_dim) {
  return (type == KvType::kF16 || type == KvType::kBF16) &&
         (head_dim == 64 || head_dim == 96 || head_dim == 128);
}

void attend_wgmma(cudaStream_t stream, KvType type, const AttentionParams& params, int rows,
                  int num_seqs) {
  if (type == KvType::kF16) return launch_any_dim<Half>(stream, params, rows, num_seqs);
  return launch_any_dim<BFloat16>(stream, params, rows, num_seqs);
}

}  // namespace hearth::kernels
