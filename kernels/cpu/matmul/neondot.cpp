#include "kernels/cpu/simd/neon.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/matmul/body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulNeonDot = matmul_kernels();

}  // namespace hearth::kernels
