#pragma once
#include "kernels/cpu/matmul/quantized_body.h"

namespace hearth::kernels {

constinit const FamilyKernels HEARTH_OF_SET(kMatmulWide) = family_kernels<QuantFamily::kWide>();

}  // namespace hearth::kernels
