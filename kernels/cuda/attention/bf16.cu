#include "kernels/cuda/attention/body.cuh"

namespace hearth::kernels {

void attend_bf16(cudaStream_t stream, const AttentionParams& params, int rows, bool whole) {
  launch_attention<BFloat16>(stream, params, rows, whole);
}

}  // namespace hearth::kernels
