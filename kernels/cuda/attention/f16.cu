#include "kernels/cuda/attention/body.cuh"

namespace hearth::kernels {

void attend_f16(cudaStream_t stream, const AttentionParams& params, int rows, bool whole) {
  launch_attention<Half>(stream, params, rows, whole);
}

}  // namespace hearth::kernels
