#pragma once
// The recurrent ops on pieces of a state, as one instruction set computes them. Plain data, because
// files built for one instruction set include this header. Pointers need no alignment.

#include <cstdint>

namespace hearth::kernels {

/// Columns of a state that one call computes: a tile of a state (k_dim, tile) stays in a core's
/// cache from row to row.
inline constexpr int64_t kStateTile = 64;

/// Of one head of one row (WkvInputsArgs): the first four are changed or written.
struct WkvHeadInputs {
  float *k, *decay, *rate, *erased;
  const float *erased_scale, *rate_bias, *k_scale, *decay_bias;
};
/// The same of WkvOutputArgs. norm null: none; gate null: none.
struct WkvHeadOutput {
  float* y;
  const float *q, *k, *v, *bonus, *norm, *norm_bias, *gate;
  float eps;
};

struct StateKernels {
  /// out[c] = bias[c] + sum_j weight[j * stride + c] * rows[j][c] for `n` channels, one chain each;
  /// `bias` null: from zero. Then silu, or times out_gate if it is not null.
  void (*conv)(const float* const* rows, const float* weight, int64_t stride, int32_t taps,
               const float* bias, bool silu, const float* out_gate, int64_t n, float* out);
  /// out = x * gate
  void (*product)(const float* x, const float* gate, int64_t n, float* out);
  /// One row of one head, `n` columns (a multiple of 16, at most kStateTile) of its state: rows of
  /// `stride` values. q null: a replayed row, without output.
  ///   s[i] = decays[i] * s[i], or decays[0] * s[i] without row_decays
  ///   w = delta ? weight * (v - s^T k) : weight * v;  s += k w^T;  out = s^T q + skip * v
  void (*head_row)(float* s, int64_t stride, int32_t k_dim, int64_t n, const float* k,
                   const float* q, const float* v, const float* decays, bool row_decays,
                   float weight, bool delta, float skip, float* out);
  /// The same with an erased key, and decays for each row:
  ///   u = s^T erased;  s[i] = decays[i] * s[i] - removed[i] * u + k[i] * v;  out = s^T q
  void (*erase_row)(float* s, int64_t stride, int32_t k_dim, int64_t n, const float* k,
                    const float* q, const float* v, const float* decays, const float* erased,
                    const float* removed, float* out);
  /// One row of `n` channels (as above): s is (d_state, stride), a (d_state, a_stride). c null: no
  /// output.
  ///   s[i] = exp(d * a[i]) * s[i] + (d * x) * b[i];  out = sum_i c[i] * s[i] + skip * x
  void (*channel_row)(float* s, int64_t stride, int64_t d_state, int64_t n, const float* a,
                      int64_t a_stride, const float* x, const float* d, const float* b,
                      const float* c, const float* skip, float* out);
  /// v += (first - v) * sigmoid(gate + bias)
  void (*mix_values)(const float* first, const float* gate, const float* bias, int64_t n, float* v);
  /// One head of WkvInputsArgs and of WkvOutputArgs; `n` is a multiple of 16.
  void (*wkv_inputs)(const WkvHeadInputs& in, int64_t n);
  void (*wkv_output)(const WkvHeadOutput& in, int64_t n);
};

extern const StateKernels kStatePlain;
extern const StateKernels kStateAvx2;
extern const StateKernels kStateAvx512;
extern const StateKernels kStateNeon;

}  // namespace hearth::kernels
