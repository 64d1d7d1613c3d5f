#include "kernels/simd_avx2.h"
// The vocabulary first, then what is written in it.
#include "kernels/attention_body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionAvx2 = attention_kernels();

}  // namespace hearth::kernels
