#pragma once
// Vectors of 16 floats for AVX-512 (F, BW, VL, DQ), with VNNI if the file is built for it.
// kernels/cpu/simd/plain.h and kernels/cpu/simd/avx2.h define the same vocabulary; kernel bodies
// (<op>_body.h) are written once in terms of it. Included only by files built for that instruction
// set, hence all of it is internal.

#include <immintrin.h>

#include <cstdint>

#define HEARTH_SIMD inline __attribute__((always_inline))
#define HEARTH_SIMD_LAMBDA __attribute__((always_inline))

namespace hearth::kernels {
namespace {

using F = __m512;           // kLanes floats
using I = __m512i;          // kLanes int32
constexpr int kLanes = 16;  // of the 16 logical lanes, in one register
constexpr int kRegisters = 32;
constexpr int kMaxTile = 8;     // token rows that share one load of weights
constexpr int kManyTile = 6;    // the same if there are many rows: faster from L1
constexpr int kColumns1 = 8;    // weight vectors in flight for one token row, to hide fma latency
constexpr int kColumnsN = 3;    // the same for kMaxTile rows, limited by the registers
constexpr int kDotChains = 16;  // quantized outputs in flight, each with an integer sum

HEARTH_SIMD __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

HEARTH_SIMD F zero() { return _mm512_setzero_ps(); }
HEARTH_SIMD F set1(float x) { return _mm512_set1_ps(x); }
HEARTH_SIMD F load(const float* p) { return _mm512_loadu_ps(p); }
HEARTH_SIMD F load_partial(const float* p, int n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
HEARTH_SIMD void store(float* p, F x) { _mm512_storeu_ps(p, x); }
HEARTH_SIMD void store_partial(float* p, F x, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x);
}
HEARTH_SIMD F load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEARTH_SIMD F load_f16_partial(const uint16_t* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
HEARTH_SIMD F widen_bf16(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
HEARTH_SIMD F load_bf16(const uint16_t* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEARTH_SIMD F load_bf16_partial(const uint16_t* p, int n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
/// kLanes values rounded to f16, nearest even.
HEARTH_SIMD void store_f16(uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

HEARTH_SIMD F add(F a, F b) { return _mm512_add_ps(a, b); }
HEARTH_SIMD F sub(F a, F b) { return _mm512_sub_ps(a, b); }
HEARTH_SIMD F mul(F a, F b) { return _mm512_mul_ps(a, b); }
HEARTH_SIMD F div(F a, F b) { return _mm512_div_ps(a, b); }
/// a > b ? a : b; so b if either is NaN.
HEARTH_SIMD F max(F a, F b) { return _mm512_max_ps(a, b); }
HEARTH_SIMD F min(F a, F b) { return _mm512_min_ps(a, b); }
/// a * b + c, rounded once.
HEARTH_SIMD F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
HEARTH_SIMD float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
/// x < limit ? 0 : value.
HEARTH_SIMD F zero_below(F x, F limit, F value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), value);
}
/// 2^n for t = 1.5 * 2^23 + n: the integer n is in the low bits of t.
HEARTH_SIMD F exp2_of_shifted(F t) {
  const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3f800000)));
}

/// x 2^n for such t and normal numbers.
HEARTH_SIMD F times_exp2_of_shifted(F x, F t) {
  const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), bits));
}

/// Lanes i and i ^ kDistance exchanged; below kLanes.
template <int kDistance>
HEARTH_SIMD F swapped(F x) {
  if constexpr (kDistance == 8) return _mm512_shuffle_f32x4(x, x, 0x4e);
  if constexpr (kDistance == 4) return _mm512_shuffle_f32x4(x, x, 0xb1);
  if constexpr (kDistance == 2) return _mm512_permute_ps(x, 0x4e);
  return _mm512_permute_ps(x, 0xb1);
}

/// Adds lanes i and i + 8 first, then lanes 4, 2, 1 apart. `x` holds the 16 logical lanes.
HEARTH_SIMD float sum16(const F (&x)[1]) {
  const __m256 high = _mm512_extractf32x8_ps(x[0], 1);
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x[0]), high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HEARTH_SIMD float max16(const F (&x)[1]) { return _mm512_reduce_max_ps(x[0]); }
HEARTH_SIMD float first(F x) { return _mm512_cvtss_f32(x); }

