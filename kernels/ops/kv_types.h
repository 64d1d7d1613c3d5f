#pragma once
// What a layer stores for each token: the types of K and V, and their sizes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/ops/dtype.h"
#include "kernels/ops/kv_type.h"

namespace hearth::kernels {

/// The types of K and of V in a pool.
struct KvTypes {
  KvType k = KvType::kF16;
  KvType v = KvType::kF16;

  constexpr KvTypes() = default;
  constexpr KvTypes(KvType both) : k(both), v(both) {}  // NOLINT(google-explicit-constructor)
  constexpr KvTypes(KvType of_k, KvType of_v) : k(of_k), v(of_v) {}
  /// The KV type of the same name: f32, f16, bf16, q8_0, q4_0.
  KvTypes(DType both);  // NOLINT(google-explicit-constructor)
  constexpr bool alike() const { return k == v; }
  constexpr bool operator==(const KvTypes&) const = default;
};

/// "F16", "FP8"; of two types "Q8_0/Q4_0", K's first.
std::string_view kv_type_name(KvType type);
std::string kv_type_name(KvTypes types);
/// Reads "f16", or "q8_0/q4_0"; empty for anything else.
std::optional<KvTypes> kv_types_from(std::string_view name);

/// The sizes of K and V.
struct KvShape {
  int32_t num_kv_heads = 0;
  int32_t k_dim = 0;    ///< values of K per head
  int32_t v_dim = 0;    ///< values of V per head
  bool v_in_k = false;  ///< V is the first v_dim values of K and is not stored a second time
                        ///< (multi-head latent attention; DeepSeek-AI 2024, section 2.1)

  /// K and V of `dim` values per head.
  static constexpr KvShape even(int32_t num_kv_heads, int32_t dim) {
    return {num_kv_heads, dim, dim, false};
  }
  int64_t k_width() const { return int64_t{num_kv_heads} * k_dim; }
  int64_t v_width() const { return int64_t{num_kv_heads} * v_dim; }
  bool operator==(const KvShape&) const = default;
};

/// Bytes that one layer takes in one block: K and V of block_size tokens. Equal in every table,
/// because the block plan is made before a device is chosen.
int64_t kv_layer_bytes(KvTypes types, int32_t block_size, const KvShape& shape);

}  // namespace hearth::kernels
