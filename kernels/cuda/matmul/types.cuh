#pragma once
// From a type known at run time to kernels compiled for it.

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

/// Calls f<packed_as(type)>() for a quantized type that the CUDA table packs.
template <typename F>
void with_quant_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kQ8_0: return f.template operator()<DType::kQ8_0>();
    case DType::kQ4_0: return f.template operator()<DType::kQ4_0>();
    case DType::kQ4_1: return f.template operator()<DType::kQ4_1>();
    case DType::kQ5_0: return f.template operator()<DType::kQ5_0>();
    case DType::kQ5_1: return f.template operator()<DType::kQ5_1>();
    case DType::kIQ4_NL: return f.template operator()<DType::kIQ4_NL>();
    case DType::kMXFP4: return f.template operator()<DType::kMXFP4>();
    case DType::kQ2_K: return f.template operator()<DType::kQ2_K>();
    case DType::kQ3_K: return f.template operator()<DType::kQ3_K>();
    case DType::kQ4_K: return f.template operator()<DType::kQ4_K>();
    case DType::kQ5_K: return f.template operator()<DType::kQ5_K>();
    case DType::kQ6_K: return f.template operator()<DType::kQ6_K>();
    case DType::kIQ4_XS: return f.template operator()<DType::kIQ4_XS>();
    case DType::kTQ1_0:
    case DType::kTQ2_0: return f.template operator()<DType::kTQ2_0>();
    case DType::kNVFP4: return f.template operator()<DType::kNVFP4>();
    case DType::kIQ2_XXS: return f.template operator()<DType::kIQ2_XXS>();
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return f.template operator()<DType::kIQ2_S>();
    case DType::kIQ3_XXS: return f.template operator()<DType::kIQ3_XXS>();
    case DType::kIQ3_S: return f.template operator()<DType::kIQ3_S>();
    case DType::kIQ1_S: return f.template operator()<DType::kIQ1_S>();
    case DType::kIQ1_M: return f.template operator()<DType::kIQ1_M>();
    default: HEARTH_EXPECT(false, static_cast<int>(dtype));
  }
}

}  // namespace hearth::kernels
