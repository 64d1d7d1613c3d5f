#pragma once
// Vectors of 4 floats in the compiler's portable vector extension, for any CPU. See simd_avx512.h.
// A baseline x86-64 has no fused multiply-add and libm's is slow, so fma here multiplies and adds
// in double (the product is exact) and rounds the sum to f32. Nearly always that is the same bit,
// but not always: the plain table has a numerics_id of its own.

#include <cstdint>

#include "kernels/half.h"

#define HEARTH_SIMD inline __attribute__((always_inline))

namespace hearth::kernels {
namespace {

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kMaxTile = 2;
constexpr int kMaxRows = 4;
constexpr int kColumns1 = 4;
constexpr int kColumnsN = 4;

HEARTH_SIMD F zero() { return F{}; }
HEARTH_SIMD F set1(float x) { return F{x, x, x, x}; }
HEARTH_SIMD F load(const float* p) { return F{p[0], p[1], p[2], p[3]}; }
HEARTH_SIMD F load_partial(const float* p, int n) {
  F x{};
  for (int i = 0; i < n; ++i) x[i] = p[i];
  return x;
}
HEARTH_SIMD void store(float* p, F x) { __builtin_memcpy(p, &x, sizeof x); }
HEARTH_SIMD void store_partial(float* p, F x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x[i];
}
// Not inlined: the conversions are long, and their callers unroll.
[[maybe_unused]] __attribute__((noinline)) F load_f16_partial(const uint16_t* p, int n) {
  F x{};
  for (int i = 0; i < n; ++i) x[i] = f32_from_f16(p[i]);
  return x;
}
HEARTH_SIMD F load_f16(const uint16_t* p) { return load_f16_partial(p, kLanes); }
[[maybe_unused]] __attribute__((noinline)) F load_bf16_partial(const uint16_t* p, int n) {
  F x{};
  for (int i = 0; i < n; ++i) x[i] = f32_from_bf16(p[i]);
  return x;
}
HEARTH_SIMD F load_bf16(const uint16_t* p) { return load_bf16_partial(p, kLanes); }
[[maybe_unused]] __attribute__((noinline)) void store_f16(uint16_t* p, F x) {
  for (int i = 0; i < kLanes; ++i) p[i] = f16_from_f32(x[i]);
}

HEARTH_SIMD F add(F a, F b) { return a + b; }
HEARTH_SIMD F sub(F a, F b) { return a - b; }
HEARTH_SIMD F mul(F a, F b) { return a * b; }
HEARTH_SIMD F div(F a, F b) { return a / b; }
HEARTH_SIMD F max(F a, F b) { return a > b ? a : b; }
HEARTH_SIMD F min(F a, F b) { return a < b ? a : b; }
HEARTH_SIMD F fma(F a, F b, F c) {
  typedef double D __attribute__((vector_size(32)));
  const D product = __builtin_convertvector(a, D) * __builtin_convertvector(b, D);
  return __builtin_convertvector(product + __builtin_convertvector(c, D), F);
}
HEARTH_SIMD float fma(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * b + c);
}
HEARTH_SIMD F zero_below(F x, F limit, F value) { return x < limit ? F{} : value; }
HEARTH_SIMD F exp2_of_shifted(F t) {
  typedef uint32_t U __attribute__((vector_size(16)));
  return reinterpret_cast<F>((reinterpret_cast<U>(t) << 23) + 0x3f800000u);
}

HEARTH_SIMD float sum16(const F (&x)[4]) {
  const F four = (x[0] + x[2]) + (x[1] + x[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}
HEARTH_SIMD float max16(const F (&x)[4]) {
  const F four = max(max(x[0], x[2]), max(x[1], x[3]));
  const float even = four[0] > four[2] ? four[0] : four[2];
  const float odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}
HEARTH_SIMD float first(F x) { return x[0]; }

struct Bytes {
  const uint8_t* plus_128;
};
HEARTH_SIMD Bytes load_bytes(const uint8_t* p) { return {p}; }
HEARTH_SIMD I dot_start(int32_t minus_128_sum) {
  return I{minus_128_sum, minus_128_sum, minus_128_sum, minus_128_sum};
}
HEARTH_SIMD I dot4(I sum, Bytes w, const int8_t* x4) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint8_t* p = w.plus_128 + 4 * lane;
    sum[lane] += p[0] * x4[0] + p[1] * x4[1] + p[2] * x4[2] + p[3] * x4[3];
  }
  return sum;
}
HEARTH_SIMD F to_float(I x) { return __builtin_convertvector(x, F); }

}  // namespace
}  // namespace hearth::kernels
