#include "kernels/simd_neon.h"
// The vocabulary first, then what is written in it.
#include "kernels/matmul_body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulNeonDot = matmul_kernels();

}  // namespace hearth::kernels
