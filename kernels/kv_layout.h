#pragma once
// Layout of one layer's K and V inside a block, shared by the reference and the CPU tables (so that
// checked_ops can run both on one pool):
//   K  (num_kv_heads, head_dim, block_size)   transposed: 16 positions of one dimension are a
//   vector V  (num_kv_heads, block_size, head_dim)   right behind K
// Plain data: files built for one instruction set include this.

#include <cstdint>

namespace hearth::kernels {

struct KvLayout {
  int32_t block_size;
  int32_t num_kv_heads;
  int32_t head_dim;

  /// Element index of K of (head, dimension, position in the block) within the layer's part.
  int64_t k(int32_t head, int32_t dim, int32_t offset) const {
    return (static_cast<int64_t>(head) * head_dim + dim) * block_size + offset;
  }
  int64_t v(int32_t head, int32_t offset, int32_t dim) const {
    return (static_cast<int64_t>(num_kv_heads + head) * block_size + offset) * head_dim + dim;
  }
};

}  // namespace hearth::kernels
