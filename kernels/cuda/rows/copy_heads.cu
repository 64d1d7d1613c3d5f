#include "kernels/cuda/device.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

struct CopyHeads {
  int x_dim;
  int x_first;
  int out_dim;
  int out_first;
  int num_heads;
  int count;
};

__global__ void __launch_bounds__(kThreads)
    copy_heads_kernel(const int32_t* count, RowsView x, RowsView out, CopyHeads heads) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  const float* from = x.data + row * x.stride + heads.x_first;
  float* to = out.data + row * out.stride + heads.out_first;
  const int step = grid_y() * kThreads;
  for (int n = block_y() * kThreads + thread_x(); n < heads.num_heads * heads.count; n += step) {
    const int64_t head = n / heads.count;
    const int i = n % heads.count;
    to[head * heads.out_dim + i] = from[head * heads.x_dim + i];
  }
}

}  // namespace

void cuda::copy_heads(void* state, const CopyHeadsArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  const int values = args.num_heads * args.count;
  const int across = values <= 16 * kThreads ? (values + kThreads - 1) / kThreads : 16;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), copy_heads_kernel, grid2(rows, across), kThreads, 0,
                row_count(*args.batch, Rows::kTokens), rows_view(args.x), rows_view(args.out),
                CopyHeads{args.x_dim, args.x_first, args.out_dim, args.out_first, args.num_heads,
                          args.count});
}

}  // namespace hearth::kernels
