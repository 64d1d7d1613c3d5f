#pragma once
// Vectors of 4 floats in the compiler's portable vector extension, for any CPU. See
// kernels/cpu/simd/avx512.h. A baseline x86-64 has no fused multiply-add and libm's is slow, so fma
// here multiplies and adds in double (the product is exact) and rounds the sum to f32. This nearly
// always gives the same bits, but not always, so the plain table has its own numerics_id.

#include <cstdint>

#include "kernels/ops/half.h"

#define HEARTH_SIMD inline __attribute__((always_inline))
#define HEARTH_SIMD_LAMBDA __attribute__((always_inline))

namespace hearth::kernels {
namespace {

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kRegisters = 16;
constexpr int kMaxTile = 2;
constexpr int kManyTile = 2;
constexpr int kColumns1 = 4;
constexpr int kColumnsN = 4;
constexpr int kDotChains = 2;

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
// Not inlined, because the conversions are long and their callers unroll.
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
HEARTH_SIMD F times_exp2_of_shifted(F x, F t) {
  typedef uint32_t U __attribute__((vector_size(16)));
  return reinterpret_cast<F>((reinterpret_cast<U>(t) << 23) + reinterpret_cast<U>(x));
}

template <int kDistance>
HEARTH_SIMD F swapped(F x) {
  if constexpr (kDistance == 2) return F{x[2], x[3], x[0], x[1]};
  return F{x[1], x[0], x[3], x[2]};
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

HEARTH_SIMD I magnitude(F x) { return reinterpret_cast<I>(x) & 0x7fffffff; }
HEARTH_SIMD I max_ints(I a, I b) { return a > b ? a : b; }
HEARTH_SIMD int32_t max16(const I (&x)[4]) {
  const I four = max_ints(max_ints(x[0], x[1]), max_ints(x[2], x[3]));
  const int32_t low = four[0] > four[1] ? four[0] : four[1];
  const int32_t high = four[2] > four[3] ? four[2] : four[3];
  return low > high ? low : high;
}
HEARTH_SIMD int32_t sum16(const I (&x)[4]) {
  const I four = x[0] + x[1] + x[2] + x[3];
  return four[0] + four[1] + four[2] + four[3];
}
HEARTH_SIMD I rounded(F x) {
  return reinterpret_cast<I>(x + 12582912.0f) - 0x4b400000;  // 1.5 * 2^23: its last bit is worth 1
}
HEARTH_SIMD void store_i8(int8_t* p, I x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(x[i]);
}

typedef uint8_t B __attribute__((vector_size(16)));
struct CodeTable {
  uint8_t values[16];
};
HEARTH_SIMD B load_raw(const uint8_t* p) {
  B x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
HEARTH_SIMD void store_raw(uint8_t* p, B x) { __builtin_memcpy(p, &x, sizeof x); }
HEARTH_SIMD B and_bytes(B x, int mask) { return x & static_cast<uint8_t>(mask); }
HEARTH_SIMD B or_bytes(B a, B b) { return a | b; }
HEARTH_SIMD B add_bytes(B x, int n) { return x + static_cast<uint8_t>(n); }
template <int kBits>
HEARTH_SIMD B shift_bytes(B x) {
  if constexpr (kBits > 0) return x >> kBits;
  if constexpr (kBits < 0) return x << -kBits;
  return x;
}
HEARTH_SIMD B lookup(B code, const CodeTable& table) {
  B x;
  for (int i = 0; i < 16; ++i) x[i] = table.values[code[i]];
  return x;
}

HEARTH_SIMD I load_u8(const uint8_t* p) { return I{p[0], p[1], p[2], p[3]}; }
HEARTH_SIMD I load_i8(const uint8_t* p) {
  return I{static_cast<int8_t>(p[0]), static_cast<int8_t>(p[1]), static_cast<int8_t>(p[2]),
           static_cast<int8_t>(p[3])};
}
HEARTH_SIMD I and_ints(I x, int mask) { return x & mask; }
HEARTH_SIMD I shift_ints(I x, int right) { return x >> right; }  // for values that are not negative
HEARTH_SIMD I or_ints(I low, I high, int left) { return low | (high << left); }
template <int kBit>
HEARTH_SIMD B where_set(I x, char value) {
  return and_bytes(reinterpret_cast<B>(-(x >> kBit & 1)), value);
}
HEARTH_SIMD I minus_32(I x) { return x - 32; }
HEARTH_SIMD I bits_of(F x) { return reinterpret_cast<I>(x); }
HEARTH_SIMD F to_float(I x) { return __builtin_convertvector(x, F); }
HEARTH_SIMD F minus_product(F a, F b) { return -(a * b); }
[[maybe_unused]] __attribute__((noinline)) F load_e8m0(const uint8_t* p) {
  F x;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t bits = p[i] < 2 ? 0x00200000u << p[i] : static_cast<uint32_t>(p[i] - 1) << 23;
    x[i] = __builtin_bit_cast(float, bits);
  }
  return x;
}
HEARTH_SIMD F load_ue4m3(const uint8_t* p) {
  return reinterpret_cast<F>((load_u8(p) & 127) << 20) * 0x1p119f;
}
HEARTH_SIMD F load_e4m3(const uint8_t* p) {
  const I x = load_i8(p);
  return reinterpret_cast<F>((x & 127) << 20 | (x & INT32_MIN));
}

constexpr int kNarrowOffset = 128;
constexpr bool kPairSums = false;
template <int kOffset, bool kWide>
HEARTH_SIMD I dot_start(int32_t minus_128_sum) {
  if constexpr (kOffset == 0) return I{};
  const int32_t start = minus_128_sum / (128 / (kOffset + (kOffset == 0)));
  return I{start, start, start, start};
}
template <bool kWide>
HEARTH_SIMD B dot_operand(B stored) {
  return stored;
}
using Sum = I;
using Four = const int8_t*;
HEARTH_SIMD Four load_four(const int8_t* block, int index) { return block + index * 4; }
HEARTH_SIMD I dot4(I sum, B w, Four x4) {
  for (int lane = 0; lane < kLanes; ++lane) {
    sum[lane] += w[4 * lane] * x4[0] + w[4 * lane + 1] * x4[1] + w[4 * lane + 2] * x4[2] +
                 w[4 * lane + 3] * x4[3];
  }
  return sum;
}

typedef int16_t Pairs __attribute__((vector_size(16)));
HEARTH_SIMD I load_ints(const int32_t* p) { return I{p[0], p[1], p[2], p[3]}; }
using Halves = Pairs;
HEARTH_SIMD int16_t low_half(int32_t x) { return static_cast<int16_t>(x); }
HEARTH_SIMD Halves low_halves(I a, I b) {
  Halves x;
  for (int i = 0; i < kLanes; ++i) {
    x[i] = low_half(a[i]);
    x[kLanes + i] = low_half(b[i]);
  }
  return x;
}
HEARTH_SIMD Halves load_halves(const int16_t* p) {
  Halves x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
HEARTH_SIMD void store_halves(int16_t* p, Halves x) { __builtin_memcpy(p, &x, sizeof x); }
HEARTH_SIMD Halves multiply(Halves a, Halves b) {
  Halves x;
  for (int i = 0; i < 2 * kLanes; ++i) x[i] = low_half((a[i] * b[i] + 16384) >> 15);
  return x;
}
HEARTH_SIMD Pairs load_pairs(const int16_t* p) { return load_halves(p); }
HEARTH_SIMD void store_pairs(int16_t* p, Pairs x) { store_halves(p, x); }
HEARTH_SIMD Pairs load_pairs_i8(const int8_t* p) {
  Pairs x;
  for (int i = 0; i < 2 * kLanes; ++i) x[i] = p[i];
  return x;
}
HEARTH_SIMD Pairs load_low_pairs(const uint8_t* p) {
  Pairs x;
  for (int i = 0; i < 2 * kLanes; ++i) x[i] = (p[i] & 15) - 8;
  return x;
}
HEARTH_SIMD Pairs load_high_pairs(const uint8_t* p) {
  Pairs x;
  for (int i = 0; i < 2 * kLanes; ++i) x[i] = (p[i] >> 4) - 8;
  return x;
}
using Pair = const int16_t*;
HEARTH_SIMD Pair load_pair(const int16_t* p) { return p; }
HEARTH_SIMD I no_sum() { return I{}; }
HEARTH_SIMD I dot2(I sum, Pairs a, Pair b) {
  for (int i = 0; i < kLanes; ++i) sum[i] += a[2 * i] * b[0] + a[2 * i + 1] * b[1];
  return sum;
}

}  // namespace
}  // namespace hearth::kernels