// Quantizing of activations. Magnitudes are the bits of |x| as integers, which order like |x|, with
// NaN above infinity.
HEARTH_SIMD I magnitude(F x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
HEARTH_SIMD I max_ints(I a, I b) { return _mm512_max_epi32(a, b); }
HEARTH_SIMD int32_t max16(const I (&x)[1]) { return _mm512_reduce_max_epi32(x[0]); }
HEARTH_SIMD int32_t sum16(const I (&x)[1]) { return _mm512_reduce_add_epi32(x[0]); }
/// The nearest integers, half to even.
HEARTH_SIMD I rounded(F x) { return _mm512_cvtps_epi32(x); }
/// Stores kLanes integers in -128 .. 127.
HEARTH_SIMD void store_i8(int8_t* p, I x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
}

// Bytes: 4 weights of each of kLanes outputs.
using B = __m512i;
struct alignas(16) CodeTable {
  uint8_t values[16];
};
HEARTH_SIMD B load_raw(const uint8_t* p) { return _mm512_loadu_si512(p); }
HEARTH_SIMD void store_raw(uint8_t* p, B x) { _mm512_storeu_si512(p, x); }
HEARTH_SIMD B and_bytes(B x, int mask) {
  return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(mask)));
}
HEARTH_SIMD B or_bytes(B a, B b) { return _mm512_or_si512(a, b); }
HEARTH_SIMD B add_bytes(B x, int n) {
  return _mm512_add_epi8(x, _mm512_set1_epi8(static_cast<char>(n)));
}
/// Shifts right by kBits, left if negative. Bits of the neighbouring byte come in: mask them off.
template <int kBits>
HEARTH_SIMD B shift_bytes(B x) {
  if constexpr (kBits > 0) return _mm512_srli_epi16(x, kBits);
  if constexpr (kBits < 0) return _mm512_slli_epi16(x, -kBits);
  return x;
}
HEARTH_SIMD B lookup(B code, const CodeTable& table) {
  const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(table.values));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), code);
}

// Loads of kLanes small integers, and arithmetic on scales.
HEARTH_SIMD I load_u8(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEARTH_SIMD I load_i8(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEARTH_SIMD I and_ints(I x, int mask) { return _mm512_and_si512(x, _mm512_set1_epi32(mask)); }
HEARTH_SIMD I shift_ints(I x, int right) { return _mm512_srl_epi32(x, _mm_cvtsi32_si128(right)); }
/// low | high << left
HEARTH_SIMD I or_ints(I low, I high, int left) {
  return _mm512_or_si512(low, _mm512_sll_epi32(high, _mm_cvtsi32_si128(left)));
}
/// `value` in all bytes of the lanes whose bit kBit is set.
template <int kBit>
HEARTH_SIMD B where_set(I x, char value) {
  const __mmask16 set = _mm512_test_epi32_mask(x, _mm512_set1_epi32(1 << kBit));
  return _mm512_maskz_mov_epi32(set, _mm512_set1_epi8(value));
}
HEARTH_SIMD I minus_32(I x) { return _mm512_sub_epi32(x, _mm512_set1_epi32(32)); }
HEARTH_SIMD I bits_of(F x) { return _mm512_castps_si512(x); }
HEARTH_SIMD F to_float(I x) { return _mm512_cvtepi32_ps(x); }
/// -(a * b)
HEARTH_SIMD F minus_product(F a, F b) {
  return _mm512_xor_ps(_mm512_mul_ps(a, b), _mm512_set1_ps(-0.0f));
}
/// 2^(e - 128) for kLanes bytes e; subnormal for e below 2.
HEARTH_SIMD F load_e8m0(const uint8_t* p) {
  const I e = load_u8(p);
  const I normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const I small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
  const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, small));
}
/// Half of kLanes numbers in E4M3 without a sign (quant_types.h), as halves that are 2^8 times
/// less: the least as an f32 would be subnormal, and products of those are slow.
HEARTH_SIMD F load_ue4m3(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i bits = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(127)), 7);
  return _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(128));
}
/// kLanes numbers in E4M3, 2^120 times less: their bits are moved to those of an f32, subnormal if
/// the number is (below 2^-6).
HEARTH_SIMD F load_e4m3(const uint8_t* p) {
  const I bits = _mm512_slli_epi32(load_i8(p), 20);
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-0x78100000)));
}

