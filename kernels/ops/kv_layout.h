#pragma once
// Layout of one layer's K and V inside a block, shared by the reference and the CPU tables so that
// checked_ops can run both on one pool: K of every kv head, then V of every kv head (unless V is
// the front of K), each kv_head_bytes() long.
//   K  (k_dim, block_size)   transposed: 16 positions of one dimension form a vector
//   V  (block_size, v_dim)
// f16 and bf16 values are rounded to nearest even.
//
// In q8_0, fp8 and q4_0 the elements are codes, followed by f16 scales d, one per 32 dimensions:
// (ceil(dims / 32), block_size) of K and of V. A value is d times the number that the code stands
// for, exact in f32. The last scale of a head may cover fewer dimensions. In q8_0 and q4_0 codes
// whose products are summed (attention_rounding.h) lie together: of K those of 4 dimensions, of V
// those of 2 positions; and K is rotated (kv_rotation.h).
// Per 32 values x of a head and token, with q = x * (1 / d) in f32:
//   q8_0  d = f16(max |x| / 127). A code is a byte: q rounded half to even, clamped to -127 .. 127;
//         of K plus 128, of V signed.
//           K  (ceil(k_dim / 4), block_size, 4)
//           V  (block_size / 2, v_dim, 2)
//   fp8   d = f16(min(max |x| / 448, 255)). A code is a byte in E4M3: q, clamped to -448 .. 448,
//         rounded to nearest even; with the sign of q, of 0 too. The bound on d lets d * 2^120 be
//         an f32. A scale per 32 rather than per head costs 1/32 of the bytes more and keeps what
//         one large value rounds away to its 32; and the layout is q8_0's.
//   q4_0  d = f16(m / -8), where m is the x of the largest magnitude, the negative one of two. A
//         code is 4 bits: q rounded half to even, clamped to -8 .. 7, plus 8. The last 32 values
//         are stored whole, with zeros past the last dimension. Two codes in
//         a byte, low bits first:
//           K  (4 * ceil(k_dim / 32), block_size, 4): dimensions 8 g + i and 8 g + i + 4 in byte i
//              of row g
//           V  (block_size / 2, ceil(v_dim / 32), 16, 2): dimensions i and i + 16 of the 32 in the
//              i-th two bytes
// All codes stand for 0 if d is 0, infinite or NaN. d is NaN if some x is not finite: then no
// finite value is read back.

#include <cstdint>

#include "kernels/ops/kv_type.h"

namespace hearth::kernels {

inline constexpr int32_t kKvScaleDims = 32;                ///< dimensions that share a scale
inline constexpr int32_t kKvPairBytes = kKvScaleDims / 2;  ///< of 32 codes in q4_0
inline constexpr int32_t kKvFour = 4;       ///< dimensions of K whose codes lie together
inline constexpr int32_t kKvKeyBias = 128;  ///< of K's codes in q8_0
inline constexpr float kMostE4m3 = 448.0f;
inline constexpr float kMostFp8Scale = 255.0f;

constexpr int32_t kv_scales(int32_t dims) { return (dims + kKvScaleDims - 1) / kKvScaleDims; }

constexpr bool kv_scaled(KvType type) {
  return type == KvType::kQ8_0 || type == KvType::kFp8 || type == KvType::kQ4_0;
}

/// Bytes of the elements, without scales, of `dims` values of K or V at one position.
constexpr int64_t kv_value_bytes(KvType type, int32_t dims) {
  switch (type) {
    case KvType::kF32: return int64_t{4} * dims;
    case KvType::kF16:
    case KvType::kBF16: return int64_t{2} * dims;
    case KvType::kQ8_0: return (dims + kKvFour - 1) / kKvFour * kKvFour;
    case KvType::kFp8: return dims;
    case KvType::kQ4_0: return int64_t{kKvPairBytes} * kv_scales(dims);
  }
  return 0;
}

/// Bytes of K, or of V, of one kv head in one block.
constexpr int64_t kv_head_bytes(KvType type, int32_t block_size, int32_t dims) {
  const int64_t scales = kv_scaled(type) ? 2 * kv_scales(dims) : 0;
  return block_size * (kv_value_bytes(type, dims) + scales);
}

/// Indices of (dimension, position in the block) within a head of K or of V that has `dims`
/// dimensions, and of their scales. In q4_0 they are those of the byte that has the code.
struct KvIndex {
  int32_t block_size;
  int32_t dims;

  constexpr int64_t k(KvType type, int32_t dim, int32_t offset) const {
    switch (type) {
      case KvType::kQ8_0: return four(dim / kKvFour, dim, offset);
      case KvType::kQ4_0: return four(dim / (2 * kKvFour), dim, offset);
      default: return int64_t{dim} * block_size + offset;
    }
  }
  constexpr int64_t v(KvType type, int32_t dim, int32_t offset) const {
    switch (type) {
      case KvType::kQ8_0: return two(dims, dim, offset);
      case KvType::kQ4_0:
        return two(kKvPairBytes * kv_scales(dims),
                   dim / kKvScaleDims * kKvPairBytes + dim % kKvPairBytes, offset);
      default: return int64_t{offset} * dims + dim;
    }
  }
  /// Whether q4_0 has the code in the upper bits.
  static constexpr bool k_in_upper(int32_t dim) { return dim % (2 * kKvFour) >= kKvFour; }
  static constexpr bool v_in_upper(int32_t dim) { return dim % kKvScaleDims >= kKvPairBytes; }
  constexpr int64_t scale(int32_t dim, int32_t offset) const {
    return int64_t{dim / kKvScaleDims} * block_size + offset;
  }

 private:
  constexpr int64_t four(int32_t row, int32_t dim, int32_t offset) const {
    return (int64_t{row} * block_size + offset) * kKvFour + dim % kKvFour;
  }
  static constexpr int64_t two(int32_t width, int32_t column, int32_t offset) {
    return (int64_t{offset / 2} * width + column) * 2 + offset % 2;
  }
};

}  // namespace hearth::kernels
