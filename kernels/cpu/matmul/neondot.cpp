#include "kernels/cpu/simd/neon.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/matmul/body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulNeonDot = matmul_kernels();

}  // namespace hearth::kernels
