// Replaces the CUDA op table in builds without a CUDA toolkit.

#include "kernels/cuda/op_table.h"

namespace hearth::kernels {
namespace {

Error not_built() {
  return Error::unsupported(
      "this build has no CUDA ops (configured without a CUDA toolkit, or HEARTH_CUDA=OFF)");
}

}  // namespace

Result<CudaDevice> cuda_probe(const CudaOptions&) { return not_built(); }
uint64_t cuda_packed_bytes(std::span<const HostTensor>, WeightRole) { return 0; }
CudaPacking cuda_packing(std::span<const HostTensor>, WeightRole) { return {}; }
CudaMemoryUse cuda_memory_use(const OpTable&) { return {}; }
Result<OpTable> cuda_ops(const CudaOptions&) { return not_built(); }

}  // namespace hearth::kernels