// Dot products: 4 weights of each of kLanes outputs, stored as w + offset, times the same 4
// activations. 255 * 127 * 32 is far below the limit of int32, so everything is exact. The sum
// starts at -offset times the sum of the activations; -128 times that sum is given. Stored weights
// that are not wide are at most 129, so a sum of two unsigned-times-signed products fits in int16.
using Sum = I;  // a running sum of integers
using Four = __m512i;
/// The index-th four of a block's activations.
HEARTH_SIMD Four load_four(const int8_t* block, int index) {
  int32_t x;
  __builtin_memcpy(&x, block + index * 4, 4);
  return _mm512_set1_epi32(x);
}
/// x, a multiple of 128, scaled by kOffset / 128.
template <int kOffset>
HEARTH_SIMD I of_offset(I x) {
  if constexpr (kOffset == 128) return x;
  return _mm512_srai_epi32(x, 7 - __builtin_ctz(kOffset));
}
#ifdef __AVX512VNNI__
constexpr int kNarrowOffset = 128;
template <int kOffset, bool kWide>
HEARTH_SIMD I dot_start(int32_t minus_128_sum) {
  if constexpr (kOffset == 0) return _mm512_setzero_si512();
  return of_offset<kOffset>(_mm512_set1_epi32(minus_128_sum));
}
template <bool kWide>
HEARTH_SIMD B dot_operand(B stored) {
  return stored;
}
HEARTH_SIMD I dot4(I sum, B w, Four x) { return _mm512_dpbusd_epi32(sum, w, x); }
constexpr bool kPairSums = false;
#else
constexpr int kNarrowOffset = 64;
/// Wide weights, stored as w + 128: |w| times x with the sign of w; pairs reach 2 * 128 * 127,
/// which int16 holds.
struct SignedBytes {
  __m512i magnitude;
  __mmask64 negative;
};
template <int kOffset, bool kWide>
HEARTH_SIMD I dot_start(int32_t minus_128_sum) {
  if constexpr (kOffset == 0 || kWide) return _mm512_setzero_si512();
  return of_offset<kOffset>(_mm512_set1_epi32(minus_128_sum));
}
template <bool kWide>
HEARTH_SIMD auto dot_operand(B stored) {
  if constexpr (kWide) {
    const __m512i w = _mm512_xor_si512(stored, _mm512_set1_epi8(-128));
    return SignedBytes{_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
  } else {
    return stored;
  }
}
HEARTH_SIMD I dot4(I sum, SignedBytes w, Four x) {
  const __m512i signed_x = _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x);
  const __m512i pairs = _mm512_maddubs_epi16(w.magnitude, signed_x);
  return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
HEARTH_SIMD I add_run(I sum, B products) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(products, _mm512_set1_epi16(1)));
}
HEARTH_SIMD B products(B w, Four x) { return _mm512_maddubs_epi16(w, x); }
HEARTH_SIMD B add_products(B a, B b) { return _mm512_add_epi16(a, b); }
HEARTH_SIMD I dot4(I sum, B w, Four x) { return add_run(sum, products(w, x)); }
constexpr bool kPairSums = true;  // kernels/cpu/simd/avx2.h
#endif

// Products of 16-bit integers. Pairs: two numbers of each of kLanes sums.
using Pairs = __m512i;
HEARTH_SIMD I load_ints(const int32_t* p) { return _mm512_loadu_si512(p); }
/// 2 kLanes numbers.
using Halves = __m512i;
/// The low 16 bits of 2 kLanes integers.
HEARTH_SIMD Halves low_halves(I a, I b) {
  alignas(64) static constexpr uint16_t kEven[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                     22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                     44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  return _mm512_permutex2var_epi16(a, _mm512_load_si512(kEven), b);
}
HEARTH_SIMD Halves load_halves(const int16_t* p) { return _mm512_loadu_si512(p); }
HEARTH_SIMD void store_halves(int16_t* p, Halves x) { _mm512_storeu_si512(p, x); }
/// (a * b + 2^14) >> 15
HEARTH_SIMD Halves multiply(Halves a, Halves b) { return _mm512_mulhrs_epi16(a, b); }
/// As store_pairs stored them.
HEARTH_SIMD Pairs load_pairs(const int16_t* p) { return _mm512_loadu_si512(p); }
HEARTH_SIMD void store_pairs(int16_t* p, Pairs x) { _mm512_storeu_si512(p, x); }
HEARTH_SIMD Pairs load_pairs_i8(const int8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
/// The low, or the high, four bits of 2 kLanes bytes, minus 8.
HEARTH_SIMD Pairs load_low_pairs(const uint8_t* p) {
  const __m512i x = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_sub_epi16(_mm512_and_si512(x, _mm512_set1_epi16(15)), _mm512_set1_epi16(8));
}
HEARTH_SIMD Pairs load_high_pairs(const uint8_t* p) {
  const __m512i x = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_sub_epi16(_mm512_srli_epi16(x, 4), _mm512_set1_epi16(8));
}
/// Two numbers that are the same for all sums.
using Pair = __m512i;
HEARTH_SIMD Pair load_pair(const int16_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return _mm512_set1_epi32(x);
}
HEARTH_SIMD I no_sum() { return _mm512_setzero_si512(); }
HEARTH_SIMD I dot2(I sum, Pairs a, Pair b) {
#ifdef __AVX512VNNI__
  // g++ 12 would copy each sum to another register, and spill some.
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#else
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

}  // namespace
}  // namespace hearth::kernels
