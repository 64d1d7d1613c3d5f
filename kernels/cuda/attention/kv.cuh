#pragma once
// One layer of a paged KV pool in the form that kernels take (layout: kernels/cuda/layout.cuh).

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/layout.cuh"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_rotation.h"

namespace hearth::kernels {

struct KvView {
  std::byte* base;
  int64_t block_bytes;
  int64_t layer_offset;
  int64_t value_offset;  ///< bytes from the layer's start to V; 0 if V lies in K
  int32_t block_size;
  int32_t num_kv_heads;
  int32_t k_dim;
  int32_t v_dim;
  bool v_in_k;  ///< V is the front of K, which is then laid out as K alone
  KvType k_type;
  KvType v_type;
};

/// True if the kernels for one element type do not store these (kernels/cuda/attention/any_type.cuh
/// does).
constexpr bool any_types(KvTypes types) {
  return !types.alike() || types.k == KvType::kFp8 || types.k == KvType::kQ4_0;
}

inline KvView kv_view(const PagedKv& kv) {
  const KvShape& shape = kv.shape;
  const int64_t k_bytes =
      shape.num_kv_heads * kv_head_bytes(kv.types.k, kv.block_size, shape.k_dim);
  return {kv.base,       kv.block_bytes,     kv.layer_offset, shape.v_in_k ? 0 : k_bytes,
          kv.block_size, shape.num_kv_heads, shape.k_dim,     shape.v_dim,
          shape.v_in_k,  kv.types.k,         kv.types.v};
}

template <typename T>
__device__ T* keys(const KvView& kv, int64_t block) {
  return reinterpret_cast<T*>(kv.base + block * kv.block_bytes + kv.layer_offset);
}
template <typename T>
__device__ T* values(const KvView& kv, int64_t block) {
  return reinterpret_cast<T*>(kv.base + block * kv.block_bytes + kv.layer_offset + kv.value_offset);
}

/// In q8_0 (int8_t here), the scales of all heads follow the integers of all heads.
template <typename T>
inline constexpr bool kScaled = sizeof(T) == 1;
/// Index of the scale of 32 dimensions. For K, scales of neighbouring positions are adjacent; for
/// V, those of one position.
__device__ inline int64_t key_scale(const KvView& kv, int kv_head, int position, int d) {
  const int64_t line = int64_t{kv_head} * kv_scales(kv.k_dim) + d / kKvScaleDims;
  return line * kv.block_size + position;
}
__device__ inline int64_t value_scale(const KvView& kv, int kv_head, int position, int d) {
  const int64_t line = int64_t{kv_head} * kv.block_size + position;
  return line * kv_scales(kv.v_dim) + d / kKvScaleDims;
}
/// The scales of K or of V, whose integers begin at `integers`, with `dims` of each head.
template <typename Byte>
__device__ auto scales_of(const KvView& kv, Byte* integers, int dims) {
  using ScaleOf = std::conditional_t<std::is_const_v<Byte>, const Half, Half>;
  return reinterpret_cast<ScaleOf*>(integers + int64_t{kv.num_kv_heads} * kv.block_size * dims);
}

/// A lane's value of 32 that a warp rotates, as rotate_head of kernels/ops/kv_rotation.h.
__device__ inline float rotated_lane(float value, float factor) {
  const int lane = thread_x() % kWarp;
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, distance);
    value = (lane & distance) != 0 ? other - value : value + other;
  }
  return value * factor;
}

}  // namespace hearth::kernels
