#include "kernels/cuda/matmul/super.cuh"

namespace hearth::kernels {

HEARTH_SUPER_KERNELS(kIQ2_XXS);
HEARTH_SUPER_KERNELS(kIQ2_S);

}  // namespace hearth::kernels
