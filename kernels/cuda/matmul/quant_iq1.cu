#include "kernels/cuda/matmul/super.cuh"

namespace hearth::kernels {

HEARTH_SUPER_KERNELS(kIQ1_S);
HEARTH_SUPER_KERNELS(kIQ1_M);
HEARTH_SUPER_KERNELS(kTQ2_0);

}  // namespace hearth::kernels
