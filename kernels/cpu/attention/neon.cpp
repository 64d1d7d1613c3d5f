#include "kernels/cpu/simd/neon.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/attention/body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionNeon = attention_kernels();

}  // namespace hearth::kernels
