#pragma once
// Element types of weights, activations and KV. Plain data only, because files built for one
// instruction set include this header.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth::kernels {

/// Values are GGUF's tensor type ids (ggml's published table), so an id from a file converts once
/// `dtype_from_gguf` has checked it. For types whose `usable_as_weight` is false, only the size is
/// known.
enum class DType : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

struct DTypeInfo {
  std::string_view name;   ///< as in GGUF file listings: "Q8_0"
  int32_t block_elements;  ///< elements that share one stored block; 1 for plain types
  int32_t block_bytes;     ///< bytes of one stored block
  bool usable_as_weight;   ///< `pack_weights` accepts it
};

/// Name and sizes of a type. Every enumerator has an entry.
const DTypeInfo& info(DType type);

/// The type with this GGUF id; empty for an unknown id.
std::optional<DType> dtype_from_gguf(uint32_t id);

/// Bytes of `num_elements` (a multiple of the block) of `type`. The caller has checked overflow.
inline uint64_t bytes_of(DType type, uint64_t num_elements) {
  const DTypeInfo& i = info(type);
  return num_elements / i.block_elements * i.block_bytes;
}

}  // namespace hearth::kernels
