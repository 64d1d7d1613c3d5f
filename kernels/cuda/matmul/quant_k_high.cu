#include "kernels/cuda/matmul/quant.cuh"

namespace hearth::kernels {

HEARTH_QUANT_KERNELS(kQ5_K);
HEARTH_QUANT_KERNELS(kQ6_K);
HEARTH_QUANT_KERNELS(kIQ4_XS);

}  // namespace hearth::kernels
