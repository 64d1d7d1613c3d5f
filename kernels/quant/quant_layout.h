#pragma once
// How kernels see a quantized type, and where a packed group of it keeps its parts. Plain data,
// because files built for one instruction set include this header.
//
// Every type reduces to one form. The value of input i of a block of 32 is
//   scale[s] * (code[i] - offset) + min[s],   s = i / (32 / subs),
// where a type with a codebook maps its code through that first. scale[s] is the block's d times an
// integer, exact in f32.
//
// A packed group has 16 outputs (Q8_0 has its own layout, kernels/cpu/matmul/kernels.h): first the
// heads of all blocks, rounded up to a cache line, then their bodies. It holds the file's bits in
// another order, so a group has the file's size.
//   head   d: 16 f16 (MXFP4: 16 bytes E8M0); then, if the type has them, dmin or m: 16 f16;
//          IQ4_XS: (2, 16) bytes, field b % 4 of [b / 4] the high two bits of the scale of
//          32-block b
//   body   the planes of each 32 inputs, one after the other; then the integer scales of all
//   planes, as (.., 16 outputs, 4) bytes, with input 4 j + i in byte i of an output:
//     nibbles  4 of them: [j % 4], low nibble for j below 4
//     twos     2 of them: [j / 4], field j % 4 of two bits
//     ones     1 of them: bit j
//     A code is its nibble or its two bits, with the bits of the next plane above them.
//   scales
//     kTwoSix   (8, 16) bytes: low four bits of first and second; (4, 16): [b / 2], nibble b % 2:
//               high two bits of first and second. Q3_K: scales of both halves; Q4_K: scale, min
//     kNibbles  (8, 2, 16) bytes: scale low, min high
//     kSigned   (8, 2, 16) int8
//     kOneSix   (4, 16) bytes: [b / 2], nibble b % 2: low four bits

#include <cstdint>

#include "kernels/ops/dtype.h"

namespace hearth::kernels {

enum class SubScales : uint8_t { kNone, kTwoSix, kNibbles, kSigned, kOneSix };
enum class Codebook : uint8_t { kNone, kIq4, kFp4 };

struct QuantLayout {
  int32_t block;   ///< inputs that share d: 32 or 256
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
    if (block == 32) return plane_bytes();
    const bool bytes = sub_scales == SubScales::kNibbles || sub_scales == SubScales::kSigned;
    return 8 * plane_bytes() + (bytes ? 256 : sub_scales == SubScales::kTwoSix ? 192 : 64);
  }
  /// Bytes from the start of the group to the first body.
  constexpr int64_t bodies_at(int64_t cols) const {
    return (cols / block * head_bytes + 63) / 64 * 64;
  }
  constexpr int64_t group_bytes(int64_t cols) const {
    return bodies_at(cols) + cols / block * body_bytes();
  }
  /// True unless every weight, offset included, fits in six bits; then two products fit in int16.
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
    default: return {};
  }
}

/// The types that quant_layout describes, in the order of their places in kernel tables.
inline constexpr DType kQuantTypes[] = {
    DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kIQ4_NL, DType::kMXFP4,
    DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,   DType::kIQ4_XS};
inline constexpr int kNumQuantTypes = 12;

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

}  // namespace hearth::kernels
