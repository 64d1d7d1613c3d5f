#include "kernels/cpu/simd/plain.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/rows/body.h"

namespace hearth::kernels {

constinit const RowKernels kRowPlain = row_kernels();

}  // namespace hearth::kernels
