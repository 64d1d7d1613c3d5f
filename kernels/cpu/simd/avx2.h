#pragma once
// Vectors of 8 floats for AVX2, FMA and F16C, and AVX-VNNI where it is compiled for that: two of
// them form the 16 logical lanes. See kernels/cpu/simd/avx512.h; results are the same to the bit.

#include <immintrin.h>

#include <cstdint>

#define HEARTH_SIMD inline __attribute__((always_inline))
#define HEARTH_SIMD_LAMBDA __attribute__((always_inline))

namespace hearth::kernels {
namespace {

using F = __m256;
using I = __m256i;
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
constexpr int kMaxTile = 6;
constexpr int kManyTile = 6;
constexpr int kColumns1 = 8;
constexpr int kColumnsN = 2;
constexpr int kDotChains = 12;

HEARTH_SIMD __m256i first_lanes(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}

HEARTH_SIMD F zero() { return _mm256_setzero_ps(); }
HEARTH_SIMD F set1(float x) { return _mm256_set1_ps(x); }
HEARTH_SIMD F load(const float* p) { return _mm256_loadu_ps(p); }
HEARTH_SIMD F load_partial(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
HEARTH_SIMD void store(float* p, F x) { _mm256_storeu_ps(p, x); }
HEARTH_SIMD void store_partial(float* p, F x, int n) { _mm256_maskstore_ps(p, first_lanes(n), x); }
/// AVX2 has no masked load of 16-bit values.
HEARTH_SIMD __m128i load_halves_partial(const uint16_t* p, int n) {
  uint16_t copy[8] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(copy));
}
HEARTH_SIMD F load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEARTH_SIMD F load_f16_partial(const uint16_t* p, int n) {
  return _mm256_cvtph_ps(load_halves_partial(p, n));
}
HEARTH_SIMD F widen_bf16(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
HEARTH_SIMD F load_bf16(const uint16_t* p) {
  return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEARTH_SIMD F load_bf16_partial(const uint16_t* p, int n) {
  return widen_bf16(load_halves_partial(p, n));
}
HEARTH_SIMD void store_f16(uint16_t* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

HEARTH_SIMD F add(F a, F b) { return _mm256_add_ps(a, b); }
HEARTH_SIMD F sub(F a, F b) { return _mm256_sub_ps(a, b); }
HEARTH_SIMD F mul(F a, F b) { return _mm256_mul_ps(a, b); }
HEARTH_SIMD F div(F a, F b) { return _mm256_div_ps(a, b); }
HEARTH_SIMD F max(F a, F b) { return _mm256_max_ps(a, b); }
HEARTH_SIMD F min(F a, F b) { return _mm256_min_ps(a, b); }
HEARTH_SIMD F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
HEARTH_SIMD float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HEARTH_SIMD F zero_below(F x, F limit, F value) {
  return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_NLT_UQ), value);
}
HEARTH_SIMD F exp2_of_shifted(F t) {
  const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3f800000)));
}
HEARTH_SIMD F times_exp2_of_shifted(F x, F t) {
  const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), bits));
}

template <int kDistance>
HEARTH_SIMD F swapped(F x) {
  if constexpr (kDistance == 4) return _mm256_permute2f128_ps(x, x, 1);
  if constexpr (kDistance == 2) return _mm256_permute_ps(x, 0x4e);
  return _mm256_permute_ps(x, 0xb1);
}

