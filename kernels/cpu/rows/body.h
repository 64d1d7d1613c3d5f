#pragma once
// The row kernels, written once against the simd_*.h vocabulary, compiled per instruction set.

#include "kernels/cpu/rows/kernels.h"
#include "kernels/cpu/simd/math.h"

namespace hearth::kernels {
namespace {

/// Calls step(offset, n) for full registers of n = kLanes values, and once more for the remainder.
template <typename Step>
HEARTH_SIMD void for_lanes(int64_t n, const Step& step) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kLanes);
  if (i < n) step(i, static_cast<int>(n - i));
}

HEARTH_SIMD F load_n(const float* p, int n) { return n == kLanes ? load(p) : load_partial(p, n); }
HEARTH_SIMD void store_n(float* p, F x, int n) {
  if (n == kLanes) {
    store(p, x);
  } else {
    store_partial(p, x, n);
  }
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  // Lane i of the 16 sums the squares of x[i], x[i + 16], ...
  F squares[kParts];
  for (F& s : squares) s = zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int p = 0; p < kParts; ++p) {
      const F v = load(x + i + p * kLanes);
      squares[p] = fma(v, v, squares[p]);
    }
  }
  if (i < n) {
    float rest[16] = {};
    for (int64_t j = i; j < n; ++j) rest[j - i] = x[j];
    for (int p = 0; p < kParts; ++p) {
      const F v = load(rest + p * kLanes);
      squares[p] = fma(v, v, squares[p]);
    }
  }
  const float mean = sum16(squares) / static_cast<float>(n);
  const F scale = set1(1.0f / __builtin_sqrtf(mean + eps));
  for_lanes(n, [&](int64_t at, int lanes) {
    store_n(out + at, mul(mul(load_n(x + at, lanes), scale), load_n(weight + at, lanes)), lanes);
  });
}

HEARTH_SIMD F sigmoid(F x) { return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), x)))); }

void silu_gate(const float* gate, const float* up, int64_t n, float* out) {
  for_lanes(n, [&](int64_t at, int lanes) {
    const F x = load_n(gate + at, lanes);
    store_n(out + at, mul(mul(x, sigmoid(x)), load_n(up + at, lanes)), lanes);
  });
}

/// (1 + tanh(u)) / 2 is sigmoid(2 u), with 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
HEARTH_SIMD F gelu_by_tanh(F x) {
  const F cubic = fma(mul(mul(x, x), set1(0.044715f)), x, x);
  return mul(x, sigmoid(mul(cubic, set1(1.59576912f))));
}

void gelu_gate(const float* gate, const float* up, int64_t n, float* out) {
  for_lanes(n, [&](int64_t at, int lanes) {
    const F act = gelu_by_tanh(load_n(gate + at, lanes));
    store_n(out + at, mul(act, load_n(up + at, lanes)), lanes);
  });
}

void gelu_tanh(float* x, int64_t n) {
  for_lanes(n, [&](int64_t at, int lanes) {
    store_n(x + at, gelu_by_tanh(load_n(x + at, lanes)), lanes);
  });
}

void sigmoid_gate(const float* gate, int64_t n, bool alone, float* x) {
  for_lanes(n, [&](int64_t at, int lanes) {
    const F share = sigmoid(load_n(gate + at, lanes));
    store_n(x + at, alone ? share : mul(load_n(x + at, lanes), share), lanes);
  });
}

void relu_squared(float* x, int64_t n) {
  for_lanes(n, [&](int64_t at, int lanes) {
    const F kept = max(load_n(x + at, lanes), zero());
    store_n(x + at, mul(kept, kept), lanes);
  });
}

void clamped_swish_gate(const float* gate, const float* up, int64_t n, float* out) {
  const auto at_most = [](F x, float most) {
    return sub(zero(), max(sub(zero(), x), set1(-most)));
  };
  for_lanes(n, [&](int64_t at, int lanes) {
    const F x = at_most(load_n(gate + at, lanes), 7.0f);
    const F y = at_most(max(load_n(up + at, lanes), set1(-7.0f)), 7.0f);
    const F act = mul(x, sigmoid(mul(x, set1(1.702f))));
    store_n(out + at, mul(act, add(y, set1(1.0f))), lanes);
  });
}

// Scalar, element by element, so that vectorizing cannot change a bit.

void rope_neighbours(float* x, const float* cos_sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    const float c = cos_sin[2 * i];
    const float s = cos_sin[2 * i + 1];
    x[2 * i] = fma(a, c, -(b * s));
    x[2 * i + 1] = fma(b, c, a * s);
  }
}

