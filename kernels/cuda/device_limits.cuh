#pragma once
// What the current device offers to a block, and kernels that use more shared memory than usual.

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

struct DeviceLimits {
  int shared_bytes;     ///< of a block's dynamic shared memory
  int multiprocessors;  ///< of the device
};
inline const DeviceLimits& device_limits() {
#if defined(HEARTH_CUDA_SHIM)
  static constexpr DeviceLimits kLimits{48 * 1024, 4};
  return kLimits;
#else
  static const DeviceLimits found = [] {
    const auto attribute = [](cudaDeviceAttr name) {
      int device = 0;
      int value = 0;
      HEARTH_CUDA_CHECK(cudaGetDevice(&device));
      HEARTH_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, device));
      return value;
    };
    constexpr int kVariables = 2048;  // more than the kernels' other shared memory
    return DeviceLimits{attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kVariables,
                        attribute(cudaDevAttrMultiProcessorCount)};
  }();
  return found;
#endif
}

/// Once per kernel, before its first launch: it may have more shared memory than usual, for as many
/// blocks as fit. `kBytes`: for kernels that need more than device_limits() has, and have no other.
template <auto kKernel, int kBytes = 0>
void allow_shared() {
#if defined(HEARTH_CUDA_SHIM)
  HEARTH_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         kBytes > 0 ? kBytes : 225 * 1024));
#else
  static const bool done = [] {
    HEARTH_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           kBytes > 0 ? kBytes : device_limits().shared_bytes));
    HEARTH_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }();
  static_cast<void>(done);
#endif
}

}  // namespace hearth::kernels
