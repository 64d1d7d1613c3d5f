#include "kernels/simd_plain.h"
// The vocabulary first, then what is written in it.
#include "kernels/attention_body.h"

namespace hearth::kernels {

constinit const AttentionKernels kAttentionPlain = attention_kernels();

}  // namespace hearth::kernels
