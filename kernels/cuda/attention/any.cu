#include "kernels/cuda/attention/any_type.cuh"
#include "kernels/cuda/attention/body.cuh"

namespace hearth::kernels {

void attend_any(cudaStream_t stream, const AttentionParams& params, int rows, bool whole) {
  if (params.heads_per_kv == 1) {
    launch_heads<AnyType, 1, 1>(stream, params, rows, whole);
  } else if (params.heads_per_kv <= 4) {
    launch_heads<AnyType, 1, 4>(stream, params, rows, whole);
  } else {
    launch_heads<AnyType, 1, kMaxHeads>(stream, params, rows, whole);
  }
}

}  // namespace hearth::kernels
