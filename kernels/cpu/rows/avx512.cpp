#include "kernels/cpu/simd/avx512.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/rows/body.h"

namespace hearth::kernels {

constinit const RowKernels kRowAvx512 = row_kernels();

}  // namespace hearth::kernels
