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
#include "kernels/cuda/matmul/row_pairs.cuh"
#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/matmul/types.cuh"
#include "kernels/ops/encoder_kernels.h"

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
                         const WeightSegment& segment, const MatmulRows& rows, HeldRows::Place x) {
  const QuantTarget from = quant_target(state, x, weight.cols);
  QuantMatmul params{};
  params.rows = rows;
  params.weights = static_cast<const std::byte*>(segment.data.get());
  params.expert_bytes = static_cast<int64_t>(segment.expert_bytes);
  params.num_blocks = static_cast<int32_t>(weight.cols / 32);
  params.chunks = static_cast<int32_t>(num_chunks(weight.cols));
  params.outputs = static_cast<int32_t>(segment.rows);
  params.x = reinterpret_cast<const std::byte*>(from.values);
  params.blocks = from.blocks;
  return params;
}

/// Whether the product's last blocks can compute the activation.
bool gates_at_once(const CudaState& state, const MatmulArgs& args,
                   const GatedActivationArgs& then) {
  const auto& weight = static_cast<const CudaWeight&>(*args.w);
  const int64_t width = then.out.cols;
  return state.arrivals() != nullptr && weight.segments.size() == 1 &&
         ends_with_gate(weight.segments[0].dtype) && args.rows == Rows::kTokens &&
         args.batch->num_tokens <= kFewRows && args.residual == nullptr &&
         then.rows_per_token == 1 && then.gate_up.data == args.out.data &&
         then.gate_up.row_stride == args.out.row_stride && weight.rows == 2 * width &&
         width % kGroupOutputs == 0 && num_chunks(width) <= kArrivals;
}
/// `x`: where the product reads its rows.
GateTail gate_tail(CudaState& state, const GatedActivationArgs& args, ScratchPart x) {
  GateTail gate;
  gate.arrivals = state.arrivals();
  gate.width = static_cast<int32_t>(args.out.cols);
  gate.activation = args.activation;
  gate.out = rows_view(args.out);
  gate.quantized = hold_quantized(state, *args.batch, Rows::kTokens, args.out, args.reader,
                                  x == ScratchPart::kFew ? ScratchPart::kMain : ScratchPart::kFew);
  return gate;
}

/// The rows of a product that the scratch of rounded or quantized activations holds at a time.
struct Round {
  CudaState& state;
  const MatmulArgs& args;
  const CudaWeight& weight;
  const GatedActivationArgs* then;  ///< what the last blocks compute; null: nothing
  int64_t first;                    ///< row of the step
  int64_t count;
  MatmulRows rows;
  std::optional<RoundedForm> rounded = {};
  std::optional<HeldRows::Place> quantized = {};

  /// Whether segments i and i + 1 are two launches of one product.
  bool together(size_t i) const {
    if (count > kFewRows || i + 1 >= weight.segments.size()) return false;
    const DType own = weight.segments[i].dtype;
    const DType next = weight.segments[i + 1].dtype;
    return !is_plain(own) && !is_plain(next) &&
           row_form(state, own, count) == row_form(state, next, count);
  }
  RowsView out(const WeightSegment& segment) const {
    return from_output(args.out, segment.first_row);
  }
  RowsView residual(const WeightSegment& segment) const {
    return args.residual == nullptr ? RowsView{} : from_output(*args.residual, segment.first_row);
  }

  void run_plain_segment(const WeightSegment& segment) {
    PlainMatmul params = plain_params(weight, segment, rows, rows_view(args.x));
    params.first_x = first;
    params.residual = residual(segment);
    params.out = out(segment);
    if (then != nullptr) params.gate = gate_tail(state, *then, ScratchPart::kMain);
    cudaStream_t stream = state.stream.get();
    // The widest kernel that the rows fill; the choice changes no bit.
    if (!is_half(segment.dtype)) {
      const int width = count == 1 ? 1 : count <= 4 ? 4 : kFewRows;
      run_plain(stream, params, ceil_div(count, width), width);
    } else if (count >= kRoundedRows) {
      run_half_rounded(state, segment.dtype, params, count, &rounded);
    } else {
      run_half(stream, segment.dtype, params, 1, count <= kFewRows ? kFewRows : kManyRows);
    }
  }

