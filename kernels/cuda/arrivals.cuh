#pragma once
// Blocks of a launch that finish a part of its results together: the last that arrives computes
// what needs the results of all, in place of a launch of its own.

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

/// By all threads of a block, which have stored their results. True in the last of `blocks` blocks
/// that call this with the same counter; it may read what all of them have stored. The counter is
/// zero before the first and after the last.
__device__ inline bool arrive_last(uint32_t* counter, uint32_t blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (thread_x() == 0) {
    last = atomicAdd(counter, 1u) == blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace hearth::kernels