HEARTH_SIMD float sum16(const F (&x)[2]) {
  const __m256 eight = _mm256_add_ps(x[0], x[1]);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HEARTH_SIMD float max16(const F (&x)[2]) {
  const __m256 eight = _mm256_max_ps(x[0], x[1]);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
HEARTH_SIMD float first(F x) { return _mm256_cvtss_f32(x); }

HEARTH_SIMD I magnitude(F x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}
HEARTH_SIMD I max_ints(I a, I b) { return _mm256_max_epi32(a, b); }
HEARTH_SIMD int32_t max16(const I (&x)[2]) {
  const __m256i eight = _mm256_max_epi32(x[0], x[1]);
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 1)));
}
HEARTH_SIMD int32_t sum16(const I (&x)[2]) {
  const __m256i eight = _mm256_add_epi32(x[0], x[1]);
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
HEARTH_SIMD I rounded(F x) { return _mm256_cvtps_epi32(x); }
HEARTH_SIMD void store_i8(int8_t* p, I x) {
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
}

using B = __m256i;
struct alignas(16) CodeTable {
  uint8_t values[16];
};
HEARTH_SIMD B load_raw(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
HEARTH_SIMD void store_raw(uint8_t* p, B x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
}
HEARTH_SIMD B and_bytes(B x, int mask) {
  return _mm256_and_si256(x, _mm256_set1_epi8(static_cast<char>(mask)));
}
HEARTH_SIMD B or_bytes(B a, B b) { return _mm256_or_si256(a, b); }
HEARTH_SIMD B add_bytes(B x, int n) {
  return _mm256_add_epi8(x, _mm256_set1_epi8(static_cast<char>(n)));
}
template <int kBits>
HEARTH_SIMD B shift_bytes(B x) {
  if constexpr (kBits > 0) return _mm256_srli_epi16(x, kBits);
  if constexpr (kBits < 0) return _mm256_slli_epi16(x, -kBits);
  return x;
}
HEARTH_SIMD B lookup(B code, const CodeTable& table) {
  const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(table.values));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), code);
}

HEARTH_SIMD I load_u8(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
HEARTH_SIMD I load_i8(const uint8_t* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
HEARTH_SIMD I and_ints(I x, int mask) { return _mm256_and_si256(x, _mm256_set1_epi32(mask)); }
HEARTH_SIMD I shift_ints(I x, int right) { return _mm256_srl_epi32(x, _mm_cvtsi32_si128(right)); }
HEARTH_SIMD I or_ints(I low, I high, int left) {
  return _mm256_or_si256(low, _mm256_sll_epi32(high, _mm_cvtsi32_si128(left)));
}
template <int kBit>
HEARTH_SIMD B where_set(I x, char value) {
  return and_bytes(_mm256_srai_epi32(_mm256_slli_epi32(x, 31 - kBit), 31), value);
}
HEARTH_SIMD I minus_32(I x) { return _mm256_sub_epi32(x, _mm256_set1_epi32(32)); }
HEARTH_SIMD I bits_of(F x) { return _mm256_castps_si256(x); }
HEARTH_SIMD F to_float(I x) { return _mm256_cvtepi32_ps(x); }
HEARTH_SIMD F minus_product(F a, F b) {
  return _mm256_xor_ps(_mm256_mul_ps(a, b), _mm256_set1_ps(-0.0f));
}
HEARTH_SIMD F load_e8m0(const uint8_t* p) {
  const I e = load_u8(p);
  const I normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const I small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const I is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
}
HEARTH_SIMD F load_ue4m3(const uint8_t* p) {
  const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i bits = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(127)), 7);
  return _mm256_mul_ps(_mm256_cvtph_ps(bits), _mm256_set1_ps(128));
}
HEARTH_SIMD F load_e4m3(const uint8_t* p) {
  const I bits = _mm256_slli_epi32(load_i8(p), 20);
  return _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(-0x78100000)));
}

