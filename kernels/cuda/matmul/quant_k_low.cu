#include "kernels/cuda/matmul/super.cuh"

namespace hearth::kernels {

HEARTH_SUPER_KERNELS(kQ2_K);
HEARTH_SUPER_KERNELS(kQ3_K);
HEARTH_SUPER_KERNELS(kQ4_K);

}  // namespace hearth::kernels
