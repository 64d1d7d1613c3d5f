#include "kernels/cpu/simd/avx512.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/matmul/body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulAvx512Vnni = matmul_kernels();

}  // namespace hearth::kernels