using Sum = I;
using Four = __m256i;
HEARTH_SIMD Four load_four(const int8_t* block, int index) {
  int32_t x;
  __builtin_memcpy(&x, block + index * 4, 4);
  return _mm256_set1_epi32(x);
}
template <int kOffset>
HEARTH_SIMD I of_offset(int32_t minus_128_sum) {
  if constexpr (kOffset == 0) return _mm256_setzero_si256();
  return _mm256_srai_epi32(_mm256_set1_epi32(minus_128_sum), 7 - __builtin_ctz(kOffset));
}
#ifdef __AVXVNNI__
constexpr int kNarrowOffset = 128;
constexpr bool kPairSums = false;
template <int kOffset, bool kWide>
HEARTH_SIMD I dot_start(int32_t minus_128_sum) {
  return of_offset<kOffset>(minus_128_sum);
}
template <bool kWide>
HEARTH_SIMD B dot_operand(B stored) {
  return stored;
}
HEARTH_SIMD I dot4(I sum, B w, Four x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
#else
// Wide weights: |w| times x with the sign of w; pairs reach 2 * 128 * 127, which int16 holds.
// |-128| is 128 as an unsigned byte, which is how maddubs reads it.
constexpr int kNarrowOffset = 64;
/// Pairs of products of narrow weights may be added up in 16 bits: products, add_products, add_run.
constexpr bool kPairSums = true;
struct SignedBytes {
  __m256i value;
  __m256i magnitude;
};
template <int kOffset, bool kWide>
HEARTH_SIMD I dot_start(int32_t minus_128_sum) {
  if constexpr (kWide) return _mm256_setzero_si256();
  return of_offset<kOffset>(minus_128_sum);
}
template <bool kWide>
HEARTH_SIMD auto dot_operand(B stored) {
  if constexpr (kWide) {
    const __m256i w = _mm256_xor_si256(stored, _mm256_set1_epi8(-128));
    return SignedBytes{w, _mm256_abs_epi8(w)};
  } else {
    return stored;
  }
}
HEARTH_SIMD I add_pairs(I sum, __m256i pairs) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  asm volatile("" : "+x"(sum));  // g++ 12 would delay these sums and spill their terms
  return sum;
}
HEARTH_SIMD I dot4(I sum, SignedBytes w, Four x) {
  return add_pairs(sum, _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.value)));
}
HEARTH_SIMD I dot4(I sum, B w, Four x) { return add_pairs(sum, _mm256_maddubs_epi16(w, x)); }

HEARTH_SIMD B products(B w, Four x) { return _mm256_maddubs_epi16(w, x); }
HEARTH_SIMD B add_products(B a, B b) {
  a = _mm256_add_epi16(a, b);
  asm volatile("" : "+x"(a));  // as in add_pairs
  return a;
}
HEARTH_SIMD I add_run(I sum, B products) { return add_pairs(sum, products); }
#endif

using Pairs = __m256i;
HEARTH_SIMD I load_ints(const int32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
using Halves = __m256i;
HEARTH_SIMD Halves low_halves(I a, I b) {
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)),
                                             _mm256_and_si256(b, _mm256_set1_epi32(0xffff)));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}
HEARTH_SIMD Halves load_halves(const int16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
HEARTH_SIMD void store_halves(int16_t* p, Halves x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
}
HEARTH_SIMD Halves multiply(Halves a, Halves b) { return _mm256_mulhrs_epi16(a, b); }
HEARTH_SIMD Pairs load_pairs(const int16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
HEARTH_SIMD void store_pairs(int16_t* p, Pairs x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
}
HEARTH_SIMD Pairs load_pairs_i8(const int8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEARTH_SIMD Pairs load_low_pairs(const uint8_t* p) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_sub_epi16(_mm256_and_si256(x, _mm256_set1_epi16(15)), _mm256_set1_epi16(8));
}
HEARTH_SIMD Pairs load_high_pairs(const uint8_t* p) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_sub_epi16(_mm256_srli_epi16(x, 4), _mm256_set1_epi16(8));
}
using Pair = __m256i;
HEARTH_SIMD Pair load_pair(const int16_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return _mm256_set1_epi32(x);
}
HEARTH_SIMD I no_sum() { return _mm256_setzero_si256(); }
HEARTH_SIMD I dot2(I sum, Pairs a, Pair b) {
#ifdef __AVXVNNI__
  return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  asm volatile("" : "+x"(sum));  // as in add_pairs
  return sum;
#endif
}

}  // namespace
}  // namespace hearth::kernels
