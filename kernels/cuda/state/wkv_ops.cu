// RWKV-7's rows before and after the scan: one warp per head of a row. Each lane sums its values in
// ascending order, then a fixed tree adds the lanes' sums.

#include "kernels/cuda/device.cuh"
#include "kernels/ops/wkv_ops.h"

namespace hearth::kernels {
namespace {

struct InputsParams {
  const int32_t* count;
  int head_dim;
  RowsView k, v, decay, rate, erased;
  RowsView first_v, v_gate;  ///< data null: none
  const float *erased_scale, *rate_bias, *k_scale, *decay_bias, *v_gate_bias;
};

__device__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

__global__ void __launch_bounds__(kWarp) wkv_inputs_kernel(InputsParams p) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *p.count) return;
  const int lane = thread_x();
  const int64_t first = int64_t{block_y()} * p.head_dim;
  const auto at = [row, first](const RowsView& view) {
    return view.data + row * view.stride + first;
  };
  float *k = at(p.k), *v = at(p.v), *decay = at(p.decay), *rate = at(p.rate),
        *erased = at(p.erased);
  float squares = 0;
  for (int c = lane; c < p.head_dim; c += kWarp) {
    const float key = k[c] * p.erased_scale[first + c];
    squares = fmaf(key, key, squares);
  }
  const float length = sqrtf(warp_sum(squares));
  const float scale = 1.0f / (length > kWkvLeastNorm ? length : kWkvLeastNorm);
  for (int c = lane; c < p.head_dim; c += kWarp) {
    const int64_t i = first + c;
    const float key = k[c] * p.erased_scale[i] * scale;
    const float r = logistic(rate[c] + p.rate_bias[i]);
    erased[c] = key;
    rate[c] = key * r;
    k[c] *= fmaf(r - 1.0f, p.k_scale[i], 1.0f);
    decay[c] = expf(-kWkvDecay * logistic(decay[c] + p.decay_bias[i]));
    if (p.first_v.data == nullptr) continue;
    v[c] = fmaf(at(p.first_v)[c] - v[c], logistic(at(p.v_gate)[c] + p.v_gate_bias[i]), v[c]);
  }
}

struct OutputParams {
  const int32_t* count;
  int head_dim;
  RowsView y, q, k, v;
  RowsView gate;                          ///< data null: none
  const float *bonus, *norm, *norm_bias;  ///< norm null: none
  float eps;
};

__global__ void __launch_bounds__(kWarp) wkv_output_kernel(OutputParams p) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *p.count) return;
  const int lane = thread_x();
  const int64_t first = int64_t{block_y()} * p.head_dim;
  const auto at = [row, first](const RowsView& view) {
    return view.data + row * view.stride + first;
  };
  float* y = at(p.y);
  const float *q = at(p.q), *k = at(p.k), *v = at(p.v);
  float bonus = 0, sum = 0, squares = 0;
  for (int c = lane; c < p.head_dim; c += kWarp) {
    bonus = fmaf(q[c] * k[c], p.bonus[first + c], bonus);
    sum += y[c];
  }
  bonus = warp_sum(bonus);
  const auto width = static_cast<float>(p.head_dim);
  const float mean = warp_sum(sum) / width;
  for (int c = lane; c < p.head_dim; c += kWarp) {
    squares = fmaf(y[c] - mean, y[c] - mean, squares);
  }
  const float scale = 1.0f / sqrtf(warp_sum(squares) / width + p.eps);
  for (int c = lane; c < p.head_dim; c += kWarp) {
    float value = y[c];
    if (p.norm != nullptr) {
      value = fmaf((value - mean) * scale, p.norm[first + c], p.norm_bias[first + c]);
    }
    value = fmaf(bonus, v[c], value);
    y[c] = p.gate.data == nullptr ? value : value * at(p.gate)[c];
  }
}

RowsView view_or_none(const TensorView* view) {
  return view == nullptr ? RowsView{} : rows_view(*view);
}
const float* vector_or_none(const Weight* weight) {
  return weight == nullptr ? nullptr : weight->vector;
}

}  // namespace

void cuda::wkv_inputs(void* state, const WkvInputsArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  const InputsParams params{row_count(*args.batch, Rows::kTokens),
                            args.head_dim,
                            rows_view(args.k),
                            rows_view(args.v),
                            rows_view(args.decay),
                            rows_view(args.rate),
                            rows_view(args.erased),
                            view_or_none(args.first_v),
                            view_or_none(args.v_gate),
                            args.erased_scale->vector,
                            args.rate_bias->vector,
                            args.k_scale->vector,
                            args.decay_bias->vector,
                            vector_or_none(args.v_gate_bias)};
  HEARTH_LAUNCH(cuda_state(state).stream.get(), wkv_inputs_kernel,
                grid2(rows, args.k.cols / args.head_dim), kWarp, 0, params);
}

void cuda::wkv_output(void* state, const WkvOutputArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  const OutputParams params{row_count(*args.batch, Rows::kTokens),
                            args.head_dim,
                            rows_view(args.y),
                            rows_view(args.q),
                            rows_view(args.k),
                            rows_view(args.v),
                            view_or_none(args.gate),
                            args.bonus->vector,
                            vector_or_none(args.norm),
                            vector_or_none(args.norm_bias),
                            args.eps};
  HEARTH_LAUNCH(cuda_state(state).stream.get(), wkv_output_kernel,
                grid2(rows, args.y.cols / args.head_dim), kWarp, 0, params);
}

}  // namespace hearth::kernels
