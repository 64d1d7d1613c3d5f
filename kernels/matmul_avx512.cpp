#include "kernels/simd_avx512.h"
// The vocabulary first, then what is written in it.
#include "kernels/matmul_body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulAvx512 = matmul_kernels();

}  // namespace hearth::kernels
