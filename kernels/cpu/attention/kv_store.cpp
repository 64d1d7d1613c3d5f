#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"

namespace hearth::kernels::cpu {
namespace {

/// K of one head of one token, a column of (k_dim, block_size).
template <typename T>
void store_k(std::byte* head, const KvIndex& at, int32_t offset, const T* k) {
  T* column = reinterpret_cast<T*>(head) + offset;
  for (int64_t d = 0; d < at.dims; ++d) column[d * at.block_size] = k[d];
}

/// V of one head of one token, a row of (block_size, v_dim).
template <typename T>
void store_v(std::byte* head, const KvIndex& at, int32_t offset, const T* v) {
  std::memcpy(head + at.v(0, offset) * static_cast<int64_t>(sizeof(T)), v,
              static_cast<size_t>(at.dims) * sizeof(T));
}

void round_row(const RowKernels& kernels, DType dtype, const float* x, int64_t n, uint16_t* out) {
  if (dtype == DType::kF16) return kernels.to_f16(x, n, out);
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_from_f32(x[i]);
}

/// n values that share a scale (kv_layout.h). No branch per value, so that the loops vectorize on
/// any CPU.
void quantize(const float* x, int32_t n, int8_t* out, uint16_t* scale) {
  constexpr uint32_t kMagnitude = 0x7fffffffu;
  uint32_t largest_bits = 0;  // magnitudes order like their bits, infinity and NaN above all
  for (int32_t i = 0; i < n; ++i) {
    largest_bits = std::max(largest_bits, std::bit_cast<uint32_t>(x[i]) & kMagnitude);
  }
  constexpr uint32_t kInfinity = 0x7f800000u;
  *scale = largest_bits >= kInfinity ? f16_from_f32(std::bit_cast<float>(kInfinity + 0x400000u))
                                     : f16_from_f32(std::bit_cast<float>(largest_bits) / 127.0f);
  const float d = f32_from_f16(*scale);
  if (d == 0 || !(d < std::bit_cast<float>(kInfinity))) {
    std::memset(out, 0, n);
    return;
  }
  const float inverse = 1.0f / d;
  // Adding and subtracting 1.5 * 2^23 rounds half to even.
  constexpr float kShift = 12582912.0f;
  for (int32_t i = 0; i < n; ++i) {
    const float held = std::clamp(x[i] * inverse, -127.0f, 127.0f);
    out[i] = static_cast<int8_t>(static_cast<int32_t>((held + kShift) - kShift));
  }
}

void store_quantized_k(std::byte* head, const KvIndex& at, int32_t offset, const float* k) {
  for (int32_t first = 0; first < at.dims; first += kKvScaleDims) {
    const int32_t n = std::min(kKvScaleDims, at.dims - first);
    int8_t integers[kKvScaleDims];
    uint16_t scale;
    quantize(k + first, n, integers, &scale);
    std::memcpy(head + at.values() + 2 * at.k_scale(first, offset), &scale, sizeof scale);
    std::byte* column = head + at.k(first, offset);
    for (int64_t d = 0; d < n; ++d) column[d * at.block_size] = std::byte(integers[d]);
  }
}

void store_quantized_v(std::byte* head, const KvIndex& at, int32_t offset, const float* v) {
  for (int32_t first = 0; first < at.dims; first += kKvScaleDims) {
    const int32_t n = std::min(kKvScaleDims, at.dims - first);
    int8_t integers[kKvScaleDims];
    uint16_t scale;
    quantize(v + first, n, integers, &scale);
    std::memcpy(head + at.values() + 2 * at.v_scale(first, offset), &scale, sizeof scale);
    std::memcpy(head + at.v(first, offset), integers, static_cast<size_t>(n));
  }
}

}  // namespace

void kv_store(void* state_pointer, const KvStoreArgs& args) {
  check_args(args);
  auto& state = *static_cast<CpuState*>(state_pointer);
  const PagedKv& kv = args.kv;
  const KvShape& shape = kv.shape;
  const KvIndex at_k{kv.block_size, shape.k_dim};
  const KvIndex at_v{kv.block_size, shape.v_dim};
  const int64_t k_bytes = kv_head_bytes(kv.dtype, kv.block_size, shape.k_dim);
  const int64_t v_bytes = kv_head_bytes(kv.dtype, kv.block_size, shape.v_dim);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int32_t* slots = args.batch->groups[args.group].slot_mapping;
  const int32_t most_dims = std::max(shape.k_dim, shape.v_dim);

  // Parallel over heads, not tokens: neighbouring tokens share cache lines of K.
  state.for_each(shape.num_kv_heads, rows * args.k.cols, [&](int64_t item, int32_t thread) {
    const auto head = static_cast<int32_t>(item);
    auto* rounded = reinterpret_cast<uint16_t*>(
        state.thread_scratch[thread].at_least(static_cast<size_t>(most_dims) * sizeof(uint16_t)));
    for (int32_t t = 0; t < rows; ++t) {
      if (slots[t] < 0) continue;
      const int32_t offset = slots[t] % kv.block_size;
      std::byte* layer = kv.base + slots[t] / kv.block_size * kv.block_bytes + kv.layer_offset;
      std::byte* k_head = layer + head * k_bytes;
      const float* k = args.k.row<float>(t) + int64_t{head} * shape.k_dim;
      if (kv.dtype == DType::kF32) {
        store_k(k_head, at_k, offset, k);
      } else if (kv.dtype == DType::kQ8_0) {
        store_quantized_k(k_head, at_k, offset, k);
      } else {
        round_row(state.rows, kv.dtype, k, shape.k_dim, rounded);
        store_k(k_head, at_k, offset, rounded);
      }
      if (shape.v_in_k) continue;
      std::byte* v_head = layer + shape.num_kv_heads * k_bytes + head * v_bytes;
      const float* v = args.v.row<float>(t) + int64_t{head} * shape.v_dim;
      if (kv.dtype == DType::kF32) {
        store_v(v_head, at_v, offset, v);
      } else if (kv.dtype == DType::kQ8_0) {
        store_quantized_v(v_head, at_v, offset, v);
      } else {
        round_row(state.rows, kv.dtype, v, shape.v_dim, rounded);
        store_v(v_head, at_v, offset, rounded);
      }
    }
  });
}

}  // namespace hearth::kernels::cpu
