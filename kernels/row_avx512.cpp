#include "kernels/simd_avx512.h"
// The vocabulary first, then what is written in it.
#include "kernels/row_body.h"

namespace hearth::kernels {

constinit const RowKernels kRowAvx512 = row_kernels();

}  // namespace hearth::kernels
