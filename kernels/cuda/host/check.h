#pragma once
// Checks for code that nvcc compiles. Its front end does not accept fmt's headers, so
// kernels/base/check.h cannot be included there; messages are built from plain strings.

#include <cuda_runtime.h>

#include <string>

namespace hearth {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& detail);
}

namespace hearth::kernels {

/// A CUDA error in words: "device lost", "memory access outside an allocation".
std::string cuda_reason(cudaError_t error);

[[noreturn]] void cuda_failed(const char* file, int line, const char* call, cudaError_t error);

template <typename... Values>
std::string joined(Values... values) {
  std::string text;
  ((text += std::to_string(values) + " "), ...);
  return text;
}

}  // namespace hearth::kernels

/// For every CUDA call and launch outside the probe: an error stops the process with its reason.
#define HEARTH_CUDA_CHECK(call)                                                         \
  do {                                                                                  \
    if (const cudaError_t hearth_cuda_error = (call); hearth_cuda_error != cudaSuccess) \
        [[unlikely]] {                                                                  \
      ::hearth::kernels::cuda_failed(__FILE__, __LINE__, #call, hearth_cuda_error);     \
    }                                                                                   \
  } while (false)

/// HEARTH_CHECK for .cu files: HEARTH_EXPECT(a == b, a, b) prints the numbers.
#define HEARTH_EXPECT(condition, ...)                                 \
  do {                                                                \
    if (!(condition)) [[unlikely]] {                                  \
      ::hearth::check_failed(__FILE__, __LINE__, #condition,          \
                             ::hearth::kernels::joined(__VA_ARGS__)); \
    }                                                                 \
  } while (false)
