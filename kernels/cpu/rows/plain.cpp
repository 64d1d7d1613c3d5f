#include "kernels/cpu/simd/plain.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/rows/body.h"

namespace hearth::kernels {

constinit const RowKernels kRowPlain = row_kernels();

}  // namespace hearth::kernels