void rope_halves(float* x, const float* cos_sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[i];
    const float b = x[i + pairs];
    const float c = cos_sin[2 * i];
    const float s = cos_sin[2 * i + 1];
    x[i] = fma(a, c, -(b * s));
    x[i + pairs] = fma(b, c, a * s);
  }
}

void add_bias(const float* bias, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] += bias[i];
}

void combine(const float* x, int64_t stride, const float* weights, int32_t count, int64_t n,
             float* out) {
  for_lanes(n, [&](int64_t at, int lanes) {
    F sum = zero();
    for (int32_t j = 0; j < count; ++j) {
      sum = fma(set1(weights[j]), load_n(x + j * stride + at, lanes), sum);
    }
    store_n(out + at, add(load_n(out + at, lanes), sum), lanes);
  });
}

void add_scaled(const float* x, float scale, int64_t n, float* out) {
  for_lanes(n, [&](int64_t at, int lanes) {
    store_n(out + at, fma(load_n(x + at, lanes), set1(scale), load_n(out + at, lanes)), lanes);
  });
}

void soft_cap(float* x, int64_t n, float scale, float cap) {
  for_lanes(n, [&](int64_t at, int lanes) {
    F value = mul(load_n(x + at, lanes), set1(scale));
    if (cap > 0) value = mul(tanh(div(value, set1(cap))), set1(cap));
    store_n(x + at, value, lanes);
  });
}

/// The sum of step(x[i]) over i; lane i of the 16 sums x[i], x[i + 16], ... The end is padded with
/// `fill`, for which step() must return 0.
template <typename Step>
HEARTH_SIMD float sum_of(const float* x, int64_t n, float fill, const Step& step) {
  F sums[kParts];
  for (F& s : sums) s = zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int p = 0; p < kParts; ++p) sums[p] = step(load(x + i + p * kLanes), sums[p]);
  }
  if (i < n) {
    float rest[16];
    for (float& r : rest) r = fill;
    for (int64_t j = i; j < n; ++j) rest[j - i] = x[j];
    for (int p = 0; p < kParts; ++p) sums[p] = step(load(rest + p * kLanes), sums[p]);
  }
  return sum16(sums);
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                float* out) {
  const float count = static_cast<float>(n);
  const float mean = sum_of(x, n, 0.0f, [](F v, F sum) { return add(sum, v); }) / count;
  const F center = set1(mean);
  const float variance = sum_of(x, n, mean,
                                [&](F v, F sum) {
                                  const F d = sub(v, center);
                                  return fma(d, d, sum);
                                }) /
                         count;
  const F scale = set1(1.0f / __builtin_sqrtf(variance + eps));
  for_lanes(n, [&](int64_t at, int lanes) {
    const F normed = mul(sub(load_n(x + at, lanes), center), scale);
    const F shift = bias == nullptr ? zero() : load_n(bias + at, lanes);
    store_n(out + at, fma(normed, load_n(weight + at, lanes), shift), lanes);
  });
}

void gelu_erf(float* x, int64_t n) {
  // x Phi(x) = max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2; erfc by Abramowitz and Stegun 7.1.26, whose
  // error is at most 1.5e-7.
  for_lanes(n, [&](int64_t at, int lanes) {
    const F value = load_n(x + at, lanes);
    const F size = max(value, sub(zero(), value));
    const F z = mul(size, set1(0.707106781f));
    const F t = div(set1(1.0f), fma(z, set1(0.3275911f), set1(1.0f)));
    F p = set1(1.061405429f);
    p = fma(p, t, set1(-1.453152027f));
    p = fma(p, t, set1(1.421413741f));
    p = fma(p, t, set1(-0.284496736f));
    p = fma(p, t, set1(0.254829592f));
    const F tail = mul(mul(p, t), exp(sub(zero(), mul(z, z))));
    const F below = mul(mul(size, set1(0.5f)), tail);
    store_n(x + at, sub(max(value, zero()), below), lanes);
  });
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  for_lanes(n, [&](int64_t at, int lanes) {
    if (lanes == kLanes) return store_f16(out + at, load(x + at));
    uint16_t rest[kLanes];
    store_f16(rest, load_partial(x + at, lanes));
    for (int i = 0; i < lanes; ++i) out[at + i] = rest[i];
  });
}

constexpr RowKernels row_kernels() {
  return {rms_norm,        silu_gate,    gelu_gate,    clamped_swish_gate,
          rope_neighbours, rope_halves,  add_bias,     combine,
          add_scaled,      soft_cap,     layer_norm,   gelu_erf,
          gelu_tanh,       sigmoid_gate, relu_squared, to_f16};
}

}  // namespace

constinit const RowKernels HEARTH_OF_SET(kRow) = row_kernels();

}  // namespace hearth::kernels
