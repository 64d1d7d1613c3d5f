#pragma once
// Ops on single rows, as one instruction set computes them. Plain data, because files built for one
// instruction set include this header. Pointers need no alignment.

#include <cstdint>

namespace hearth::kernels {

struct RowKernels {
  /// out = x / sqrt(mean(x^2) + eps) * weight; `out` may be `x`.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  /// out[i] = silu(gate[i]) * up[i], or gelu (by tanh) in place of silu.
  void (*silu_gate)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_gate)(const float* gate, const float* up, int64_t n, float* out);
  /// Activation::kClampedSwish
  void (*clamped_swish_gate)(const float* gate, const float* up, int64_t n, float* out);
  /// Rotates `pairs` pairs of one head; cos_sin holds (cos, sin) of each.
  void (*rope_neighbours)(float* x, const float* cos_sin, int64_t pairs);
  void (*rope_halves)(float* x, const float* cos_sin, int64_t pairs);
  /// out += bias
  void (*add)(const float* bias, int64_t n, float* out);
  /// out += sum over j of weights[j] * x[j * stride ..], one chain per value, starting from zero.
  void (*combine)(const float* x, int64_t stride, const float* weights, int32_t count, int64_t n,
                  float* out);
  /// out += x * scale, in one rounding
  void (*add_scaled)(const float* x, float scale, int64_t n, float* out);
  /// x = cap * tanh(x * scale / cap); x * scale if cap is 0.
  void (*soft_cap)(float* x, int64_t n, float scale, float cap);
  /// out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias; `out` may be `x`,
  /// `bias` null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                     float* out);
  /// x = x * Phi(x), by erf
  void (*gelu_erf)(float* x, int64_t n);
  /// The same, approximated by tanh.
  void (*gelu_tanh)(float* x, int64_t n);
  /// x *= sigmoid(gate); `alone`: x = sigmoid(gate)
  void (*sigmoid_gate)(const float* gate, int64_t n, bool alone, float* x);
  /// x = max(x, 0)^2; 0 for NaN
  void (*relu_squared)(float* x, int64_t n);
  /// Rounds to nearest even.
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);
};

extern const RowKernels kRowPlain;
extern const RowKernels kRowAvx2;
extern const RowKernels kRowAvx512;
extern const RowKernels kRowNeon;

}  // namespace hearth::kernels
