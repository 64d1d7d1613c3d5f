#pragma once
// What the current device offers to a block, and kernels that use more shared memory than usual.

#include <array>
#include <mutex>

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

/// The devices of one process may differ, and a kernel's attributes are set for each.
class OncePerDevice {
 public:
  static constexpr int kMostDevices = 64;
  /// Calls `make` with the thread's device, once for each device. Returns the device.
  template <typename Make>
  int run(const Make& make) {
    int device = 0;
    HEARTH_CUDA_CHECK(cudaGetDevice(&device));
    device %= kMostDevices;
    std::call_once(flags_[device], make, device);
    return device;
  }

 private:
  std::array<std::once_flag, kMostDevices> flags_;
};

struct DeviceLimits {
  int shared_bytes;     ///< of a block's dynamic shared memory
  int multiprocessors;  ///< of the device
};
inline const DeviceLimits& device_limits() {
#if defined(HEARTH_CUDA_SHIM)
  static constexpr DeviceLimits kLimits{48 * 1024, 4};
  return kLimits;
#else
  static OncePerDevice once;
  static std::array<DeviceLimits, OncePerDevice::kMostDevices> found;
  return found[once.run([](int device) {
    const auto attribute = [device](cudaDeviceAttr name) {
      int value = 0;
      HEARTH_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, device));
      return value;
    };
    constexpr int kVariables = 2048;  // more than the kernels' other shared memory
    found[device] = {attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kVariables,
                     attribute(cudaDevAttrMultiProcessorCount)};
  })];
#endif
}

/// Once per kernel and device, before its first launch: it may have more shared memory than usual,
/// for as many blocks as fit. `kBytes`: for kernels that need more than device_limits() has, and
/// have no other.
template <auto kKernel, int kBytes = 0>
void allow_shared() {
#if defined(HEARTH_CUDA_SHIM)
  HEARTH_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         kBytes > 0 ? kBytes : 225 * 1024));
#else
  static OncePerDevice once;
  once.run([](int) {
    HEARTH_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           kBytes > 0 ? kBytes : device_limits().shared_bytes));
    HEARTH_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
  });
#endif
}

}  // namespace hearth::kernels
