// The scan with a state for each channel: one thread per channel and sequence. Of the state it
// holds kStates values in registers at a time and walks all rows with them; with more values it
// walks once for each kStates of them, continuing each row's sum, which is one chain.

#include "kernels/cuda/state/states.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kStates = 16;
/// Rows whose inputs are loaded together.
constexpr int kChunk = 8;

struct ChannelScanParams {
  StateRows rows;
  int64_t channels;
  int64_t d_state;
  RowsView x;
  RowsView dt;
  RowsView b;
  RowsView c;
  const float* dt_bias;
  const float* a;
  const float* skip;
  StatePart state;
  RowsView kept;
  RowsView out;
};

/// One row's inputs, of the step or kept.
struct ChannelInputs {
  const float* x;
  const float* dt;
  const float* b;
};
__device__ ChannelInputs inputs_of(const ChannelScanParams& p, const Walk& walk, int i) {
  const int64_t row = walk.row(i);
  if (!walk.replayed(i)) return {row_of(p.x, row), row_of(p.dt, row), row_of(p.b, row)};
  const float* x = row_of(p.kept, row);
  return {x, x + p.channels, x + 2 * p.channels};
}

/// Values [first, first + kStates) of a channel's state, or of `a`; zero past the last.
struct ChannelColumn {
  int64_t channel;
  int64_t channels;
  int64_t first;
  int64_t d_state;

  __device__ void read(const float* from, float (&to)[kStates]) const {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      to[n] = first + n < d_state ? from[(first + n) * channels + channel] : 0.0f;
    }
  }
  __device__ void write(const float (&from)[kStates], float* to) const {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      if (first + n < d_state) to[(first + n) * channels + channel] = from[n];
    }
  }
};

struct ChannelChunk {
  float b[kChunk][kStates];
  float c[kChunk][kStates];
};

/// Walks all rows with one part of the state.
__device__ void walk_part(const ChannelScanParams& p, const Walk& walk, const ChannelColumn& column,
                          ChannelChunk& chunk) {
  const int64_t channel = column.channel;
  const bool there = channel < p.channels;
  const bool first_part = column.first == 0;
  const bool last_part = column.first + kStates >= p.d_state;
  float a[kStates] = {};
  float s[kStates] = {};
  if (there) column.read(p.a, a);
  if (there && walk.step.from >= 0) column.read(state_in(p.state, walk.step.from), s);
  if (there && walk.stay == 0) column.write(s, state_in(p.state, walk.step.to));
  const float dt_bias = there ? p.dt_bias[channel] : 0.0f;
  const float skip = there ? p.skip[channel] : 0.0f;
  for (int first = 0; first < walk.total; first += kChunk) {
    __syncthreads();  // the chunk before was read
    for (int n = thread_x(); n < kChunk * kStates; n += kThreads) {
      const int i = first + n / kStates;
      const int64_t at = column.first + n % kStates;
      const bool valid = i < walk.total && at < p.d_state;
      chunk.b[n / kStates][n % kStates] = valid ? inputs_of(p, walk, i).b[at] : 0.0f;
      chunk.c[n / kStates][n % kStates] =
          valid && !walk.replayed(i) ? row_of(p.c, walk.row(i))[at] : 0.0f;
    }
    __syncthreads();
    if (!there) continue;
    float x[kChunk] = {};
    float d[kChunk] = {};
#pragma unroll
    for (int r = 0; r < kChunk; ++r) {
      if (first + r >= walk.total) break;
      const ChannelInputs in = inputs_of(p, walk, first + r);
      x[r] = in.x[channel];
      d[r] = static_cast<float>(softplus_of(double{in.dt[channel]} + double{dt_bias}));
    }
#pragma unroll
    for (int r = 0; r < kChunk; ++r) {
      const int i = first + r;
      if (i >= walk.total) break;
      const float scaled = d[r] * x[r];
      const bool replayed = walk.replayed(i);
      float* out = replayed ? nullptr : p.out.data + walk.row(i) * p.out.stride + channel;
      float sum = first_part || replayed ? 0.0f : *out;
#pragma unroll
      for (int n = 0; n < kStates; ++n) {
        s[n] = fmaf(scaled, chunk.b[r][n], expf(d[r] * a[n]) * s[n]);
        sum = fmaf(s[n], chunk.c[r][n], sum);
      }
      if (!replayed) *out = last_part ? fmaf(skip, x[r], sum) : sum;
      if (walk.saves_after(i + 1)) column.write(s, state_in(p.state, walk.step.saved));
      if (i + 1 == walk.stay) column.write(s, state_in(p.state, walk.step.to));
    }
  }
}

/// Keeps a draft's inputs: each thread its channel, the first block b.
__device__ void keep_row(const ChannelScanParams& p, const Walk& walk, int i, int64_t channel) {
  const ChannelInputs in = inputs_of(p, walk, i);
  float* to = p.kept.data + walk.kept(i) * p.kept.stride;
  if (channel < p.channels) {
    to[channel] = in.x[channel];
    to[p.channels + channel] = in.dt[channel];
  }
  if (block_x() != 0) return;
  for (int64_t n = thread_x(); n < p.d_state; n += kThreads) to[2 * p.channels + n] = in.b[n];
}

__global__ void __launch_bounds__(kThreads) channel_scan_kernel(ChannelScanParams p) {
  after_previous_launch();
  const int seq = block_y();
  if (seq >= p.rows.counts[1]) return;
  const Walk walk = walk_of(p.rows, seq);
  const int64_t channel = int64_t{block_x()} * kThreads + thread_x();
  __shared__ ChannelChunk chunk;
  for (int64_t first = 0; first < p.d_state; first += kStates) {
    walk_part(p, walk, {channel, p.channels, first, p.d_state}, chunk);
  }
  for (int i = walk.stay; i < walk.total; ++i) keep_row(p, walk, i, channel);
}

}  // namespace

void cuda::channel_scan(void* state, const ChannelScanArgs& args) {
  const BatchIndex& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  const ChannelScanParams params{state_rows(batch),  args.x.cols,          args.b.cols,
                                 rows_view(args.x),  rows_view(args.dt),   rows_view(args.b),
                                 rows_view(args.c),  args.dt_bias->vector, args.a->vector,
                                 args.skip->vector,  args.state,           rows_view(args.kept),
                                 rows_view(args.out)};
  HEARTH_LAUNCH(cuda_state(state).stream.get(), channel_scan_kernel,
                grid2((args.x.cols + kThreads - 1) / kThreads, batch.num_seqs), kThreads, 0,
                params);
}

}  // namespace hearth::kernels
