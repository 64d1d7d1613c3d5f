#include "kernels/cpu/simd/avx2.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/attention/body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionAvx2 = attention_kernels();

}  // namespace hearth::kernels
