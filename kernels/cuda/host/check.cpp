#include "kernels/cuda/host/check.h"

#include <cstdio>
#include <cstdlib>

namespace hearth::kernels {
namespace {

struct Reason {
  cudaError_t error;
  const char* words;
};

// The errors that an operator can act on. All others keep the driver's message.
constexpr Reason kReasons[] = {
    {cudaErrorMemoryAllocation, "device memory is exhausted"},
    {cudaErrorInsufficientDriver, "the NVIDIA driver is missing or too old"},
    {cudaErrorDevicesUnavailable, "the device is busy: another process holds it exclusively"},
    {cudaErrorNoDevice, "no CUDA device"},
    {cudaErrorNoKernelImageForDevice, "this build has no code for the device's architecture"},
    {cudaErrorECCUncorrectable, "device lost: uncorrectable memory error"},
    {cudaErrorHardwareStackError, "device lost: hardware error"},
    {cudaErrorIllegalAddress, "a kernel accessed memory outside an allocation"},
    {cudaErrorLaunchFailure, "a kernel failed"},
    {cudaErrorSystemNotReady, "the driver's services are not ready"},
    {cudaErrorSystemDriverMismatch, "driver and its libraries are of different versions"},
    {cudaErrorUnknown, "device lost"},
};

}  // namespace

std::string cuda_reason(cudaError_t error) {
  const std::string name = cudaGetErrorName(error);
  for (const Reason& reason : kReasons) {
    if (reason.error == error) return std::string(reason.words) + " (" + name + ")";
  }
  return std::string(cudaGetErrorString(error)) + " (" + name + ")";
}

void cuda_failed(const char* file, int line, const char* call, cudaError_t error) {
  std::fprintf(stderr, "%s:%d: cuda error: %s: %s\n", file, line, cuda_reason(error).c_str(), call);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hearth::kernels
