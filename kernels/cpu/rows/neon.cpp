#include "kernels/cpu/simd/neon.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/rows/body.h"

namespace hearth::kernels {

constinit const RowKernels kRowNeon = row_kernels();

}  // namespace hearth::kernels
