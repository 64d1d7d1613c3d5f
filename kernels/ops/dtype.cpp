#include "kernels/ops/dtype.h"

#include <array>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::kernels {
namespace {

struct Entry {
  DType type;
  DTypeInfo info;
};

// Block sizes as published in ggml's type table (ggml-common.h): elements and bytes per block.
constexpr std::array kTypes = {
    Entry{DType::kF32, {"F32", 1, 4, true}},
    Entry{DType::kF16, {"F16", 1, 2, true}},
    Entry{DType::kQ4_0, {"Q4_0", 32, 18, true}},
    Entry{DType::kQ4_1, {"Q4_1", 32, 20, true}},
    Entry{DType::kQ5_0, {"Q5_0", 32, 22, true}},
    Entry{DType::kQ5_1, {"Q5_1", 32, 24, true}},
    Entry{DType::kQ8_0, {"Q8_0", 32, 34, true}},
    Entry{DType::kQ8_1, {"Q8_1", 32, 36, false}},
    Entry{DType::kQ2_K, {"Q2_K", 256, 84, true}},
    Entry{DType::kQ3_K, {"Q3_K", 256, 110, true}},
    Entry{DType::kQ4_K, {"Q4_K", 256, 144, true}},
    Entry{DType::kQ5_K, {"Q5_K", 256, 176, true}},
    Entry{DType::kQ6_K, {"Q6_K", 256, 210, true}},
    Entry{DType::kQ8_K, {"Q8_K", 256, 292, false}},
    Entry{DType::kIQ2_XXS, {"IQ2_XXS", 256, 66, true}},
    Entry{DType::kIQ2_XS, {"IQ2_XS", 256, 74, true}},
    Entry{DType::kIQ3_XXS, {"IQ3_XXS", 256, 98, true}},
    Entry{DType::kIQ1_S, {"IQ1_S", 256, 50, true}},
    Entry{DType::kIQ4_NL, {"IQ4_NL", 32, 18, true}},
    Entry{DType::kIQ3_S, {"IQ3_S", 256, 110, true}},
    Entry{DType::kIQ2_S, {"IQ2_S", 256, 82, true}},
    Entry{DType::kIQ4_XS, {"IQ4_XS", 256, 136, true}},
    Entry{DType::kI8, {"I8", 1, 1, false}},
    Entry{DType::kI16, {"I16", 1, 2, false}},
    Entry{DType::kI32, {"I32", 1, 4, false}},
    Entry{DType::kI64, {"I64", 1, 8, false}},
    Entry{DType::kF64, {"F64", 1, 8, false}},
    Entry{DType::kIQ1_M, {"IQ1_M", 256, 56, true}},
    Entry{DType::kBF16, {"BF16", 1, 2, true}},
    Entry{DType::kTQ1_0, {"TQ1_0", 256, 54, true}},
    Entry{DType::kTQ2_0, {"TQ2_0", 256, 66, true}},
    Entry{DType::kMXFP4, {"MXFP4", 32, 17, true}},
    Entry{DType::kNVFP4, {"NVFP4", 64, 36, true}},
};

}  // namespace

const DTypeInfo& info(DType type) {
  for (const Entry& entry : kTypes) {
    if (entry.type == type) return entry.info;
  }
  HEARTH_CHECK(false, "dtype {}", static_cast<int>(type));
  return kTypes.front().info;
}

std::optional<DType> dtype_from_gguf(uint32_t id) {
  for (const Entry& entry : kTypes) {
    if (to_underlying(entry.type) == id) return entry.type;
  }
  return std::nullopt;
}

}  // namespace hearth::kernels
