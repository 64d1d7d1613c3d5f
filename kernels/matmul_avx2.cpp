#include "kernels/simd_avx2.h"
// The vocabulary first, then what is written in it.
#include "kernels/matmul_body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulAvx2 = matmul_kernels();

}  // namespace hearth::kernels
