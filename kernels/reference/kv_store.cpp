#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_rotation.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

void store(std::byte* head, KvType type, int64_t index, float value) {
  switch (type) {
    case KvType::kF32: reinterpret_cast<float*>(head)[index] = value; return;
    case KvType::kF16: reinterpret_cast<uint16_t*>(head)[index] = f16_from_f32(value); return;
    case KvType::kBF16: reinterpret_cast<uint16_t*>(head)[index] = bf16_from_f32(value); return;
    case KvType::kQ8_0:
    case KvType::kFp8:
    case KvType::kQ4_0: break;
  }
  HEARTH_CHECK(false, "KV type {}", kv_type_name(type));
}

/// The scale of 32 values, as stored.
uint16_t scale_of(KvType type, std::span<const float> x) {
  float most = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) return f16_from_f32(std::numeric_limits<float>::quiet_NaN());
    const bool larger = std::abs(value) > std::abs(most);
    if (larger || value == -std::abs(most)) most = value;
  }
  if (type == KvType::kQ4_0) return f16_from_f32(most == 0 ? 0.0f : most / -8);
  if (type == KvType::kFp8) {
    return f16_from_f32(std::min(std::abs(most) / kMostE4m3, kMostFp8Scale));
  }
  return f16_from_f32(std::abs(most) / 127.0f);
}

/// The code of a value, in 4 bits for q4_0.
uint8_t code_of(KvType type, float x, uint16_t scale) {
  const float d = f32_from_f16(scale);
  const float q = d == 0 || !std::isfinite(d) ? 0.0f : x * (1.0f / d);
  if (type == KvType::kFp8) return e4m3_from_f32(q);
  if (type == KvType::kQ4_0) {
    return static_cast<uint8_t>(std::clamp(std::nearbyint(q), -8.0f, 7.0f) + 8);
  }
  return static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(q), -127.0f, 127.0f)));
}

/// Where K, or V, of one token is: the places of dimension d in a head.
struct Places {
  KvIndex at;
  int32_t offset;  ///< the token's position in the block
  bool of_k;

  /// Of q4_0, the byte that has the code.
  int64_t value(KvType type, int32_t d) const {
    return of_k ? at.k(type, d, offset) : at.v(type, d, offset);
  }
  bool upper(int32_t d) const { return of_k ? KvIndex::k_in_upper(d) : KvIndex::v_in_upper(d); }
  int64_t scale(int32_t d) const { return at.scale(d, offset); }
};

/// Stores K or V of one head of one token.
void store_head(std::byte* head, KvType type, const Places& places, const float* x) {
  const KvIndex& at = places.at;
  if (!kv_scaled(type)) {
    for (int32_t d = 0; d < at.dims; ++d) store(head, type, places.value(type, d), x[d]);
    return;
  }
  std::byte* scales = head + at.block_size * kv_value_bytes(type, at.dims);
  for (int32_t first = 0; first < at.dims; first += kKvScaleDims) {
    std::array<float, kKvScaleDims> values = {};
    std::copy_n(x + first, std::min(kKvScaleDims, at.dims - first), values.begin());
    const uint16_t scale = scale_of(type, values);
    std::memcpy(scales + 2 * places.scale(first), &scale, sizeof scale);
    for (int32_t i = 0; i < kKvScaleDims; ++i) {
      const int32_t d = first + i;
      const std::byte code{code_of(type, values[static_cast<size_t>(i)], scale)};
      if (type == KvType::kQ4_0) {
        std::byte& pair = head[places.value(type, d)];
        pair =
            places.upper(d) ? (pair & std::byte{15}) | code << 4 : (pair & std::byte{0xf0}) | code;
      } else if (d < at.dims) {
        const bool biased = type == KvType::kQ8_0 && places.of_k;
        head[places.value(type, d)] =
            biased ? std::byte(std::to_integer<int>(code) ^ kKvKeyBias) : code;
      }
    }
  }
}

}  // namespace

void kv_store(void*, const KvStoreArgs& args) {
  check_args(args);
  const PagedKv& kv = args.kv;
  const KvShape& shape = kv.shape;
  const KvIndex at_k{kv.block_size, shape.k_dim};
  const KvIndex at_v{kv.block_size, shape.v_dim};
  const int64_t k_bytes = kv_head_bytes(kv.types.k, kv.block_size, shape.k_dim);
  const int64_t v_bytes = kv_head_bytes(kv.types.v, kv.block_size, shape.v_dim);
  std::vector<float> rotated(static_cast<size_t>(shape.k_dim));
  const int32_t* slots = args.batch->groups[args.group].slot_mapping;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    if (slots[t] < 0) continue;
    const int32_t offset = slots[t] % kv.block_size;
    std::byte* layer = kv.base + slots[t] / kv.block_size * kv.block_bytes + kv.layer_offset;
    for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
      const float* k = args.k.row<float>(t) + int64_t{h} * shape.k_dim;
      if (kv_rotated(kv.types.k, shape.v_in_k)) {
        rotate_head(k, shape.k_dim, kRotatedKey, rotated.data());
        k = rotated.data();
      }
      store_head(layer + h * k_bytes, kv.types.k, {at_k, offset, true}, k);
      if (shape.v_in_k) continue;
      store_head(layer + shape.num_kv_heads * k_bytes + h * v_bytes, kv.types.v,
                 {at_v, offset, false}, args.v.row<float>(t) + int64_t{h} * shape.v_dim);
    }
  }
}

}  // namespace hearth::kernels::reference
