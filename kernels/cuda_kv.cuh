#pragma once
// One layer of a paged KV pool as kernels take it (layout: cuda_layout.cuh).

#include "kernels/cuda_device.cuh"
#include "kernels/cuda_layout.cuh"

namespace hearth::kernels {

struct KvView {
  std::byte* base;
  int64_t block_bytes;
  int64_t layer_offset;
  int64_t value_offset;  ///< of V behind the layer's start, bytes
  int32_t block_size;
  int32_t num_kv_heads;
  int32_t head_dim;
};

inline KvView kv_view(const PagedKv& kv) {
  return {
      kv.base,         kv.block_bytes,
      kv.layer_offset, kv_layer_bytes(kv.dtype, kv.block_size, kv.num_kv_heads, kv.head_dim) / 2,
      kv.block_size,   kv.num_kv_heads,
      kv.head_dim};
}

template <typename T>
__device__ T* keys(const KvView& kv, int64_t block) {
  return reinterpret_cast<T*>(kv.base + block * kv.block_bytes + kv.layer_offset);
}
template <typename T>
__device__ T* values(const KvView& kv, int64_t block) {
  return reinterpret_cast<T*>(kv.base + block * kv.block_bytes + kv.layer_offset + kv.value_offset);
}

}  // namespace hearth::kernels
