// Reads single outputs out of the panels that a tied output head reads whole.

#include "kernels/cuda_device.cuh"
#include "kernels/cuda_layout.cuh"
#include "kernels/cuda_weights.h"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

struct QuantPanels {};  // q8_0: values and scales side by side

template <typename T>
__device__ float table_value(const void* panels, int64_t row, int64_t col, int64_t cols) {
  return to_float(static_cast<const T*>(panels)[panel_element(row, col, cols, Share<T>::kCount)]);
}
template <>
__device__ float table_value<QuantPanels>(const void* panels, int64_t row, int64_t col,
                                          int64_t cols) {
  const auto lane = static_cast<int>(row % kPanelOutputs);
  const std::byte* block =
      static_cast<const std::byte*>(panels) + quant_panel_offset(row, col / kQuantBlock, cols);
  const int offset = quant_value_offset(lane, static_cast<int>(col % kQuantBlock));
  const auto scale = *reinterpret_cast<const Half*>(block + quant_scale_offset(lane));
  return to_float(scale) * static_cast<float>(*reinterpret_cast<const int8_t*>(block + offset));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const int32_t* count, const int32_t* token_ids, const void* panels, int64_t cols,
                 float scale, RowsView out) {
  const int row = static_cast<int>(blockIdx.x);
  if (row >= *count) return;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    out.data[row * out.stride + c] = table_value<T>(panels, token_ids[row], c, cols) * scale;
  }
}

template <typename T>
void run(void* state, const EmbedArgs& args, const WeightSegment& table) {
  const BatchIndex& batch = *args.batch;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), embed_kernel<T>, batch.num_tokens, kThreads, 0,
                row_count(batch, Rows::kTokens), batch.token_ids, table.data.get(),
                args.table->cols, args.scale, rows_view(args.out));
}

}  // namespace

void cuda::embed(void* state, const EmbedArgs& args) {
  if (args.batch->num_tokens == 0) return;
  const auto& weight = static_cast<const CudaWeight&>(*args.table);
  HEARTH_EXPECT(weight.segments.size() == 1, weight.segments.size());
  const WeightSegment& table = weight.segments[0];
  switch (table.dtype) {
    case DType::kF32: return run<float>(state, args, table);
    case DType::kF16: return run<Half>(state, args, table);
    case DType::kBF16: return run<BFloat16>(state, args, table);
    case DType::kQ8_0: return run<QuantPanels>(state, args, table);
    default: HEARTH_EXPECT(false, static_cast<int>(table.dtype));
  }
}

}  // namespace hearth::kernels
