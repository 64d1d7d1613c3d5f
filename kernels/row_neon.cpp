#include "kernels/simd_neon.h"
// The vocabulary first, then what is written in it.
#include "kernels/row_body.h"

namespace hearth::kernels {

constinit const RowKernels kRowNeon = row_kernels();

}  // namespace hearth::kernels
