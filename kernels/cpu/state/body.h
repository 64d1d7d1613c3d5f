#pragma once
// The state kernels, written once against the simd_*.h vocabulary, compiled per instruction set.

#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/state/kernels.h"
#include "kernels/ops/wkv_constants.h"

namespace hearth::kernels {
namespace {

HEARTH_SIMD F logistic(F x) { return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), x)))); }
HEARTH_SIMD F silu(F x) { return mul(x, logistic(x)); }

void conv(const float* const* rows, const float* weight, int64_t stride, int32_t taps,
          const float* bias, bool use_silu, const float* out_gate, int64_t n, float* out) {
  for (int64_t c = 0; c < n; c += kLanes) {
    F y = bias == nullptr ? zero() : load(bias + c);
    for (int32_t j = 0; j < taps; ++j) y = fma(load(weight + j * stride + c), load(rows[j] + c), y);
    if (use_silu) y = silu(y);
    if (out_gate != nullptr) y = mul(y, load(out_gate + c));
    store(out + c, y);
  }
}

void product(const float* x, const float* gate, int64_t n, float* out) {
  for (int64_t c = 0; c < n; c += kLanes) store(out + c, mul(load(x + c), load(gate + c)));
}

/// kRegs registers of columns at once: so many chains hide the latency of fma.
template <int kRegs, bool kRowDecays>
void head_columns(float* s, int64_t stride, int32_t k_dim, const float* k, const float* q,
                  const float* v, const float* decays, float weight, bool delta, float skip,
                  float* out) {
  F keep = set1(decays[0]);
  F sums[kRegs];
  for (F& sum : sums) sum = zero();
  F w[kRegs];
  for (int r = 0; r < kRegs; ++r) w[r] = load(v + r * kLanes);
  if (delta) {
    for (int32_t i = 0; i < k_dim; ++i) {
      const F key = set1(k[i]);
      if constexpr (kRowDecays) keep = set1(decays[i]);
      float* row = s + i * stride;
      for (int r = 0; r < kRegs; ++r) {
        const F value = mul(load(row + r * kLanes), keep);
        store(row + r * kLanes, value);
        sums[r] = fma(value, key, sums[r]);
      }
    }
    for (int r = 0; r < kRegs; ++r) {
      w[r] = sub(w[r], sums[r]);
      sums[r] = zero();
    }
  }
  const F share = set1(weight);
  for (F& value : w) value = mul(value, share);
  for (int32_t i = 0; i < k_dim; ++i) {
    const F key = set1(k[i]);
    const F query = set1(q == nullptr ? 0.0f : q[i]);
    float* row = s + i * stride;
    for (int r = 0; r < kRegs; ++r) {
      F value = load(row + r * kLanes);
      if (!delta) value = mul(value, keep);
      value = fma(key, w[r], value);
      store(row + r * kLanes, value);
      sums[r] = fma(value, query, sums[r]);
    }
  }
  if (q == nullptr) return;
  const F direct = set1(skip);
  for (int r = 0; r < kRegs; ++r) {
    store(out + r * kLanes, fma(direct, load(v + r * kLanes), sums[r]));
  }
}

constexpr int kHeadRegs = kLanes >= 8 ? 4 : 2;

template <bool kRowDecays>
void head_row_by(float* s, int64_t stride, int32_t k_dim, int64_t n, const float* k, const float* q,
                 const float* v, const float* decays, float weight, bool delta, float skip,
                 float* out) {
  int64_t c = 0;
  for (; c + kHeadRegs * kLanes <= n; c += kHeadRegs * kLanes) {
    head_columns<kHeadRegs, kRowDecays>(s + c, stride, k_dim, k, q, v + c, decays, weight, delta,
                                        skip, q == nullptr ? nullptr : out + c);
  }
  for (; c < n; c += kLanes) {
    head_columns<1, kRowDecays>(s + c, stride, k_dim, k, q, v + c, decays, weight, delta, skip,
                                q == nullptr ? nullptr : out + c);
  }
}

void head_row(float* s, int64_t stride, int32_t k_dim, int64_t n, const float* k, const float* q,
              const float* v, const float* decays, bool row_decays, float weight, bool delta,
              float skip, float* out) {
  if (row_decays) {
    head_row_by<true>(s, stride, k_dim, n, k, q, v, decays, weight, delta, skip, out);
  } else {
    head_row_by<false>(s, stride, k_dim, n, k, q, v, decays, weight, delta, skip, out);
  }
}

template <int kRegs>
void erase_columns(float* s, int64_t stride, int32_t k_dim, const float* k, const float* q,
                   const float* v, const float* decays, const float* erased, const float* removed,
                   float* out) {
  F sums[kRegs], left[kRegs], values[kRegs];
  for (int r = 0; r < kRegs; ++r) {
    sums[r] = zero();
    values[r] = load(v + r * kLanes);
  }
  for (int32_t i = 0; i < k_dim; ++i) {
    const F key = set1(erased[i]);
    for (int r = 0; r < kRegs; ++r) sums[r] = fma(load(s + i * stride + r * kLanes), key, sums[r]);
  }
  for (int r = 0; r < kRegs; ++r) {
    left[r] = sub(zero(), sums[r]);
    sums[r] = zero();
  }
  for (int32_t i = 0; i < k_dim; ++i) {
    const F keep = set1(decays[i]), share = set1(removed[i]), key = set1(k[i]);
    const F query = set1(q == nullptr ? 0.0f : q[i]);
    float* row = s + i * stride;
    for (int r = 0; r < kRegs; ++r) {
      F value = fma(share, left[r], mul(load(row + r * kLanes), keep));
      value = fma(key, values[r], value);
      store(row + r * kLanes, value);
      sums[r] = fma(value, query, sums[r]);
    }
  }
  for (int r = 0; q != nullptr && r < kRegs; ++r) store(out + r * kLanes, sums[r]);
}

