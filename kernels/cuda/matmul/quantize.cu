#include "kernels/cuda/host/weights.h"
#include "kernels/cuda/matmul/fast_shapes.h"
#include "kernels/cuda/matmul/quantize.cuh"
#include "kernels/cuda/matmul/rows.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

struct QuantizeParams {
  const int32_t* count;
  int32_t per_token;
  RowsView x;
  int32_t num_blocks;
  int64_t first_row;
  QuantTarget to;
};

/// One thread per input.
__global__ void __launch_bounds__(kThreads) quantize_kernel(QuantizeParams p) {
  after_previous_launch();
  const int64_t scratch_row = blockIdx.x;
  const int64_t row = p.first_row + scratch_row;
  if (row >= int64_t{*p.count} * p.per_token) return;
  const int step = grid_y() * kThreads;
  for (int c = block_y() * kThreads + thread_x(); c < p.num_blocks * 32; c += step) {
    quantize_value(p.to, scratch_row, c, p.x.data[row * p.x.stride + c]);
  }
}

}  // namespace

RowForm row_form(const CudaState& state, DType dtype, int64_t rows) {
  if (!is_super(dtype)) return RowForm::kBlocks;
  return state.wgmma && rows >= kSuperTilesFrom ? RowForm::kTiles : RowForm::kChunks;
}

QuantTarget quant_target(const CudaState& state, HeldRows::Place place, int64_t cols) {
  const QuantScratch& quant = state.quant;
  const bool few = place.part == ScratchPart::kFew;
  auto* values = static_cast<int8_t*>((few ? quant.few : quant.values).get());
  void* blocks =
      few ? values + kFewQuantRows * quant.max_chunks * kChunkInputs : quant.blocks.get();
  return {values, static_cast<ActivationBlock*>(blocks), static_cast<int32_t>(num_chunks(cols)),
          place.form};
}

void quantize_rows(CudaState& state, RowForm form, const int32_t* count, int32_t per_token,
                   RowsView x, int64_t cols, int64_t first_row, int64_t rows) {
  HEARTH_EXPECT(num_chunks(cols) <= state.quant.max_chunks && rows <= kQuantRows, cols, rows);
  state.held.drop();
  const int64_t num_blocks = cols / 32;
  const int64_t across = num_blocks < 16 * kWarps ? (num_blocks + kWarps - 1) / kWarps : 16;
  const QuantizeParams params{count,     per_token,
                              x,         static_cast<int32_t>(num_blocks),
                              first_row, quant_target(state, {form, ScratchPart::kMain}, cols)};
  HEARTH_LAUNCH(state.stream.get(), quantize_kernel, grid2(rows, across), kThreads, 0, params);
}

QuantTarget hold_quantized(CudaState& state, const BatchIndex& batch, Rows rows,
                           const TensorView& out, const Weight* reader, ScratchPart part) {
  const QuantTarget nowhere{};
  // A hint may point to another table's weight.
  const auto* weight = dynamic_cast<const CudaWeight*>(reader);
  const int64_t bound = row_bound(batch, rows);
  const int64_t room = part == ScratchPart::kMain   ? kQuantRows
                       : state.quant.few != nullptr ? kFewQuantRows
                                                    : 0;
  if (weight == nullptr || weight->cols != out.cols || bound > room) return nowhere;
  if (num_chunks(out.cols) > state.quant.max_chunks) return nowhere;
  std::optional<RowForm> form;
  for (const WeightSegment& segment : weight->segments) {
    if (info(segment.dtype).block_elements == 1) continue;
    const RowForm own = row_form(state, segment.dtype, bound);
    if (form.value_or(own) != own) return nowhere;
    form = own;
  }
  if (!form) return nowhere;
  // The product will use 16-bit rows instead.
  const bool fast = state.fast.products != nullptr && !state.capturing && bound > kFastRows;
  if (fast) return nowhere;
  const HeldRows::Place place{*form, part};
  state.held.hold(out, bound, row_count(batch, rows), place);
  return quant_target(state, place, out.cols);
}

}  // namespace hearth::kernels
