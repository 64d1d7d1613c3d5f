#include "kernels/cuda/attention/body.cuh"

namespace hearth::kernels {

void attend_f32(cudaStream_t stream, const AttentionParams& params, int rows, bool whole) {
  launch_attention<float>(stream, params, rows, whole);
}

}  // namespace hearth::kernels
