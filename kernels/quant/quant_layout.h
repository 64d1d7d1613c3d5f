#pragma once
// How kernels see a quantized type, and where a packed group of it keeps its parts. Plain data,
// because files built for one instruction set include this header.
//
// Every type reduces to one form. The value of input i of a block of 32 is
//   scale[s] * (code[i] - offset) + min[s],   s = i / (32 / subs),
// where a type with a codebook maps its code through that first. scale[s] is the block's d times an
// integer (and a power of two), exact in f32. IQ1_S has the eighths that it adds to its values in
// min[s].
//
// A packed group has 16 outputs (Q8_0 has its own layout, kernels/cpu/matmul/kernels.h) and is read
// from front to back: a cache line with the heads of one, two or four blocks, then their bodies,
// and so on. It holds the file's bits in another order, so a group has the file's size, but for
// heads that the last line lacks. The exceptions are types whose stored codes stand for groups of
// values: in a group each value has its own level (twos, or the low bits of a nibble) and in IQ2
// and IQ3 its sign above that. Looking up 64 stored codes takes longer than reading the bytes that
// this adds.
//   head   d: 16 f16 (MXFP4: 16 bytes E8M0; NVFP4: (4, 16) bytes UE4M3, one row per 16 inputs);
//          then, if the type stores them, dmin or m: 16 f16; IQ4_XS: (2, 16) bytes, field b % 4 of
//          [b / 4] the high two bits of the scale of 32-block b
//   body   the planes of each 32 inputs, one after the other; then the integer scales of all
//   planes, as (.., 16 outputs, 4) bytes, with input 4 j + i in byte i of an output:
//     nibbles  4 of them: [j % 4], low nibble for j below 4
//     twos     2 of them: [j / 4], field j % 4 of two bits
//     ones     1 of them: bit j
//     A code is its nibble or its two bits, with the bits of the next plane above them.
//   scales
//     kTwoSix   (8, 16) bytes: low four bits of first and second; (4, 16): [b / 2], nibble b % 2:
//               high two bits of first and second. Q3_K: scales of both halves; Q4_K: scale, min;
//               IQ1_M: three bits of scale, then a bit for each 8 inputs: 1/8 is subtracted
//     kNibbles  (8, 2, 16) bytes: scale low, min high
//     kSigned   (8, 2, 16) int8
//     kOneSix   (4, 16) bytes: [b / 2], nibble b % 2: low four bits
//     kOneFour  (4, 16) bytes: [b / 2], nibble b % 2; IQ1_S: three bits, and one set where 1/8 is
//               subtracted
//     kTwoFour  (8, 16) bytes: nibble s % 2 of [s / 2]

#include <cstdint>

#include "kernels/ops/dtype.h"

namespace hearth::kernels {

enum class SubScales : uint8_t {
  kNone,
  kTwoSix,
  kNibbles,
  kSigned,
  kOneSix,
  kOneFour,
  kTwoFour,
  kUe4m3,  ///< in the head
};
enum class Codebook : uint8_t { kNone, kIq4, kFp4, kIq3Xxs, kIq3S, kIq2, kIq1, kTernary };

/// Bytes of a block's integer scales, of 16 outputs.
constexpr int32_t scale_bytes(SubScales scales) {
  switch (scales) {
    case SubScales::kNone:
    case SubScales::kUe4m3: return 0;
    case SubScales::kTwoSix: return 192;
    case SubScales::kNibbles:
    case SubScales::kSigned: return 256;
    case SubScales::kOneSix:
    case SubScales::kOneFour: return 64;
    case SubScales::kTwoFour: return 128;
  }
  return 0;
}

struct QuantLayout {
  static constexpr int32_t kHeadLine = 64;

  int32_t block;   ///< inputs that share d, or NVFP4's stored block: 32, 64 or 256
  int32_t subs;    ///< scales per 32 inputs: 1 or 2
  bool has_min;    ///< if true, offset is 0
  int32_t offset;  ///< 0, or a power of two up to 128
  bool nibbles;
  bool twos;
  bool ones;
  SubScales sub_scales;
  Codebook codebook;
  int32_t head_bytes;