void erase_row(float* s, int64_t stride, int32_t k_dim, int64_t n, const float* k, const float* q,
               const float* v, const float* decays, const float* erased, const float* removed,
               float* out) {
  int64_t c = 0;
  for (; c + kHeadRegs * kLanes <= n; c += kHeadRegs * kLanes) {
    erase_columns<kHeadRegs>(s + c, stride, k_dim, k, q, v + c, decays, erased, removed,
                             q == nullptr ? nullptr : out + c);
  }
  for (; c < n; c += kLanes) {
    erase_columns<1>(s + c, stride, k_dim, k, q, v + c, decays, erased, removed,
                     q == nullptr ? nullptr : out + c);
  }
}

void channel_row(float* s, int64_t stride, int64_t d_state, int64_t n, const float* a,
                 int64_t a_stride, const float* x, const float* d, const float* b, const float* c,
                 const float* skip, float* out) {
  for (int64_t at = 0; at < n; at += kLanes) {
    const F step = load(d + at);
    const F input = load(x + at);
    const F scaled = mul(step, input);
    F sum = zero();
    for (int64_t i = 0; i < d_state; ++i) {
      float* row = s + i * stride + at;
      const F decay = exp(mul(step, load(a + i * a_stride + at)));
      const F value = fma(scaled, set1(b[i]), mul(decay, load(row)));
      store(row, value);
      if (c != nullptr) sum = fma(value, set1(c[i]), sum);
    }
    if (c != nullptr) store(out + at, fma(load(skip + at), input, sum));
  }
}

void mix_values(const float* first, const float* gate, const float* bias, int64_t n, float* v) {
  for (int64_t c = 0; c < n; c += kLanes) {
    const F value = load(v + c);
    const F share = logistic(add(load(gate + c), load(bias + c)));
    store(v + c, fma(sub(load(first + c), value), share, value));
  }
}

/// The sum of step(c, sum) over the registers of n values, in 16 lanes.
template <typename Step>
HEARTH_SIMD float lane_sum(int64_t n, const Step& step) {
  F sums[kParts];
  for (F& sum : sums) sum = zero();
  for (int64_t c = 0; c < n; c += 16) {
    for (int p = 0; p < kParts; ++p) sums[p] = step(c + p * kLanes, sums[p]);
  }
  return sum16(sums);
}

void wkv_inputs(const WkvHeadInputs& in, int64_t n) {
  const float squares = lane_sum(n, [&](int64_t c, F sum) {
    const F key = mul(load(in.k + c), load(in.erased_scale + c));
    return fma(key, key, sum);
  });
  const float length = __builtin_sqrtf(squares);
  const F scale = set1(1.0f / (length > kWkvLeastNorm ? length : kWkvLeastNorm));
  const F one = set1(1.0f);
  for (int64_t c = 0; c < n; c += kLanes) {
    const F k = load(in.k + c);
    const F key = mul(mul(k, load(in.erased_scale + c)), scale);
    const F rate = logistic(add(load(in.rate + c), load(in.rate_bias + c)));
    const F power = logistic(add(load(in.decay + c), load(in.decay_bias + c)));
    store(in.erased + c, key);
    store(in.rate + c, mul(key, rate));
    store(in.k + c, mul(k, fma(sub(rate, one), load(in.k_scale + c), one)));
    store(in.decay + c, exp(mul(set1(-kWkvDecay), power)));
  }
}

void wkv_output(const WkvHeadOutput& in, int64_t n) {
  const float width = static_cast<float>(n);
  const F bonus = set1(lane_sum(n, [&](int64_t c, F sum) {
    return fma(mul(load(in.q + c), load(in.k + c)), load(in.bonus + c), sum);
  }));
  F center = zero(), scale = set1(1.0f);
  if (in.norm != nullptr) {
    const float mean =
        lane_sum(n, [&](int64_t c, F sum) { return add(sum, load(in.y + c)); }) / width;
    center = set1(mean);
    const float squares = lane_sum(n, [&](int64_t c, F sum) {
      const F d = sub(load(in.y + c), center);
      return fma(d, d, sum);
    });
    scale = set1(1.0f / __builtin_sqrtf(squares / width + in.eps));
  }
  for (int64_t c = 0; c < n; c += kLanes) {
    F y = load(in.y + c);
    if (in.norm != nullptr) {
      y = fma(mul(sub(y, center), scale), load(in.norm + c), load(in.norm_bias + c));
    }
    y = fma(bonus, load(in.v + c), y);
    if (in.gate != nullptr) y = mul(y, load(in.gate + c));
    store(in.y + c, y);
  }
}

}  // namespace

constinit const StateKernels HEARTH_OF_SET(kState) = {
    conv, product, head_row, erase_row, channel_row, mix_values, wkv_inputs, wkv_output};

}  // namespace hearth::kernels