  QuantMatmul quantized_params(const WeightSegment& segment) const {
    QuantMatmul params = quant_params(state, weight, segment, rows, *quantized);
    params.residual = residual(segment);
    params.out = out(segment);
    return params;
  }
  /// Runs segment i, or that and the next at once. Returns how many.
  size_t run_quantized(size_t i) {
    const WeightSegment& segment = weight.segments[i];
    const RowForm form = row_form(state, segment.dtype, count);
    if (!quantized || quantized->form != form) {
      quantize_rows(state, form, rows.count, 1, rows_view(args.x), weight.cols, first, count);
      quantized = {form, ScratchPart::kMain};
    }
    cudaStream_t stream = state.stream.get();
    QuantMatmul params = quantized_params(segment);
    if (then != nullptr) params.gate = gate_tail(state, *then, quantized->part);
    params.turn = {.first = i == 0 || !together(i - 1), .last = !together(i)};
    if (state.unconfirmed && count == 1 && together(i)) {
      const WeightSegment& next = weight.segments[i + 1];
      QuantMatmul second = quantized_params(next);
      second.turn = {.first = params.turn.first, .last = !together(i + 1)};
      QuantMatmul both = params;
      both.turn = second.turn;
      if (run_row_pair(stream, segment.dtype, both, next.dtype, second)) return 2;
    }
    const bool has_tiles = !is_super(segment.dtype) || state.unconfirmed;
    const bool in_tiles =
        form == RowForm::kTiles || (has_tiles && !better_in_slices(count, segment.rows));
    if (in_tiles) {
      with_quant_type(segment.dtype, RunTiles{stream, params, count, form});
    } else {
      const int width = count == 1 ? 1 : count <= kFewRows ? kFewRows : kManyRows;
      with_quant_type(segment.dtype, RunRows{stream, params, ceil_div(count, width), width});
    }
    return 1;
  }
};

/// `then`: the activation that the product's last blocks compute; null: none.
void multiply(CudaState& state, const MatmulArgs& args, const GatedActivationArgs* then) {
  const auto& weight = static_cast<const CudaWeight&>(*args.w);
  const int64_t bound = row_bound(*args.batch, args.rows);
  const bool fast = state.fast.products != nullptr;
  const int64_t most = fast ? fast_round_rows(weight.cols, state.fast.row_bytes) : kQuantRows;
  MatmulRows rows{};
  rows.count = row_count(*args.batch, args.rows);
  rows.top_k = 1;
  for (int64_t first = 0; first < bound; first += most) {
    const int64_t count = bound - first < most ? bound - first : most;
    rows.first_row = static_cast<int32_t>(first);
    FastRound fast_round(state, args, first, count);
    Round round{state, args, weight, then, first, count, rows};
    if (bound <= most) round.quantized = state.held.find(args.x, bound, rows.count);
    for (size_t i = 0; i < weight.segments.size();) {
      const WeightSegment& segment = weight.segments[i];
      if (fast_round.run(segment, round.residual(segment), round.out(segment))) {
        ++i;
      } else if (is_plain(segment.dtype)) {
        round.run_plain_segment(segment);
        ++i;
      } else {
        i += round.run_quantized(i);
      }
    }
  }
}

}  // namespace

void cuda::matmul(void* opaque, const MatmulArgs& args) {
  multiply(cuda_state(opaque), args, nullptr);
}

void cuda::multiply_and_gate(void* opaque, const MatmulArgs& args,
                             const GatedActivationArgs& then) {
  CudaState& state = cuda_state(opaque);
  const bool at_once = gates_at_once(state, args, then);
  multiply(state, args, at_once ? &then : nullptr);
  if (!at_once) gated_activation(opaque, then);
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
    std::optional<RowForm> quantized;  // in the scratch
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
      QuantMatmul params = quant_params(state, weight, segment, rows, {form, ScratchPart::kMain});
      params.out = out;
      with_quant_type(segment.dtype, RunRows{stream, params, slices, width});
    }
  }
}

}  // namespace hearth::kernels
