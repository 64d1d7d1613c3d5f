#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_rotation.h"

namespace hearth::kernels::cpu {
namespace {

void round_bf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_from_f32(x[i]);
}

/// K of one head of one token, a column of (k_dim, block_size).
template <typename T>
void store_k(std::byte* head, const KvIndex& at, int32_t offset, const T* k) {
  T* column = reinterpret_cast<T*>(head) + offset;
  for (int64_t d = 0; d < at.dims; ++d) column[d * at.block_size] = k[d];
}

/// V of one head of one token, a row of (block_size, v_dim).
template <typename T>
void store_v(std::byte* head, const KvIndex& at, int32_t offset, const T* v) {
  std::memcpy(head + int64_t{offset} * at.dims * static_cast<int64_t>(sizeof(T)), v,
              static_cast<size_t>(at.dims) * sizeof(T));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Adding and subtracting 1.5 * 2^23 rounds half to even.
constexpr float kShift = 12582912.0f;

/// Values that share a scale, padded with zeros, and their codes (kv_layout.h), one a byte. No
/// branch per value, so that the loops vectorize on any CPU.
struct ScaledValues {
  float x[kKvScaleDims] = {};
  uint8_t codes[kKvScaleDims];
  uint16_t scale;

  void quantize(const float* values, int32_t n, KvType type) {
    std::copy_n(values, n, x);
    scale = scale_of(type);
    const float d = f32_from_f16(scale);
    const bool zeros = d == 0 || !(d < kInfinity && d > -kInfinity);
    const float inverse = zeros ? 0.0f : 1.0f / d;
    if (zeros) std::fill_n(x, kKvScaleDims, 0.0f);
    if (type == KvType::kFp8) {
      for (int32_t i = 0; i < kKvScaleDims; ++i) codes[i] = e4m3_from_f32(x[i] * inverse);
    } else if (type == KvType::kQ4_0) {
      round(inverse, -8, 7, 8);
    } else {
      round(inverse, -127, 127, 0);
    }
  }

 private:
  /// Magnitudes order like their bits, infinity and NaN above all.
  static uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

  uint16_t scale_of(KvType type) const {
    uint32_t most = 0;  // a magnitude, then its sign
    for (const float value : x) most = std::max(most, std::rotl(bits_of(value), 1));
    if (most >> 1 >= bits_of(kInfinity)) {
      return f16_from_f32(std::numeric_limits<float>::quiet_NaN());
    }
    const auto signed_most = std::bit_cast<float>(std::rotr(most, 1));
    if (type == KvType::kQ4_0) return f16_from_f32(most >> 1 == 0 ? 0.0f : signed_most / -8);
    const float largest = std::abs(signed_most);
    if (type == KvType::kFp8) return f16_from_f32(std::min(largest / kMostE4m3, kMostFp8Scale));
    return f16_from_f32(largest / 127.0f);
  }

  void round(float inverse, float least, float most, int32_t plus) {
    for (int32_t i = 0; i < kKvScaleDims; ++i) {
      const float held = std::clamp(x[i] * inverse, least, most);
      codes[i] = static_cast<uint8_t>(static_cast<int32_t>((held + kShift) - kShift) + plus);
    }
  }
};

/// Quantizes a head's values, stores their scales, and calls store(values, first, number) for each
/// 32 dimensions.
template <typename Store>
void each_scale(std::byte* head, KvType type, const KvIndex& at, int32_t offset, const float* x,
                const Store& store) {
  std::byte* scales = head + at.block_size * kv_value_bytes(type, at.dims);
  ScaledValues all;
  for (int32_t first = 0; first < at.dims; first += kKvScaleDims) {
    const int32_t n = std::min(kKvScaleDims, at.dims - first);
    std::fill(all.x + n, all.x + kKvScaleDims, 0.0f);
    all.quantize(x + first, n, type);
    std::memcpy(scales + 2 * at.scale(first, offset), &all.scale, sizeof all.scale);
    store(all, first, n);
  }
}

/// `k` holds rotated values if K is rotated.
void store_scaled_k(std::byte* head, KvType type, const KvIndex& at, int32_t offset,
                    const float* k) {
  const int64_t row_bytes = int64_t{at.block_size} * kKvFour;
  each_scale(head, type, at, offset, k, [&](const ScaledValues& all, int32_t first, int32_t n) {
    std::byte* row = head + at.k(type, first, offset);
    switch (type) {
      case KvType::kQ8_0:
        for (int32_t d = 0; d < n; ++d) {
          row[d / kKvFour * row_bytes + d % kKvFour] = std::byte(all.codes[d] ^ kKvKeyBias);
        }
        return;
      case KvType::kQ4_0:
        for (int32_t i = 0; i < kKvScaleDims; i += 2 * kKvFour, row += row_bytes) {
          for (int32_t e = 0; e < kKvFour; ++e) {
            row[e] = std::byte(all.codes[i + e] | all.codes[i + kKvFour + e] << 4);
          }
        }
        return;
      default:
        for (int64_t d = 0; d < n; ++d) row[d * at.block_size] = std::byte{all.codes[d]};
    }
  });
}

void store_scaled_v(std::byte* head, KvType type, const KvIndex& at, int32_t offset,
                    const float* v) {
  each_scale(head, type, at, offset, v, [&](const ScaledValues& all, int32_t first, int32_t n) {
    std::byte* row = head + at.v(type, first, offset);
    switch (type) {
      case KvType::kQ8_0:
        for (int64_t d = 0; d < n; ++d) row[2 * d] = std::byte{all.codes[d]};
        return;
      case KvType::kQ4_0:
        for (int64_t i = 0; i < kKvPairBytes; ++i) {
          row[2 * i] = std::byte(all.codes[i] | all.codes[i + kKvPairBytes] << 4);
        }
        return;
      default: std::memcpy(row, all.codes, static_cast<size_t>(n));
    }
  });
}

/// `rounded` has room for the values of a head in 16 bits.
void store_head_k(const RowKernels& kernels, std::byte* head, KvType type, const KvIndex& at,
                  int32_t offset, const float* k, uint16_t* rounded) {
  switch (type) {
    case KvType::kF32: return store_k(head, at, offset, k);
    case KvType::kF16: kernels.to_f16(k, at.dims, rounded); break;
    case KvType::kBF16: round_bf16(k, at.dims, rounded); break;
    case KvType::kQ8_0:
    case KvType::kFp8:
    case KvType::kQ4_0: return store_scaled_k(head, type, at, offset, k);
  }
  store_k(head, at, offset, rounded);
}
void store_head_v(const RowKernels& kernels, std::byte* head, KvType type, const KvIndex& at,
                  int32_t offset, const float* v, uint16_t* rounded) {
  switch (type) {
    case KvType::kF32: return store_v(head, at, offset, v);
    case KvType::kF16: kernels.to_f16(v, at.dims, rounded); break;
    case KvType::kBF16: round_bf16(v, at.dims, rounded); break;
    case KvType::kQ8_0:
    case KvType::kFp8:
    case KvType::kQ4_0: return store_scaled_v(head, type, at, offset, v);
  }
  store_v(head, at, offset, rounded);
}

}  // namespace

void kv_store(void* state_pointer, const KvStoreArgs& args) {
  check_args(args);
  auto& state = *static_cast<CpuState*>(state_pointer);
  const PagedKv& kv = args.kv;
  const KvShape& shape = kv.shape;
  const KvIndex at_k{kv.block_size, shape.k_dim};
  const KvIndex at_v{kv.block_size, shape.v_dim};
  const int64_t k_bytes = kv_head_bytes(kv.types.k, kv.block_size, shape.k_dim);
  const int64_t v_bytes = kv_head_bytes(kv.types.v, kv.block_size, shape.v_dim);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int32_t* slots = args.batch->groups[args.group].slot_mapping;
  const int32_t most_dims = std::max(shape.k_dim, shape.v_dim);

  // Parallel over heads, not tokens: neighbouring tokens share cache lines of K.
  state.for_each(shape.num_kv_heads, rows * args.k.cols, [&](int64_t item, int32_t thread) {
    const auto head = static_cast<int32_t>(item);
    std::byte* scratch =
        state.thread_scratch[thread].at_least(static_cast<size_t>(most_dims) * sizeof(float));
    auto* rounded = reinterpret_cast<uint16_t*>(scratch);
    auto* rotated = reinterpret_cast<float*>(scratch);
    for (int32_t t = 0; t < rows; ++t) {
      if (slots[t] < 0) continue;
      const int32_t offset = slots[t] % kv.block_size;
      std::byte* layer = kv.base + slots[t] / kv.block_size * kv.block_bytes + kv.layer_offset;
      const float* k = args.k.row<float>(t) + int64_t{head} * shape.k_dim;
      if (kv_rotated(kv.types.k, shape.v_in_k)) {
        rotate_head(k, shape.k_dim, kRotatedKey, rotated);
        k = rotated;
      }
      store_head_k(state.rows, layer + head * k_bytes, kv.types.k, at_k, offset, k, rounded);
      if (shape.v_in_k) continue;
      store_head_v(state.rows, layer + shape.num_kv_heads * k_bytes + head * v_bytes, kv.types.v,
                   at_v, offset, args.v.row<float>(t) + int64_t{head} * shape.v_dim, rounded);
    }
  });
}

}  // namespace hearth::kernels::cpu
