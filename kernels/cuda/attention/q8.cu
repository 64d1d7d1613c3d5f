#include "kernels/cuda/attention/body.cuh"

namespace hearth::kernels {

void attend_q8(cudaStream_t stream, const AttentionParams& params, int rows, bool whole) {
  launch_attention<int8_t>(stream, params, rows, whole);
}

}  // namespace hearth::kernels
