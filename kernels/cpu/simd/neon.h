#pragma once
// Vectors of 4 floats for AArch64: four of them form the 16 logical lanes. Every such CPU has fused
// multiply-add and conversions of f16; dot products of bytes (ARMv8.2 dotprod) are used if the file
// is built for them. See kernels/cpu/simd/avx512.h; results are the same to the bit, except for the
// bits of a NaN.
//
// Tiles are sized for 32 registers of 128 bits: 6 token rows times 2 vectors of outputs are 12
// integer and 12 float sums, next to 2 registers of weights and 1 or 2 of activations (one load
// covers 4 rows). Without dotprod an integer sum takes two registers, and the floats stay in
// memory: that is still fewer instructions per product than half as many sums (2.1 instead of 2.4
// for Q8_0). For f32 weights, 6 rows times the 4 vectors of a group are 24 sums next to 4 registers
// of weights.

#include <arm_neon.h>

#include <cstdint>

#define HEARTH_SIMD inline __attribute__((always_inline))
#define HEARTH_SIMD_LAMBDA __attribute__((always_inline))

namespace hearth::kernels {
namespace {

using F = float32x4_t;
using I = int32x4_t;
constexpr int kLanes = 4;
constexpr int kRegisters = 32;
constexpr int kMaxTile = 6;
constexpr int kManyTile = 6;
constexpr int kColumns1 = 8;
constexpr int kColumnsN = 4;
constexpr int kDotChains = 12;

HEARTH_SIMD F zero() { return vdupq_n_f32(0.0f); }
HEARTH_SIMD F set1(float x) { return vdupq_n_f32(x); }
HEARTH_SIMD F load(const float* p) { return vld1q_f32(p); }
HEARTH_SIMD F load_partial(const float* p, int n) {
  float copy[4] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return vld1q_f32(copy);
}
HEARTH_SIMD void store(float* p, F x) { vst1q_f32(p, x); }
HEARTH_SIMD void store_partial(float* p, F x, int n) {
  float copy[4];
  vst1q_f32(copy, x);
  for (int i = 0; i < n; ++i) p[i] = copy[i];
}
HEARTH_SIMD uint16x4_t load_halves_partial(const uint16_t* p, int n) {
  uint16_t copy[4] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return vld1_u16(copy);
}
HEARTH_SIMD F widen_f16(uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
HEARTH_SIMD F load_f16(const uint16_t* p) { return widen_f16(vld1_u16(p)); }
HEARTH_SIMD F load_f16_partial(const uint16_t* p, int n) {
  return widen_f16(load_halves_partial(p, n));
}
HEARTH_SIMD F widen_bf16(uint16x4_t x) { return vreinterpretq_f32_u32(vshll_n_u16(x, 16)); }
HEARTH_SIMD F load_bf16(const uint16_t* p) { return widen_bf16(vld1_u16(p)); }
HEARTH_SIMD F load_bf16_partial(const uint16_t* p, int n) {
  return widen_bf16(load_halves_partial(p, n));
}
HEARTH_SIMD void store_f16(uint16_t* p, F x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

HEARTH_SIMD F add(F a, F b) { return vaddq_f32(a, b); }
HEARTH_SIMD F sub(F a, F b) { return vsubq_f32(a, b); }
HEARTH_SIMD F mul(F a, F b) { return vmulq_f32(a, b); }
HEARTH_SIMD F div(F a, F b) { return vdivq_f32(a, b); }
// Not vmaxq_f32, which returns NaN if either is NaN.
HEARTH_SIMD F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
HEARTH_SIMD F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
HEARTH_SIMD F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
HEARTH_SIMD float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HEARTH_SIMD F zero_below(F x, F limit, F value) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(x, limit)));
}
HEARTH_SIMD F exp2_of_shifted(F t) {
  const uint32x4_t bits = vshlq_n_u32(vreinterpretq_u32_f32(t), 23);
  return vreinterpretq_f32_u32(vaddq_u32(bits, vdupq_n_u32(0x3f800000)));
}
HEARTH_SIMD F times_exp2_of_shifted(F x, F t) {
  const uint32x4_t bits = vshlq_n_u32(vreinterpretq_u32_f32(t), 23);
  return vreinterpretq_f32_u32(vaddq_u32(bits, vreinterpretq_u32_f32(x)));
}

template <int kDistance>
HEARTH_SIMD F swapped(F x) {
  if constexpr (kDistance == 2) return vextq_f32(x, x, 2);
  return vrev64q_f32(x);
}

HEARTH_SIMD float sum16(const F (&x)[4]) {
  const F four = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
HEARTH_SIMD float max16(const F (&x)[4]) {
  const F four = max(max(x[0], x[2]), max(x[1], x[3]));
  const float even = four[0] > four[2] ? four[0] : four[2];
  const float odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}
HEARTH_SIMD float first(F x) { return vgetq_lane_f32(x, 0); }

HEARTH_SIMD I magnitude(F x) {
  return vandq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(0x7fffffff));
}
HEARTH_SIMD I max_ints(I a, I b) { return vmaxq_s32(a, b); }
HEARTH_SIMD int32_t max16(const I (&x)[4]) {
  return vmaxvq_s32(max_ints(max_ints(x[0], x[1]), max_ints(x[2], x[3])));
}
HEARTH_SIMD int32_t sum16(const I (&x)[4]) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x[0], x[1]), vaddq_s32(x[2], x[3])));
}
HEARTH_SIMD I rounded(F x) { return vcvtnq_s32_f32(x); }
HEARTH_SIMD void store_i8(int8_t* p, I x) {
  const int16x4_t halves = vmovn_s32(x);
  const int8x8_t bytes = vmovn_s16(vcombine_s16(halves, halves));
  const int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
  __builtin_memcpy(p, &four, sizeof four);
}

