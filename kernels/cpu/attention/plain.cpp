#include "kernels/cpu/simd/plain.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/attention/body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionPlain = attention_kernels();

}  // namespace hearth::kernels
