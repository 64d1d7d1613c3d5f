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

static_assert(sizeof(Q4_0) == 18 && sizeof(Q4_1) == 20 && sizeof(Q5_0) == 22);
static_assert(sizeof(Q5_1) == 24 && sizeof(Q8_0) == 34 && sizeof(IQ4_NL) == 18);
static_assert(sizeof(MXFP4) == 17 && sizeof(Q2_K) == 84 && sizeof(Q3_K) == 110);
static_assert(sizeof(Q4_K) == 144 && sizeof(Q5_K) == 176 && sizeof(Q6_K) == 210);
static_assert(sizeof(IQ4_XS) == 136);

}  // namespace hearth::kernels::stored