using B = uint8x16_t;
struct alignas(16) CodeTable {
  uint8_t values[16];
};
HEARTH_SIMD B load_raw(const uint8_t* p) { return vld1q_u8(p); }
HEARTH_SIMD void store_raw(uint8_t* p, B x) { vst1q_u8(p, x); }
HEARTH_SIMD B and_bytes(B x, int mask) {
  return vandq_u8(x, vdupq_n_u8(static_cast<uint8_t>(mask)));
}
HEARTH_SIMD B or_bytes(B a, B b) { return vorrq_u8(a, b); }
HEARTH_SIMD B add_bytes(B x, int n) { return vaddq_u8(x, vdupq_n_u8(static_cast<uint8_t>(n))); }
template <int kBits>
HEARTH_SIMD B shift_bytes(B x) {
  if constexpr (kBits > 0) return vshrq_n_u8(x, kBits);
  if constexpr (kBits < 0) return vshlq_n_u8(x, -kBits);
  return x;
}
HEARTH_SIMD B lookup(B code, const CodeTable& table) {
  return vqtbl1q_u8(vld1q_u8(table.values), code);
}

HEARTH_SIMD I load_u8(const uint8_t* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}
HEARTH_SIMD I load_i8(const uint8_t* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(four));
  return vmovl_s16(vget_low_s16(vmovl_s8(bytes)));
}
HEARTH_SIMD I and_ints(I x, int mask) { return vandq_s32(x, vdupq_n_s32(mask)); }
HEARTH_SIMD I shift_ints(I x, int right) {  // for values that are not negative
  return vshlq_s32(x, vdupq_n_s32(-right));
}
HEARTH_SIMD I or_ints(I low, I high, int left) {
  return vorrq_s32(low, vshlq_s32(high, vdupq_n_s32(left)));
}
template <int kBit>
HEARTH_SIMD B where_set(I x, char value) {
  return and_bytes(vreinterpretq_u8_u32(vtstq_s32(x, vdupq_n_s32(1 << kBit))), value);
}
HEARTH_SIMD I minus_32(I x) { return vsubq_s32(x, vdupq_n_s32(32)); }
HEARTH_SIMD I bits_of(F x) { return vreinterpretq_s32_f32(x); }
HEARTH_SIMD F to_float(I x) { return vcvtq_f32_s32(x); }
HEARTH_SIMD F minus_product(F a, F b) { return vnegq_f32(vmulq_f32(a, b)); }
HEARTH_SIMD F load_e8m0(const uint8_t* p) {
  const I e = load_u8(p);
  const I normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
  const I small = vshlq_s32(vdupq_n_s32(0x00200000), e);
  return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), small, normal));
}
HEARTH_SIMD F load_ue4m3(const uint8_t* p) {
  const uint16x4_t wide = vmovn_u32(vreinterpretq_u32_s32(and_ints(load_u8(p), 127)));
  return vmulq_f32(widen_f16(vshl_n_u16(wide, 7)), vdupq_n_f32(128));
}
HEARTH_SIMD F load_e4m3(const uint8_t* p) {
  return vreinterpretq_f32_s32(and_ints(vshlq_n_s32(load_i8(p), 20), -0x78100000));
}

