#pragma once
#include "kernels/cpu/matmul/quantized_body.h"

namespace hearth::kernels {

constinit const FamilyKernels HEARTH_OF_SET(kMatmulMin) = family_kernels<QuantFamily::kMin>();

}  // namespace hearth::kernels
