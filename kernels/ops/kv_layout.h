#pragma once
// Layout of one layer's K and V inside a block, shared by the reference and the CPU tables so that
// checked_ops can run both on one pool: K of every kv head, then V of every kv head (unless V is
// the front of K), each kv_head_bytes() long.
//   K  (k_dim, block_size)   transposed: 16 positions of one dimension form a vector
//   V  (block_size, v_dim)
// f16 and bf16 values are rounded to nearest even. In q8_0 the elements are signed bytes, followed
// by f16 scales, one per 32 dimensions; a value is integer * scale, exact in f32. The last scale of
// a head may cover fewer dimensions.
//   K scales  (ceil(k_dim / 32), block_size)
//   V scales  (block_size, ceil(v_dim / 32))
// Per 32 values x of a head and token: d = f16(max |x| / 127), integer = x * (1 / d) rounded half
// to even, clamped to -127 .. 127. All integers are 0 if d is 0, infinite or NaN. d is NaN if some
// x is not finite: then no finite value is read back.

#include <cstdint>

#include "kernels/ops/dtype.h"

namespace hearth::kernels {

inline constexpr int32_t kKvScaleDims = 32;  ///< dimensions that share a scale in q8_0

constexpr int32_t kv_scales(int32_t dims) { return (dims + kKvScaleDims - 1) / kKvScaleDims; }

/// Bytes of K, or of V, of one kv head in one block.
inline int64_t kv_head_bytes(DType dtype, int32_t block_size, int32_t dims) {
  if (dtype == DType::kQ8_0) {
    return static_cast<int64_t>(block_size) * (dims + 2 * kv_scales(dims));
  }
  return static_cast<int64_t>(
      bytes_of(dtype, static_cast<uint64_t>(block_size) * static_cast<uint64_t>(dims)));
}

/// Indices of (dimension, position in the block) within a head of K or of V that has `dims`
/// dimensions, and of their scales.
struct KvIndex {
  int32_t block_size;
  int32_t dims;

  int64_t k(int32_t dim, int32_t offset) const {
    return static_cast<int64_t>(dim) * block_size + offset;
  }
  int64_t v(int32_t dim, int32_t offset) const { return static_cast<int64_t>(offset) * dims + dim; }
  int64_t values() const { return static_cast<int64_t>(block_size) * dims; }
  int64_t k_scale(int32_t dim, int32_t offset) const {
    return int64_t{dim / kKvScaleDims} * block_size + offset;
  }
  int64_t v_scale(int32_t dim, int32_t offset) const {
    return static_cast<int64_t>(offset) * kv_scales(dims) + dim / kKvScaleDims;
  }
};

}  // namespace hearth::kernels
