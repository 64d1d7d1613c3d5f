#include "kernels/cpu/simd/avx2.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/attention/body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionAvx2 = attention_kernels();

}  // namespace hearth::kernels
