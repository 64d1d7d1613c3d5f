#include "kernels/cuda/matmul/quant.cuh"

namespace hearth::kernels {

HEARTH_QUANT_KERNELS(kQ5_0);
HEARTH_QUANT_KERNELS(kQ5_1);
HEARTH_QUANT_KERNELS(kIQ4_NL);
HEARTH_QUANT_KERNELS(kMXFP4);
HEARTH_QUANT_KERNELS(kNVFP4);

}  // namespace hearth::kernels
