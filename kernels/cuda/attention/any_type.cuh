#pragma once
// KV whose K and V have different types, or fp8, or q4_0: in the layout of kv_layout.h, read and
// written one value at a time by types that a kernel's arguments name.

#include <cstddef>

#include "kernels/cuda/attention/kv.cuh"

namespace hearth::kernels {

/// In place of an element type.
struct AnyType {};
template <>
inline constexpr bool kScaled<AnyType> = false;  // its values are read with their scales

/// The number of an E4M3 code, exact.
__device__ inline float e4m3_number(uint32_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const float small = static_cast<float>(magnitude) * 0x1p-9f;  // below 2^-6
  const float number = magnitude < 8 ? small : __uint_as_float((magnitude << 20) + 0x3c000000u);
  return (code & 0x80u) != 0 ? -number : number;
}
/// As e4m3_from_f32 of kernels/ops/half.h.
__device__ inline uint32_t e4m3_code(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t most = 0x43e00000u;  // 448
  const uint32_t magnitude = (bits & 0x7fffffffu) < most ? bits & 0x7fffffffu : most;
  const uint32_t normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const uint32_t small = __float_as_uint(__uint_as_float(magnitude) + 24576.0f);
  const uint32_t code = magnitude >= 0x3c800000u ? normal - (120u << 3) : small - 0x46c00000u;
  return code | (bits >> 24 & 0x80u);
}

/// K or V of one head in one block.
template <typename Byte>
struct AnyHead {
  Byte* head;
  KvType type;
  KvIndex at;
  bool of_k;

  /// Of q4_0, the byte that has the code.
  __device__ int64_t value(int d, int offset) const {
    return of_k ? at.k(type, d, offset) : at.v(type, d, offset);
  }
  __device__ bool upper(int d) const {
    return of_k ? KvIndex::k_in_upper(d) : KvIndex::v_in_upper(d);
  }
  /// Bytes from `head` to the scale.
  __device__ int64_t scale(int d, int offset) const {
    return at.block_size * kv_value_bytes(type, at.dims) + 2 * at.scale(d, offset);
  }

  __device__ float load(int d, int offset) const {
    float number = 0;
    switch (type) {
      case KvType::kF32: return reinterpret_cast<const float*>(head)[value(d, offset)];
      case KvType::kF16: return to_float(reinterpret_cast<const Half*>(head)[value(d, offset)]);
      case KvType::kBF16:
        return to_float(reinterpret_cast<const BFloat16*>(head)[value(d, offset)]);
      case KvType::kQ8_0: {
        const std::byte code = head[value(d, offset)];
        number = of_k ? std::to_integer<int>(code) - kKvKeyBias : static_cast<int8_t>(code);
        break;
      }
      case KvType::kFp8:
        number = e4m3_number(std::to_integer<uint32_t>(head[value(d, offset)]));
        break;
      case KvType::kQ4_0: {
        const int pairs = std::to_integer<int>(head[value(d, offset)]);
        number = static_cast<float>((upper(d) ? pairs >> 4 : pairs & 15) - 8);
        break;
      }
    }
    return number * to_float(*reinterpret_cast<const Half*>(head + scale(d, offset)));  // exact
  }
};

__device__ inline AnyHead<const std::byte> any_key(const KvView& kv, int64_t block, int kv_head) {
  const int64_t bytes = kv_head_bytes(kv.k_type, kv.block_size, kv.k_dim);
  return {keys<const std::byte>(kv, block) + kv_head * bytes,
          kv.k_type,
          {kv.block_size, kv.k_dim},
          true};
}
/// Where V is the front of K, K.
__device__ inline AnyHead<const std::byte> any_value(const KvView& kv, int64_t block, int kv_head) {
  if (kv.v_in_k) return any_key(kv, block, kv_head);
  const int64_t bytes = kv_head_bytes(kv.v_type, kv.block_size, kv.v_dim);
  return {values<const std::byte>(kv, block) + kv_head * bytes,
          kv.v_type,
          {kv.block_size, kv.v_dim},
          false};
}

}  // namespace hearth::kernels
