#include "kernels/simd_neon.h"
// The vocabulary first, then what is written in it.
#include "kernels/attention_body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionNeon = attention_kernels();

}  // namespace hearth::kernels
