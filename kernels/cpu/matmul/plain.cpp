#include "kernels/cpu/simd/plain.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/matmul/body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulPlain = matmul_kernels();

}  // namespace hearth::kernels
