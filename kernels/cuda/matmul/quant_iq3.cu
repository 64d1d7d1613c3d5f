#include "kernels/cuda/matmul/super.cuh"

namespace hearth::kernels {

HEARTH_SUPER_KERNELS(kIQ3_XXS);
HEARTH_SUPER_KERNELS(kIQ3_S);

}  // namespace hearth::kernels
