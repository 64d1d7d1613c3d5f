// Checks whether a CUDA device is usable and names each obstacle.

#include <cuda_runtime.h>
#include <fmt/core.h>

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/probe_kernel.h"
#include "kernels/cuda/host/state.h"
#include "kernels/cuda/op_table.h"

namespace hearth::kernels {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Error failed(const char* what, cudaError_t error) {
  return Error::unavailable(fmt::format("{}: {}", what, cuda_reason(error)));
}

/// Devices that the driver offers. The runtime reports "insufficient driver" both if there is none
/// and if it is too old; the driver's version distinguishes the two.
Result<int> count_devices(const CudaDevice& versions) {
  if (versions.driver_version == 0) {
    return Error::unavailable("no NVIDIA driver (libcuda.so.1) on this machine");
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return Error::unavailable(fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, this build needs {} (for CUDA "
        "13 a driver of version 580 or newer)",
        version_text(versions.driver_version), version_text(versions.runtime_version)));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return Error::unavailable(
        "the NVIDIA driver is there but offers no CUDA device (no GPU, or CUDA_VISIBLE_DEVICES "
        "hides it)");
  }
  if (error != cudaSuccess) return failed("counting CUDA devices", error);
  return count;
}

}  // namespace

Result<CudaDevice> cuda_probe(const CudaOptions& options) {
  CudaDevice device;
  device.ordinal = options.device;
  if (cudaError_t error = cudaRuntimeGetVersion(&device.runtime_version); error != cudaSuccess) {
    return failed("asking for the CUDA version", error);
  }
  if (cudaError_t error = cudaDriverGetVersion(&device.driver_version); error != cudaSuccess) {
    return failed("asking for the driver's version", error);
  }
  HEARTH_ASSIGN_OR_RETURN(const int count, count_devices(device));
  if (options.device < 0 || options.device >= count) {
    return Error::invalid(fmt::format("CUDA device {}: this machine has {} (0 to {})",
                                      options.device, count, count - 1),
                          "device");
  }
  cudaDeviceProp properties{};
  if (cudaError_t error = cudaGetDeviceProperties(&properties, options.device);
      error != cudaSuccess) {
    return failed("reading the device's properties", error);
  }
  device.name = properties.name;
  device.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                  properties.pciBusID, properties.pciDeviceID);
  device.compute_major = properties.major;
  device.compute_minor = properties.minor;
  if (cudaError_t error = make_current(options.device); error != cudaSuccess) {
    return failed(properties.name, error);
  }
  // The first call that needs the context: a busy or exclusive device fails here.
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes); error != cudaSuccess) {
    return failed(properties.name, error);
  }
  device.memory_bytes = total_bytes;
  device.memory_free_bytes = free_bytes;
  if (cudaError_t error = cuda_code_for_device(); error != cudaSuccess) {
    return Error::unsupported(
        fmt::format("{} has compute capability {}.{}, for which this build has no code: {}",
                    properties.name, properties.major, properties.minor, cuda_reason(error)));
  }
  return device;
}

}  // namespace hearth::kernels
