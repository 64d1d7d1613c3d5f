#pragma once
// Helpers for every kernel file: launches, conversions, sums over a warp and a block. The tests
// compile the same files for the CPU (tests/cuda/shim), so kernels use no inline assembly and
// declare dynamic shared memory by a macro.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/host/state.h"
#include "kernels/ops.h"

#ifndef HEARTH_DYN_SHARED
#define HEARTH_DYN_SHARED(type, name)                                    \
  extern __shared__ __align__(16) unsigned char hearth_dynamic_shared[]; \
  type* name = reinterpret_cast<type*>(hearth_dynamic_shared)
#endif

/// Launches a kernel and checks: HEARTH_LAUNCH(stream, kernel, grid, block, shared_bytes,
/// arguments...).
/// A template kernel goes in parentheses: (matmul<float, 8>).
#define HEARTH_LAUNCH(stream, kernel, grid, block, shared_bytes, ...) \
  HEARTH_CUDA_CHECK(                                                  \
      ::hearth::kernels::launch(stream, grid, block, shared_bytes, kernel, __VA_ARGS__))

namespace hearth::kernels {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

template <typename... Parameters, typename... Arguments>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
                   void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Places in the launch as int, the type of indices here: differences below zero stay so.
__device__ inline int thread_x() { return static_cast<int>(threadIdx.x); }
__device__ inline int block_x() { return static_cast<int>(blockIdx.x); }
__device__ inline int block_y() { return static_cast<int>(blockIdx.y); }
__device__ inline int block_z() { return static_cast<int>(blockIdx.z); }
__device__ inline int grid_x() { return static_cast<int>(gridDim.x); }
__device__ inline int grid_y() { return static_cast<int>(gridDim.y); }
__device__ inline int grid_z() { return static_cast<int>(gridDim.z); }

inline dim3 grid2(int64_t x, int64_t y) {
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
}

/// Upper bound of a step's rows for a launch, and the exact number in device memory.
inline int32_t row_bound(const BatchIndex& batch, Rows rows) {
  return rows == Rows::kTokens ? batch.num_tokens : batch.num_outputs;
}
inline const int32_t* row_count(const BatchIndex& batch, Rows rows) {
  return batch.counts + (rows == Rows::kTokens ? 0 : 2);
}

/// f32 rows in device memory, in the form that kernels take.
struct RowsView {
  float* data;
  int64_t stride;
};
inline RowsView rows_view(const TensorView& view) {
  HEARTH_EXPECT(view.dtype == DType::kF32, static_cast<int>(view.dtype));
  return {static_cast<float*>(view.data), view.row_stride};
}

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(Half value) { return __half2float(__ushort_as_half(value.bits)); }
__device__ inline float to_float(BFloat16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ inline float to_float(int8_t value) { return static_cast<float>(value); }
__device__ inline void from_float(float value, float* out) { *out = value; }
__device__ inline void from_float(float value, Half* out) {
  out->bits = __half_as_ushort(__float2half_rn(value));
}

__device__ inline void from_float(float value, BFloat16* out) {
  const uint32_t bits = __float_as_uint(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  out->bits = static_cast<uint16_t>(rounded >> 16);
}

/// Loads a T with one instruction on a device; the address must be a multiple of its size.
template <typename T>
__device__ inline T load_as(const void* from) {
#if defined(HEARTH_CUDA_SHIM)
  HEARTH_EXPECT(reinterpret_cast<uintptr_t>(from) % sizeof(T) == 0);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
#else
  return *static_cast<const T*>(from);
#endif
}

/// 16 bytes of elements, loaded at once.
template <typename T>
struct alignas(16) Share {
  static constexpr int kCount = 16 / sizeof(T);
  T element[kCount];
};

/// Sum over the warp, in every lane; the tree is fixed.
__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}
/// Largest of the warp's values, in every lane.
__device__ inline uint32_t warp_max(uint32_t value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

}  // namespace hearth::kernels