// Both factors of a product are signed bytes here. Wide weights lose their offset by one xor when
// loaded, narrow ones when unpacked; those read as stored are below 128, so the byte is the same
// either way, and their sums start as in the other headers.
constexpr int kNarrowOffset = 0;
constexpr bool kPairSums = false;
template <bool kWide>
HEARTH_SIMD int8x16_t dot_operand(B stored) {
  return vreinterpretq_s8_u8(kWide ? veorq_u8(stored, vdupq_n_u8(0x80)) : stored);
}
template <int kOffset, bool kWide>
constexpr bool kStartsAtZero = kOffset == 0 || kWide;
/// x, a multiple of 128, scaled by kOffset / 128.
template <int kOffset>
HEARTH_SIMD int32_t of_offset(int32_t x) {
  return x >> (7 - __builtin_ctz(kOffset));
}
#ifdef __ARM_FEATURE_DOTPROD
using Sum = I;
template <int kOffset, bool kWide>
HEARTH_SIMD Sum dot_start(int32_t minus_128_sum) {
  if constexpr (kStartsAtZero<kOffset, kWide>)
    return vdupq_n_s32(0);
  else
    return vdupq_n_s32(of_offset<kOffset>(minus_128_sum));
}
/// One of the four fours in a load, selected by the instruction. `lane` is a constant once loops
/// are unrolled.
struct Four {
  int8x16_t fours;
  int lane;
};
HEARTH_SIMD Four load_four(const int8_t* block, int index) {
  return {vld1q_s8(block + index / 4 * 16), index % 4};
}
HEARTH_SIMD Sum dot4(Sum sum, int8x16_t w, Four x) {
  switch (x.lane) {
    case 0: return vdotq_laneq_s32(sum, w, x.fours, 0);
    case 1: return vdotq_laneq_s32(sum, w, x.fours, 1);
    case 2: return vdotq_laneq_s32(sum, w, x.fours, 2);
    default: return vdotq_laneq_s32(sum, w, x.fours, 3);
  }
}
#else
/// Lanes 2 i and 2 i + 1 of `low` followed by `high` belong to output i.
struct Sum {
  int32x4_t low;
  int32x4_t high;
};
HEARTH_SIMD F to_float(Sum x) { return vcvtq_f32_s32(vpaddq_s32(x.low, x.high)); }
template <int kOffset, bool kWide>
HEARTH_SIMD Sum dot_start(int32_t minus_128_sum) {
  if constexpr (kStartsAtZero<kOffset, kWide>)
    return {vdupq_n_s32(0), vdupq_n_s32(0)};
  else {
    const int64_t even = static_cast<uint32_t>(of_offset<kOffset>(minus_128_sum));
    const int32x4_t start = vreinterpretq_s32_s64(vdupq_n_s64(even));
    return {start, start};
  }
}
using Four = int8x16_t;
HEARTH_SIMD Four load_four(const int8_t* block, int index) {
  int32_t x;
  __builtin_memcpy(&x, block + index * 4, sizeof x);
  return vreinterpretq_s8_s32(vdupq_n_s32(x));
}
HEARTH_SIMD Sum dot4(Sum sum, int8x16_t w, Four x) {
  return {vpadalq_s16(sum.low, vmull_s8(vget_low_s8(w), vget_low_s8(x))),
          vpadalq_s16(sum.high, vmull_high_s8(w, x))};
}
#endif

/// The first, and the second, number of each pair.
struct Pairs {
  int16x4_t first;
  int16x4_t second;
};
HEARTH_SIMD I load_ints(const int32_t* p) { return vld1q_s32(p); }
using Halves = int16x8_t;
HEARTH_SIMD Halves low_halves(I a, I b) { return vcombine_s16(vmovn_s32(a), vmovn_s32(b)); }
HEARTH_SIMD Halves load_halves(const int16_t* p) { return vld1q_s16(p); }
HEARTH_SIMD void store_halves(int16_t* p, Halves x) { vst1q_s16(p, x); }
HEARTH_SIMD Halves multiply(Halves a, Halves b) { return vqrdmulhq_s16(a, b); }
HEARTH_SIMD Pairs load_pairs(const int16_t* p) { return {vld1_s16(p), vld1_s16(p + 4)}; }
HEARTH_SIMD void store_pairs(int16_t* p, Pairs x) {
  vst1_s16(p, x.first);
  vst1_s16(p + 4, x.second);
}
HEARTH_SIMD Pairs divided(int16x8_t x) {
  return {vget_low_s16(vuzp1q_s16(x, x)), vget_low_s16(vuzp2q_s16(x, x))};
}
HEARTH_SIMD Pairs load_pairs_i8(const int8_t* p) { return divided(vmovl_s8(vld1_s8(p))); }
HEARTH_SIMD Pairs load_low_pairs(const uint8_t* p) {
  const uint8x8_t codes = vand_u8(vld1_u8(p), vdup_n_u8(15));
  return divided(vreinterpretq_s16_u16(vsubl_u8(codes, vdup_n_u8(8))));
}
HEARTH_SIMD Pairs load_high_pairs(const uint8_t* p) {
  const uint8x8_t codes = vshr_n_u8(vld1_u8(p), 4);
  return divided(vreinterpretq_s16_u16(vsubl_u8(codes, vdup_n_u8(8))));
}
using Pair = int16x4_t;
HEARTH_SIMD Pair load_pair(const int16_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return vreinterpret_s16_s32(vdup_n_s32(x));
}
HEARTH_SIMD I no_sum() { return vdupq_n_s32(0); }
HEARTH_SIMD I dot2(I sum, Pairs a, Pair b) {
  return vmlal_lane_s16(vmlal_lane_s16(sum, a.first, b, 0), a.second, b, 1);
}

}  // namespace
}  // namespace hearth::kernels
