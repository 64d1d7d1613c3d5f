#include "kernels/cpu/simd/plain.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/attention/body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionPlain = attention_kernels();

}  // namespace hearth::kernels
