#include "kernels/simd_plain.h"
// The vocabulary first, then what is written in it.
#include "kernels/matmul_body.h"

namespace hearth::kernels {

constinit const MatmulKernels kMatmulPlain = matmul_kernels();

}  // namespace hearth::kernels
