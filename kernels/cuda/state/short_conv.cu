// The causal convolution. Every value of `out` is one thread's chain, whose inputs come from the
// state, from replayed rows or from the step's rows, so all rows are computed at once. A second
// launch moves the states on, after all rows have read them.

#include "kernels/cuda/state/states.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

struct ConvParams {
  StateRows rows;
  RowsView x;
  RowsView in_gate;   ///< data null: none
  RowsView out_gate;  ///< likewise
  const float* weight;
  const float* bias;  ///< null: none
  int64_t channels;
  int taps;
  int num_outs;
  bool silu;
  StatePart state;
  RowsView kept;
  RowsView out;
};

/// z of the walk's row i, which may lie up to taps - 1 rows before the walk.
__device__ float input_of(const ConvParams& p, const Walk& walk, int i, int64_t channel) {
  if (i < 0) {
    if (walk.step.from < 0) return 0.0f;
    return state_in(p.state, walk.step.from)[(p.taps - 1 + i) * p.channels + channel];
  }
  const int64_t row = walk.row(i);
  if (walk.replayed(i)) return row_of(p.kept, row)[channel];
  const float x = row_of(p.x, row)[channel];
  return p.in_gate.data == nullptr ? x : x * row_of(p.in_gate, row)[channel];
}

__global__ void __launch_bounds__(kThreads) conv_rows_kernel(ConvParams p) {
  after_previous_launch();
  const int row = block_x();
  const int64_t channel = int64_t{block_y()} * kThreads + thread_x();
  if (row >= p.rows.counts[0] || channel >= p.channels) return;
  const Walk walk = walk_of(p.rows, p.rows.seq_idx[row]);
  const int i = walk.step.replay + row - walk.first_row;
  float z = 0;
  for (int o = 0; o < p.num_outs; ++o) {
    const float* weight = p.weight + int64_t{o} * p.taps * p.channels;
    float y = p.bias == nullptr ? 0.0f : p.bias[channel];
    for (int j = 0; j < p.taps; ++j) {
      z = input_of(p, walk, i - (p.taps - 1) + j, channel);
      y = fmaf(weight[j * p.channels + channel], z, y);
    }
    if (p.silu) y = y / (1.0f + expf(-y));
    if (p.out_gate.data != nullptr) y *= row_of(p.out_gate, row)[channel];
    p.out.data[row * p.out.stride + o * p.channels + channel] = y;
  }
  if (walk.draft(i)) p.kept.data[walk.kept(i) * p.kept.stride + channel] = z;
}

/// The taps - 1 rows before the walk's row `end`.
__device__ void read_past(const ConvParams& p, const Walk& walk, int end, int64_t channel,
                          float (&past)[kMaxTaps - 1]) {
#pragma unroll
  for (int j = 0; j < kMaxTaps - 1; ++j) {
    if (j + 1 < p.taps) past[j] = input_of(p, walk, end - (p.taps - 1) + j, channel);
  }
}

__device__ void write_past(const ConvParams& p, int block, int64_t channel,
                           const float (&past)[kMaxTaps - 1]) {
  float* to = state_in(p.state, block) + channel;
#pragma unroll
  for (int j = 0; j < kMaxTaps - 1; ++j) {
    if (j + 1 < p.taps) to[j * p.channels] = past[j];
  }
}

__global__ void __launch_bounds__(kThreads) conv_states_kernel(ConvParams p) {
  after_previous_launch();
  const int seq = block_x();
  const int64_t channel = int64_t{block_y()} * kThreads + thread_x();
  if (seq >= p.rows.counts[1] || channel >= p.channels) return;
  const Walk walk = walk_of(p.rows, seq);
  // All is read before anything is written: the blocks may be the same.
  float stay[kMaxTaps - 1] = {};
  float saved[kMaxTaps - 1] = {};
  read_past(p, walk, walk.stay, channel, stay);
  if (walk.step.saved >= 0) read_past(p, walk, walk.step.saved_after, channel, saved);
  write_past(p, walk.step.to, channel, stay);
  if (walk.step.saved >= 0) write_past(p, walk.step.saved, channel, saved);
}

}  // namespace

void cuda::short_conv(void* state, const ShortConvArgs& args) {
  const BatchIndex& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  const auto view_or_none = [](const TensorView* view) {
    return view == nullptr ? RowsView{} : rows_view(*view);
  };
  const ConvParams params{state_rows(batch),
                          rows_view(args.x),
                          view_or_none(args.in_gate),
                          view_or_none(args.out_gate),
                          args.weight->vector,
                          args.bias == nullptr ? nullptr : args.bias->vector,
                          args.x.cols,
                          args.taps,
                          args.num_outs,
                          args.silu,
                          args.state,
                          rows_view(args.kept),
                          rows_view(args.out)};
  const int64_t across = (args.x.cols + kThreads - 1) / kThreads;
  cudaStream_t stream = cuda_state(state).stream.get();
  HEARTH_LAUNCH(stream, conv_rows_kernel, grid2(batch.num_tokens, across), kThreads, 0, params);
  HEARTH_LAUNCH(stream, conv_states_kernel, grid2(batch.num_seqs, across), kThreads, 0, params);
}

}  // namespace hearth::kernels
