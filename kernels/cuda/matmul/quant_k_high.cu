#include "kernels/cuda/matmul/super.cuh"

namespace hearth::kernels {

HEARTH_SUPER_KERNELS(kQ5_K);
HEARTH_SUPER_KERNELS(kQ6_K);
HEARTH_SUPER_KERNELS(kIQ4_XS);

}  // namespace hearth::kernels
