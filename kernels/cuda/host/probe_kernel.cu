#include "kernels/cuda/host/probe_kernel.h"

namespace hearth::kernels {
namespace {

// All kernels are built for the same architectures, so testing one is enough.
__global__ void probe_kernel() {}

}  // namespace

cudaError_t cuda_code_for_device() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}

}  // namespace hearth::kernels