  constexpr int32_t plane_bytes() const {
    return (nibbles ? 256 : 0) + (twos ? 128 : 0) + (ones ? 64 : 0);
  }
  constexpr int32_t body_bytes() const {
    return block / 32 * plane_bytes() + scale_bytes(sub_scales);
  }
  /// Whether each block has dmin or m.
  constexpr bool stores_min() const { return has_min && head_bytes == 64; }
  /// Blocks whose heads share a line.
  constexpr int32_t blocks_per_line() const { return kHeadLine / head_bytes; }
  /// Bytes from the start of the group to the head, and to the body, of block b.
  constexpr int64_t head_at(int64_t b) const {
    const int64_t n = blocks_per_line();
    return b / n * (kHeadLine + n * body_bytes()) + b % n * head_bytes;
  }
  constexpr int64_t body_at(int64_t b) const {
    return (b / blocks_per_line() + 1) * kHeadLine + b * body_bytes();
  }
  /// Bytes that blocks before b take, with the heads that share a line with theirs.
  constexpr int64_t bytes_before(int64_t b) const {
    return b % blocks_per_line() == 0 ? head_at(b) : body_at(b);
  }
  constexpr int64_t group_bytes(int64_t cols) const { return bytes_before(cols / block); }
  /// True unless every weight, offset included, is at most 129; then two products fit in int16.
  constexpr bool wide() const { return codebook == Codebook::kIq4; }
};

constexpr QuantLayout quant_layout(DType type) {
  using enum SubScales;
  constexpr auto kPlain = Codebook::kNone;
  switch (type) {
    case DType::kQ4_0: return {32, 1, false, 8, true, false, false, kNone, kPlain, 32};
    case DType::kQ4_1: return {32, 1, true, 0, true, false, false, kNone, kPlain, 64};
    case DType::kQ5_0: return {32, 1, false, 16, true, false, true, kNone, kPlain, 32};
    case DType::kQ5_1: return {32, 1, true, 0, true, false, true, kNone, kPlain, 64};
    case DType::kIQ4_NL: return {32, 1, false, 128, true, false, false, kNone, Codebook::kIq4, 32};
    case DType::kMXFP4: return {32, 1, false, 16, true, false, false, kNone, Codebook::kFp4, 16};
    case DType::kQ2_K: return {256, 2, true, 0, false, true, false, kNibbles, kPlain, 64};
    case DType::kQ3_K: return {256, 2, false, 4, false, true, true, kTwoSix, kPlain, 32};
    case DType::kQ4_K: return {256, 1, true, 0, true, false, false, kTwoSix, kPlain, 64};
    case DType::kQ5_K: return {256, 1, true, 0, true, false, true, kTwoSix, kPlain, 64};
    case DType::kQ6_K: return {256, 2, false, 32, true, true, false, kSigned, kPlain, 32};
    case DType::kIQ4_XS:
      return {256, 1, false, 128, true, false, false, kOneSix, Codebook::kIq4, 64};
    case DType::kTQ1_0:
    case DType::kTQ2_0: return {256, 1, false, 1, false, true, false, kNone, kPlain, 32};
    case DType::kNVFP4: return {64, 2, false, 16, true, false, false, kUe4m3, Codebook::kFp4, 64};
    case DType::kIQ2_XXS:
      return {256, 1, false, 64, false, true, true, kOneFour, Codebook::kIq2, 32};
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return {256, 2, false, 64, false, true, true, kTwoFour, Codebook::kIq2, 32};
    case DType::kIQ3_XXS:
      return {256, 1, false, 64, true, false, false, kOneFour, Codebook::kIq3Xxs, 32};
    case DType::kIQ3_S:
      return {256, 1, false, 16, true, false, false, kOneFour, Codebook::kIq3S, 32};
    case DType::kIQ1_S: return {256, 1, true, 0, false, true, false, kOneFour, kPlain, 32};
    case DType::kIQ1_M: return {256, 2, false, 16, false, true, false, kTwoSix, Codebook::kIq1, 32};
    default: return {};
  }
}

/// Scales are d times this times an integer. Of IQ1 it is the scale of eighths.
constexpr float scale_unit(DType type) {
  switch (type) {
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ1_S:
    case DType::kIQ1_M: return 0.125f;
    case DType::kIQ3_XXS: return 0.25f;
    default: return 1.0f;
  }
}

/// Whether that integer is odd, 2 s + 1, from a scale s.
constexpr bool has_odd_scales(DType type) {
  const SubScales scales = quant_layout(type).sub_scales;
  return scales == SubScales::kOneFour || scales == SubScales::kTwoFour || type == DType::kIQ1_M;
}

/// A type whose groups are the same as those of `type`, once they are packed.
constexpr DType packed_as(DType type) {
  if (type == DType::kTQ1_0) return DType::kTQ2_0;
  return type == DType::kIQ2_XS ? DType::kIQ2_S : type;
}

/// The types that quant_layout describes, in the order of their places in kernel tables.
inline constexpr DType kQuantTypes[] = {
    DType::kQ4_0,    DType::kQ4_1,  DType::kQ5_0,  DType::kQ5_1,    DType::kIQ4_NL, DType::kMXFP4,
    DType::kQ2_K,    DType::kQ3_K,  DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,   DType::kIQ4_XS,
    DType::kTQ1_0,   DType::kTQ2_0, DType::kNVFP4, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
    DType::kIQ3_XXS, DType::kIQ3_S, DType::kIQ1_S, DType::kIQ1_M};
inline constexpr int kNumQuantTypes = 22;

/// -1 for a type that is not in kQuantTypes.
constexpr int quant_index(DType type) {
  for (int i = 0; i < kNumQuantTypes; ++i) {
    if (kQuantTypes[i] == type) return i;
  }
  return -1;
}

/// The 16 values of IQ4_NL and IQ4_XS (ggml-common.h), and those of E2M1 times two (Open Compute
/// Project 2023, Microscaling Formats, section 5.3.3).
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Levels of the grids of IQ3 and IQ2, with the sign above them, and those of IQ1 in eighths: three
/// plus 1, then the same minus 1.
inline constexpr int8_t kIq3XxsValues[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                             -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kIq3SValues[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                           -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr int8_t kIq2Values[16] = {8, 25, 43, 0, -8, -25, -43};
inline constexpr int8_t kIq1Values[16] = {-7, 1, 9, 0, -9, -1, 7};
inline constexpr int8_t kTernaryValues[16] = {-1, 0, 1, 2};

/// The value of a code; its 16 entries, of which a type without nibbles uses the first 8 or 4.
constexpr const int8_t (&codebook_values(Codebook book))[16] {
  switch (book) {
    case Codebook::kFp4: return kFp4Values;
    case Codebook::kIq3Xxs: return kIq3XxsValues;
    case Codebook::kIq3S: return kIq3SValues;
    case Codebook::kIq2: return kIq2Values;
    case Codebook::kIq1: return kIq1Values;
    case Codebook::kTernary: return kTernaryValues;
    case Codebook::kNone:
    case Codebook::kIq4: break;
  }
  return kIq4Values;
}

/// The largest weight, offset included.
constexpr int32_t largest_weight(const QuantLayout& layout) {
  const int bits = (layout.nibbles ? 4 : 0) + (layout.twos ? 2 : 0) + (layout.ones ? 1 : 0);
  if (layout.codebook == Codebook::kNone) return (1 << bits) - 1;
  int32_t largest = 0;
  for (const int8_t value : codebook_values(layout.codebook)) {
    largest = value > largest ? value : largest;
  }
  return largest + layout.offset;
}

}  // namespace hearth::kernels
