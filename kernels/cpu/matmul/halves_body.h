#pragma once
#include "kernels/cpu/matmul/quantized_body.h"

namespace hearth::kernels {

constinit const FamilyKernels HEARTH_OF_SET(kMatmulHalves) = family_kernels<QuantFamily::kHalves>();

}  // namespace hearth::kernels
