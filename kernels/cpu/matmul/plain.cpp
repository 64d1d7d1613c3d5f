#include "kernels/cpu/simd/plain.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/matmul/body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulPlain = matmul_kernels();

}  // namespace hearth::kernels
