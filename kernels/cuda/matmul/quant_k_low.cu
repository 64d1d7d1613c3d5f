#include "kernels/cuda/matmul/quant.cuh"

namespace hearth::kernels {

HEARTH_QUANT_KERNELS(kQ2_K);
HEARTH_QUANT_KERNELS(kQ3_K);
HEARTH_QUANT_KERNELS(kQ4_K);

}  // namespace hearth::kernels
