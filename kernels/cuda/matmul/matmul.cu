// matmul and moe_matmul: choose the kernel for each segment of a weight and run a bounded number of
// rows at a time.

#include "kernels/cuda/host/weights.h"
#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/fast.cuh"
#include "kernels/cuda/matmul/half.cuh"
#include "kernels/cuda/matmul/moe_slices.cuh"
#include "kernels/cuda/matmul/plain.cuh"
#include "kernels/cuda/matmul/quant_layout.cuh"
#include "kernels/cuda/matmul/quantize.cuh"
#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/matmul/types.cuh"

namespace hearth::kernels {
namespace {

RowsView from_output(const TensorView& view, int64_t output) {
  RowsView rows = rows_view(view);
  rows.data += output;
  return rows;
}

bool is_plain(DType dtype) { return info(dtype).block_elements == 1; }
bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

struct RunRows {
  cudaStream_t stream;
  const QuantMatmul& params;
  int64_t slices;
  int width;
  template <DType kType>
  void operator()() const {
    if constexpr (is_super(kType)) {
      run_super<kType>(stream, params, slices, width);
    } else {
      run_quant<kType>(stream, params, slices, width);
    }
  }
};
struct RunTiles {
  cudaStream_t stream;
  const QuantMatmul& params;
  int64_t rows;
  RowForm form;
  template <DType kType>
  void operator()() const {
    if constexpr (is_super(kType)) {
      form == RowForm::kTiles ? run_super_tiles<kType>(stream, params, rows)
                              : run_super_mma_tiles<kType>(stream, params, rows);
    } else {
      run_quant_tiles<kType>(stream, params, rows);
    }
  }
};

PlainMatmul plain_params(const CudaWeight& weight, const WeightSegment& segment,
                         const MatmulRows& rows, RowsView x) {
  PlainMatmul params{};
  params.rows = rows;
  params.panels = segment.data.get();
  params.expert_panels =
      ceil_div(segment.rows, is_half(segment.dtype) ? kHalfOutputs : kPanelOutputs);
  params.cols = weight.cols;
  params.outputs = static_cast<int32_t>(segment.rows);
  params.x = x;
  return params;
}

QuantMatmul quant_params(const CudaState& state, const CudaWeight& weight,
                         const WeightSegment& segment, const MatmulRows& rows) {
  QuantMatmul params{};
  params.rows = rows;
  params.weights = static_cast<const std::byte*>(segment.data.get());
  params.expert_bytes = static_cast<int64_t>(segment.expert_bytes);
  params.num_blocks = static_cast<int32_t>(weight.cols / 32);
  params.chunks = static_cast<int32_t>(num_chunks(weight.cols));
  params.outputs = static_cast<int32_t>(segment.rows);
  params.x = static_cast<const std::byte*>(state.quant.values.get());
  params.blocks = static_cast<const ActivationBlock*>(state.quant.blocks.get());
  return params;
}

}  // namespace

void cuda::matmul(void* opaque, const MatmulArgs& args) {
  CudaState& state = cuda_state_of_product(opaque);
  cudaStream_t stream = state.stream.get();
  const auto& weight = static_cast<const CudaWeight&>(*args.w);
  const int64_t rows = row_bound(*args.batch, args.rows);
  // The scratch of rounded or quantized activations limits the rows of a round.
  const bool fast = state.fast.products != nullptr;
  const int64_t round = fast ? fast_round_rows(weight.cols, state.fast.row_bytes) : kQuantRows;
  for (int64_t first = 0; first < rows; first += round) {
    const int64_t count = rows - first < round ? rows - first : round;
    FastRound fast_round(state, args, first, count);
    MatmulRows slices{};
    slices.count = row_count(*args.batch, args.rows);
    slices.first_row = static_cast<int32_t>(first);
    slices.top_k = 1;
    std::optional<RoundedForm> rounded;
    std::optional<RowForm> quantized;
    if (rows <= round) quantized = holds_quantized(state, *args.batch, args.rows, args.x);
    // Whether segments i and i + 1 are two launches of one product.
    const auto together = [&](size_t i) {
      if (count > kFewRows || i + 1 >= weight.segments.size()) return false;
      const DType own = weight.segments[i].dtype;
      const DType next = weight.segments[i + 1].dtype;
      return !is_plain(own) && !is_plain(next) &&
             row_form(state, own, count) == row_form(state, next, count);
    };
    for (size_t i = 0; i < weight.segments.size(); ++i) {
      const WeightSegment& segment = weight.segments[i];
      const RowsView out = from_output(args.out, segment.first_row);
      const RowsView residual =
          args.residual == nullptr ? RowsView{} : from_output(*args.residual, segment.first_row);
      if (fast_round.run(segment, residual, out)) continue;
      if (is_plain(segment.dtype)) {
        PlainMatmul params = plain_params(weight, segment, slices, rows_view(args.x));
        params.first_x = first;
        params.residual = residual;
        params.out = out;
        // The widest kernel that the rows fill; the choice changes no bit.
        if (!is_half(segment.dtype)) {
          const int width = count == 1 ? 1 : count <= 4 ? 4 : kFewRows;
          run_plain(stream, params, ceil_div(count, width), width);
        } else if (count >= kRoundedRows) {
          run_half_rounded(state, segment.dtype, params, count, &rounded);
        } else {
          run_half(stream, segment.dtype, params, 1, count <= kFewRows ? kFewRows : kManyRows);
        }
        continue;
      }
      const RowForm form = row_form(state, segment.dtype, count);
      if (quantized != form) {
        quantize_rows(state, form, slices.count, 1, rows_view(args.x), weight.cols, first, count);
        quantized = form;
      }
      QuantMatmul params = quant_params(state, weight, segment, slices);
      params.residual = residual;
      params.out = out;
      params.turn = {.first = i == 0 || !together(i - 1), .last = !together(i)};
      const bool has_tiles = !is_super(segment.dtype) || state.unconfirmed;
      const bool in_tiles =
          form == RowForm::kTiles || (has_tiles && !better_in_slices(count, segment.rows));
      if (in_tiles) {
        with_quant_type(segment.dtype, RunTiles{stream, params, count, form});
      } else {
        const int width = count == 1 ? 1 : count <= kFewRows ? kFewRows : kManyRows;
        with_quant_type(segment.dtype, RunRows{stream, params, ceil_div(count, width), width});
      }
    }
  }
  drop_quantized(state, args.out);
}

void cuda::moe_matmul(void* opaque, const MoeMatmulArgs& args) {
  CudaState& state = cuda_state(opaque);
  cudaStream_t stream = state.stream.get();
  const auto& weight = static_cast<const CudaWeight&>(*args.w);
  const auto top_k = static_cast<int32_t>(args.ids.cols);
  const int32_t per_x = args.x_per_choice ? top_k : 1;
  const int64_t tokens = args.batch->num_tokens;
  const int64_t per_round = kQuantRows / top_k;  // tokens: the list of choices is bounded too
  for (int64_t first = 0; first < tokens; first += per_round) {
    const int64_t count = tokens - first < per_round ? tokens - first : per_round;
    const int64_t choices = count * top_k;
    MatmulRows rows{};
    rows.count = row_count(*args.batch, Rows::kTokens);
    rows.first_row = static_cast<int32_t>(first);
    rows.top_k = top_k;
    rows.x_per_choice = args.x_per_choice;
    int listed_width = 0;
    int64_t slices = 0;
    std::optional<RowForm> quantized;
    for (const WeightSegment& segment : weight.segments) {
      const bool plain = is_plain(segment.dtype);
      // In a decode step most experts have one row.
      const int width = segment.dtype == DType::kF32  ? kFewRows
                        : choices > kManyRows         ? kManyRows
                        : plain || choices > kFewRows ? kFewRows
                                                      : 1;
      if (width != listed_width) {
        slices = list_slices(state, args, static_cast<int32_t>(first), static_cast<int32_t>(count),
                             weight.num_experts, width, &rows);
        listed_width = width;
      }
      const RowsView out = from_output(args.out, segment.first_row);
      if (plain) {
        PlainMatmul params = plain_params(weight, segment, rows, rows_view(args.x));
        params.first_x = first * per_x;
        params.out = out;
        if (is_half(segment.dtype)) {
          run_half(stream, segment.dtype, params, slices, width);
        } else {
          run_plain(stream, params, slices, width);
        }
        continue;
      }
      const RowForm form = is_super(segment.dtype) ? RowForm::kChunks : RowForm::kBlocks;
      if (quantized != form) {
        quantize_rows(state, form, rows.count, per_x, rows_view(args.x), weight.cols, first * per_x,
                      count * per_x);
        quantized = form;
      }
      QuantMatmul params = quant_params(state, weight, segment, rows);
      params.out = out;
      with_quant_type(segment.dtype, RunRows{stream, params, slices, width});
    }
  }
}

}  // namespace hearth::kernels
