// Reads single outputs from a weight's panels and groups, which a tied output head reads whole.

#include <algorithm>

#include "kernels/cuda/host/weights.h"
#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/unpack.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

struct EmbedParams {
  const int32_t* count;
  const int32_t* token_ids;
  const std::byte* table;
  int64_t cols;
  float scale;
  RowsView out;
};

template <DType kType>
__device__ float table_value(const std::byte* table, int64_t row, int64_t col, int64_t cols) {
  if constexpr (kType == DType::kF32) {
    constexpr int kShare = Share<float>::kCount;
    return reinterpret_cast<const float*>(table)[panel_element(row, col, cols, kShare)];
  } else if constexpr (kType == DType::kF16 || kType == DType::kBF16) {
    using T = std::conditional_t<kType == DType::kF16, Half, BFloat16>;
    return to_float(reinterpret_cast<const T*>(table)[half_element(row, col, cols)]);
  } else {
    const int64_t chunk = row / kGroupOutputs * num_chunks(cols) + col / kChunkInputs;
    return weight_value<kType>(table + chunk * quant_form(kType).chunk_bytes(),
                               static_cast<int>(row % kGroupOutputs),
                               static_cast<int>(col % kChunkInputs));
  }
}

template <DType kType>
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedParams p) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *p.count) return;
  const int64_t id = p.token_ids[row];
  const int64_t step = int64_t{grid_y()} * kThreads;
  for (int64_t c = int64_t{block_y()} * kThreads + thread_x(); c < p.cols; c += step) {
    p.out.data[row * p.out.stride + c] = table_value<kType>(p.table, id, c, p.cols) * p.scale;
  }
}

template <DType kType>
void run(void* state, const EmbedArgs& args, const WeightSegment& table) {
  const BatchIndex& batch = *args.batch;
  const EmbedParams params{row_count(batch, Rows::kTokens),
                           batch.token_ids,
                           static_cast<const std::byte*>(table.data.get()),
                           args.table->cols,
                           args.scale,
                           rows_view(args.out)};
  const int64_t across = std::clamp<int64_t>(args.table->cols / kThreads, 1, 16);
  HEARTH_LAUNCH(cuda_state(state).stream.get(), embed_kernel<kType>,
                grid2(batch.num_tokens, across), kThreads, 0, params);
}

}  // namespace

void cuda::embed(void* state, const EmbedArgs& args) {
  if (args.batch->num_tokens == 0) return;
  const auto& weight = static_cast<const CudaWeight&>(*args.table);
  HEARTH_EXPECT(weight.segments.size() == 1, weight.segments.size());
  const WeightSegment& table = weight.segments[0];
  switch (table.dtype) {
    case DType::kF32: return run<DType::kF32>(state, args, table);
    case DType::kF16: return run<DType::kF16>(state, args, table);
    case DType::kBF16: return run<DType::kBF16>(state, args, table);
    case DType::kQ8_0: return run<DType::kQ8_0>(state, args, table);
    case DType::kQ4_0: return run<DType::kQ4_0>(state, args, table);
    case DType::kQ4_1: return run<DType::kQ4_1>(state, args, table);
    case DType::kQ5_0: return run<DType::kQ5_0>(state, args, table);
    case DType::kQ5_1: return run<DType::kQ5_1>(state, args, table);
    case DType::kIQ4_NL: return run<DType::kIQ4_NL>(state, args, table);
    case DType::kMXFP4: return run<DType::kMXFP4>(state, args, table);
    case DType::kQ2_K: return run<DType::kQ2_K>(state, args, table);
    case DType::kQ3_K: return run<DType::kQ3_K>(state, args, table);
    case DType::kQ4_K: return run<DType::kQ4_K>(state, args, table);
    case DType::kQ5_K: return run<DType::kQ5_K>(state, args, table);
    case DType::kQ6_K: return run<DType::kQ6_K>(state, args, table);
    case DType::kIQ4_XS: return run<DType::kIQ4_XS>(state, args, table);
    case DType::kTQ1_0:
    case DType::kTQ2_0: return run<DType::kTQ2_0>(state, args, table);
    case DType::kNVFP4: return run<DType::kNVFP4>(state, args, table);
    case DType::kIQ2_XXS: return run<DType::kIQ2_XXS>(state, args, table);
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return run<DType::kIQ2_S>(state, args, table);
    case DType::kIQ3_XXS: return run<DType::kIQ3_XXS>(state, args, table);
    case DType::kIQ3_S: return run<DType::kIQ3_S>(state, args, table);
    case DType::kIQ1_S: return run<DType::kIQ1_S>(state, args, table);
    case DType::kIQ1_M: return run<DType::kIQ1_M>(state, args, table);
    default: HEARTH_EXPECT(false, static_cast<int>(table.dtype));
  }
}

}  // namespace hearth::kernels
