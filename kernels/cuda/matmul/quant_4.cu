#include "kernels/cuda/matmul/quant.cuh"

namespace hearth::kernels {

HEARTH_QUANT_KERNELS(kQ8_0);
HEARTH_QUANT_KERNELS(kQ4_0);
HEARTH_QUANT_KERNELS(kQ4_1);

}  // namespace hearth::kernels
