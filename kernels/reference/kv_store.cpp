#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

void store(std::byte* head, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32: reinterpret_cast<float*>(head)[index] = value; break;
    case DType::kF16: reinterpret_cast<uint16_t*>(head)[index] = f16_from_f32(value); break;
    case DType::kBF16: reinterpret_cast<uint16_t*>(head)[index] = bf16_from_f32(value); break;
    default: HEARTH_CHECK(false, "KV type {}", info(dtype).name);
  }
}

/// The scale of n values, as stored.
uint16_t scale_of(const float* x, int32_t n) {
  float largest = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return f16_from_f32(std::numeric_limits<float>::quiet_NaN());
    largest = std::max(largest, std::abs(x[i]));
  }
  return f16_from_f32(largest / 127.0f);
}

int8_t quantized(float x, uint16_t scale) {
  const float d = f32_from_f16(scale);
  if (d == 0 || !std::isfinite(d)) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(x * (1.0f / d)), -127.0f, 127.0f));
}

/// Stores K or V of one head of one token; `index_of(d)` and `scale_index_of(d)` give the places of
/// dimension d.
template <typename IndexOf, typename ScaleIndexOf>
void store_head(std::byte* head, DType dtype, const KvIndex& at, const float* x,
                const IndexOf& index_of, const ScaleIndexOf& scale_index_of) {
  if (dtype != DType::kQ8_0) {
    for (int32_t d = 0; d < at.dims; ++d) store(head, dtype, index_of(d), x[d]);
    return;
  }
  std::byte* scales = head + at.values();
  for (int32_t first = 0; first < at.dims; first += kKvScaleDims) {
    const int32_t n = std::min(kKvScaleDims, at.dims - first);
    const uint16_t scale = scale_of(x + first, n);
    std::memcpy(scales + 2 * scale_index_of(first), &scale, sizeof scale);
    for (int32_t d = first; d < first + n; ++d) {
      head[index_of(d)] = static_cast<std::byte>(quantized(x[d], scale));
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
  const int64_t k_bytes = kv_head_bytes(kv.dtype, kv.block_size, shape.k_dim);
  const int64_t v_bytes = kv_head_bytes(kv.dtype, kv.block_size, shape.v_dim);
  const int32_t* slots = args.batch->groups[args.group].slot_mapping;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    if (slots[t] < 0) continue;
    const int32_t offset = slots[t] % kv.block_size;
    std::byte* layer = kv.base + slots[t] / kv.block_size * kv.block_bytes + kv.layer_offset;
    for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
      store_head(
          layer + h * k_bytes, kv.dtype, at_k, args.k.row<float>(t) + int64_t{h} * shape.k_dim,
          [&](int32_t d) { return at_k.k(d, offset); },
          [&](int32_t d) { return at_k.k_scale(d, offset); });
      if (shape.v_in_k) continue;
      store_head(
          layer + shape.num_kv_heads * k_bytes + h * v_bytes, kv.dtype, at_v,
          args.v.row<float>(t) + int64_t{h} * shape.v_dim,
          [&](int32_t d) { return at_v.v(d, offset); },
          [&](int32_t d) { return at_v.v_scale(d, offset); });
    }
  }
}

}  // namespace hearth::kernels::reference
