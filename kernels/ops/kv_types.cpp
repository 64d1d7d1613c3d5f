#include "kernels/ops/kv_types.h"

#include <array>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/ops/kv_layout.h"

namespace hearth::kernels {
namespace {

struct NamedType {
  std::string_view shown;
  std::string_view given;  ///< in configurations
};
// In the order of KvType.
constexpr std::array<NamedType, kNumKvTypes> kNames = {{{"F32", "f32"},
                                                        {"F16", "f16"},
                                                        {"BF16", "bf16"},
                                                        {"Q8_0", "q8_0"},
                                                        {"FP8", "fp8"},
                                                        {"Q4_0", "q4_0"}}};

KvType same_name(DType type) {
  switch (type) {
    case DType::kF32: return KvType::kF32;
    case DType::kF16: return KvType::kF16;
    case DType::kBF16: return KvType::kBF16;
    case DType::kQ8_0: return KvType::kQ8_0;
    case DType::kQ4_0: return KvType::kQ4_0;
    default: HEARTH_CHECK(false, "KV type {}", info(type).name);
  }
  return KvType::kF16;
}

std::optional<KvType> one_type(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].given == name) return static_cast<KvType>(i);
  }
  return std::nullopt;
}

}  // namespace

KvTypes::KvTypes(DType both) : KvTypes(same_name(both)) {}

std::string_view kv_type_name(KvType type) { return kNames[to_underlying(type)].shown; }

std::string kv_type_name(KvTypes types) {
  std::string name(kv_type_name(types.k));
  if (!types.alike()) name.append("/").append(kv_type_name(types.v));
  return name;
}

std::optional<KvTypes> kv_types_from(std::string_view name) {
  const size_t slash = name.find('/');
  const auto k = one_type(name.substr(0, slash));
  const auto v = slash == name.npos ? k : one_type(name.substr(slash + 1));
  if (!k || !v) return std::nullopt;
  return KvTypes(*k, *v);
}

int64_t kv_layer_bytes(KvTypes types, int32_t block_size, const KvShape& shape) {
  const int64_t k = kv_head_bytes(types.k, block_size, shape.k_dim);
  const int64_t v = shape.v_in_k ? 0 : kv_head_bytes(types.v, block_size, shape.v_dim);
  return shape.num_kv_heads * (k + v);
}

}  // namespace hearth::kernels
