#pragma once
#include "kernels/cpu/matmul/quantized_body.h"

namespace hearth::kernels {

constinit const FamilyKernels HEARTH_OF_SET(kMatmulOffset) = family_kernels<QuantFamily::kOffset>();

}  // namespace hearth::kernels
