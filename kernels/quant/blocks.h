#pragma once
// The stored blocks of the quantized types, byte by byte, as ggml publishes them (ggml-common.h and
// the gguf Python package's quants module). Little-endian; halves are IEEE binary16. These structs
// serve as documentation and for sizes: code reads the bytes with memcpy, because blocks in a file
// are not aligned.

#include <cstdint>

namespace hearth::kernels::stored {

// Blocks of 32 values. Value i below 16 is in the low nibble of qs[i], value 16 + i in the high
// one; bit i of `qh` (little-endian u32) is the fifth bit of value i.

struct Q4_0 {  ///< d * (q - 8)
  uint16_t d;
  uint8_t qs[16];
};
struct Q4_1 {  ///< d * q + m
  uint16_t d, m;
  uint8_t qs[16];
};
struct Q5_0 {  ///< d * (q - 16)
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct Q5_1 {  ///< d * q + m
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct Q8_0 {  ///< d * q
  uint16_t d;
  int8_t qs[32];
};
struct IQ4_NL {  ///< d * kIq4Values[q]
  uint16_t d;
  uint8_t qs[16];
};
struct MXFP4 {  ///< 2^(e - 128) * kFp4Values[q]: E8M0 scale halved, E2M1 values doubled
  uint8_t e;
  uint8_t qs[16];
};

/// Blocks of 64 values: d[i/16] / 2 * kFp4Values[q], where d is UE4M3, without a sign bit: bit 7 is
/// ignored, and 0x7f is 0. Value 16 s + i, i below 8, is the low nibble of qs[8 s + i], value
/// 16 s + 8 + i the high one.
struct NVFP4 {
  uint8_t d[4];
  uint8_t qs[32];
};

// Blocks of 256 values, in sub-blocks of 16 or 32 that each have an integer scale.

/// d * (scales[i/16] & 15) * q - dmin * (scales[i/16] >> 4). Value 128 h + 32 f + i, i below 32, is
/// field f of two bits of qs[32 h + i].
struct Q2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d, dmin;
};

/// d * (scale[i/16] - 32) * (q - 4). Low two bits of q as in Q2_K; bit 4 h + f of hmask[i] is the
/// third. Scale s, six bits: low four are nibble s / 8 of scales[s % 8], high two are field s / 4
/// of scales[8 + s % 4].
struct Q3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};

/// d * scale[i/32] * q - dmin * min[i/32]. Value 64 c + i is the low nibble of qs[32 c + i], value
/// 64 c + 32 + i the high one. Six-bit scale s and min s: for s below 4 the low six bits of
/// scales[s] and scales[4 + s]; else low and high nibble of scales[4 + s] with the top two bits of
/// scales[s - 4] and scales[s] above them.
struct Q4_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

/// Like Q4_K; bit s of qh[i] is the fifth bit of value 32 s + i.
struct Q5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

/// d * scales[i/16] * (q - 32). Value 128 h + 32 f + i: low four bits are nibble f / 2 of
/// ql[64 h + 32 (f % 2) + i], high two are field f of qh[32 h + i].
struct Q6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

/// d * (scale[i/32] - 32) * kIq4Values[q]. Scale s: the low four bits are nibble s % 2 of
/// scales_l[s / 2], the high two are field s of scales_h. Value 32 s + i is stored as in the blocks
/// of 32, at qs + 16 s.
struct IQ4_XS {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

/// d * (q - 1). A byte holds 5 digits of base 3, as ceil(256 / 243 * number): digit n, largest
/// first, is (byte * 3^n % 256) * 3 / 256. Value 32 n + i is digit n of qs[i], i below 32; value
/// 160 + 16 n + i that of qs[32 + i], i below 16; value 240 + 4 n + i that of qh[i], n below 4.
struct TQ1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};
/// d * (q - 1), q as in Q2_K.
struct TQ2_0 {
  uint8_t qs[64];
  uint16_t d;
};

// Values of the IQ types below are looked up in grids (kernels/quant/grids.h), in groups of 8 or 4.
// A sign bit is set where a value is negative; of 8 signs in 7 bits, the last makes their sum even.

/// d / 8 * (2 scale[i/32] + 1) * value. Each 32 values take 8 bytes: 4 indices into kIq2XxsGrid,
/// then 32 bits: 7 per group of signs, 4 of the scale.
struct IQ2_XXS {
  uint16_t d;
  uint8_t qs[64];
};
/// d / 8 * (2 scale[i/16] + 1) * value. qs[i/8]: 9 bits index into kIq2XsGrid, 7 of signs. Scale s:
/// nibble s % 2 of scales[s / 2].
struct IQ2_XS {
  uint16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};
/// Like IQ2_XS with kIq2SGrid: group g has field g % 4 of qh[g / 4] above the index qs[g].
struct IQ2_S {
  uint16_t d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};
/// d / 4 * (2 scale[i/32] + 1) * value. qs[i/4]: index into kIq3XxsGrid. Each 32 values have 32
/// bits of signs and scale, as in IQ2_XXS.
struct IQ3_XXS {
  uint16_t d;
  uint8_t qs[64];
  uint8_t signs[32];
};
/// d * (2 scale[i/32] + 1) * value. Group g of 4 has bit g % 8 of qh[g / 8] above the index qs[g]
/// into kIq3SGrid. Scale s: nibble s % 2 of scales[s / 2].
struct IQ3_S {
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
/// d * (2 scale[i/32] + 1) * (value + 1/8), or - 1/8 if bit 15 of qh[i/32] is set. Bits 12 to 14 of
/// it are the scale; group g has its field g % 4 of three bits above the index qs[g] into kIq1Grid.
struct IQ1_S {
  uint16_t d;
  uint8_t qs[32];
  uint16_t qh[8];
};
/// d * (2 scale[i/16] + 1) * (value +- 1/8). Nibble g % 2 of qh[g / 2]: three bits above the index
/// qs[g] into kIq1Grid; the fourth is set where 1/8 is subtracted. Scale s: field s % 4 of three
/// bits of scales[s / 4]. Bits 4 n to 4 n + 3 of d are the top ones of scales[n].
struct IQ1_M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint16_t scales[4];
};

static_assert(sizeof(Q4_0) == 18 && sizeof(Q4_1) == 20 && sizeof(Q5_0) == 22);
static_assert(sizeof(Q5_1) == 24 && sizeof(Q8_0) == 34 && sizeof(IQ4_NL) == 18);
static_assert(sizeof(MXFP4) == 17 && sizeof(Q2_K) == 84 && sizeof(Q3_K) == 110);
static_assert(sizeof(Q4_K) == 144 && sizeof(Q5_K) == 176 && sizeof(Q6_K) == 210);
static_assert(sizeof(IQ4_XS) == 136 && sizeof(NVFP4) == 36 && sizeof(TQ1_0) == 54);
static_assert(sizeof(TQ2_0) == 66 && sizeof(IQ2_XXS) == 66 && sizeof(IQ2_XS) == 74);
static_assert(sizeof(IQ2_S) == 82 && sizeof(IQ3_XXS) == 98 && sizeof(IQ3_S) == 110);
static_assert(sizeof(IQ1_S) == 50 && sizeof(IQ1_M) == 56);

}  // namespace hearth::kernels::stored
