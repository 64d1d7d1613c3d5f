#include "kernels/cpu/simd/neon.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/attention/body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionNeon = attention_kernels();

}  // namespace hearth::kernels
