#pragma once
// Helpers for kernel bodies on top of the simd_*.h vocabulary: the 16 logical lanes, exp and tanh.
// Include after one of those headers. Every CPU runs the same sequence of operations, so that the
// fused variants agree to the bit.

#include <utility>

namespace hearth::kernels {
namespace {

constexpr int kParts = 16 / kLanes;  // registers that hold the 16 logical lanes

/// Of a square whose rows a and b are kDistance apart: exchanges a's lanes that have the bit of
/// kDistance with b's that have not.
template <int kDistance, int... kLane>
HEARTH_SIMD void exchange(F& a, F& b, std::integer_sequence<int, kLane...>) {
  const F upper =
      __builtin_shufflevector(a, b, (kLane & kDistance ? kLanes + (kLane ^ kDistance) : kLane)...);
  b = __builtin_shufflevector(a, b, (kLane & kDistance ? kLanes + kLane : kLane ^ kDistance)...);
  a = upper;
}
template <int kDistance = kLanes / 2>
HEARTH_SIMD void transpose(F (&square)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kDistance) != 0) continue;
    exchange<kDistance>(square[i], square[i + kDistance],
                        std::make_integer_sequence<int, kLanes>());
  }
  if constexpr (kDistance > 1) transpose<kDistance / 2>(square);
}

/// x = n ln 2 + r with |r| <= ln 2 / 2; returns e^r - 1 and stores 2^n in `scale`. For |x| < 88.
/// The polynomial is Taylor's up to r^7: the next term is below 6e-9 of e^r.
HEARTH_SIMD F exp_minus_1_reduced(F x, F* scale) {
  const F shift = set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, half to even
  const F shifted = fma(x, set1(1.44269504f), shift);
  const F n = sub(shifted, shift);
  F r = fma(n, set1(-0.693145752f), x);  // ln 2 in two parts, the first exact times n
  r = fma(n, set1(-1.42860677e-6f), r);
  F p = set1(1.0f / 5040.0f);
  p = fma(p, r, set1(1.0f / 720.0f));
  p = fma(p, r, set1(1.0f / 120.0f));
  p = fma(p, r, set1(1.0f / 24.0f));
  p = fma(p, r, set1(1.0f / 6.0f));
  p = fma(p, r, set1(0.5f));
  *scale = exp2_of_shifted(shifted);
  return fma(mul(r, r), p, r);
}

/// e^x within 2 units in the last place; 0 below -87 (and for -infinity), e^88 above 88, NaN for
/// NaN.
HEARTH_SIMD F exp(F x) {
  const F low = set1(-87.0f);
  const F clamped = min(set1(88.0f), max(low, x));
  F scale;
  const F q = exp_minus_1_reduced(clamped, &scale);
  return zero_below(x, low, fma(q, scale, scale));
}

/// e^x for x <= 0 within 3e-6 of it, NaN for NaN; e^-20 below -20. The polynomial is Taylor's up to
/// r^5.
HEARTH_SIMD F exp_coarse(F x) {
  const F shift = set1(12582912.0f);
  const F clamped = max(set1(-20.0f), x);
  const F shifted = fma(clamped, set1(1.44269504f), shift);
  const F r = fma(sub(shifted, shift), set1(-0.693147181f), clamped);
  F p = fma(set1(1.0f / 120.0f), r, set1(1.0f / 24.0f));
  p = fma(p, r, set1(1.0f / 6.0f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return times_exp2_of_shifted(p, shifted);
}

HEARTH_SIMD F tanh(F x) {
  const F doubled = min(set1(40.0f), max(set1(-40.0f), add(x, x)));
  F scale;
  const F q = exp_minus_1_reduced(doubled, &scale);
  const F e = fma(q, scale, sub(scale, set1(1.0f)));  // e^2x - 1, exact near 0, where scale is 1
  return div(e, add(e, set1(2.0f)));
}

}  // namespace
}  // namespace hearth::kernels
