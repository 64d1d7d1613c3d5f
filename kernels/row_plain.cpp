#include "kernels/simd_plain.h"
// The vocabulary first, then what is written in it.
#include "kernels/row_body.h"

namespace hearth::kernels {

constinit const RowKernels kRowPlain = row_kernels();

}  // namespace hearth::kernels
