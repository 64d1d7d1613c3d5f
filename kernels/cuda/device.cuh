#pragma once
// Helpers for every kernel file: launches, conversions, sums over a warp and a block. The tests
// compile the same files for the CPU (tests/cuda/shim), so kernels use no inline assembly and
// declare dynamic shared memory by a macro.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/host/state.h"
#include "kernels/ops.h"

#ifndef HEARTH_DYN_SHARED
#define HEARTH_DYN_SHARED(type, name)                                    \
  extern __shared__ __align__(16) unsigned char hearth_dynamic_shared[]; \
  type* name = reinterpret_cast<type*>(hearth_dynamic_shared)
#endif

/// HEARTH_LAUNCH that never begins early: for kernels that fill the device.
#define HEARTH_LAUNCH_AFTER(stream, kernel, grid, block, shared_bytes, ...) \
  HEARTH_CUDA_CHECK(                                                        \
      ::hearth::kernels::launch(stream, grid, block, shared_bytes, kernel, false, __VA_ARGS__))

/// Launches a kernel and checks: HEARTH_LAUNCH(stream, kernel, grid, block, shared_bytes,
/// arguments...).
/// A template kernel goes in parentheses: (matmul<float, 8>).
#define HEARTH_LAUNCH(stream, kernel, grid, block, shared_bytes, ...) \
  HEARTH_CUDA_CHECK(                                                  \
      ::hearth::kernels::launch(stream, grid, block, shared_bytes, kernel, true, __VA_ARGS__))

namespace hearth::kernels {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

/// A launch may begin while the previous one still runs (launches_overlap()): its blocks start and
/// load their first weights, then wait here for the previous launch to end. Every thread of every
/// kernel calls this before it reads another kernel's results or writes anything: a launch that
/// ended without this call would let the next one begin before the launch in front of both has
/// ended.
__device__ inline void wait_for_previous_launch() {
#if defined(HEARTH_CUDA_SHIM) || defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
/// Lets the next launch begin as soon as every block of this one has called it.
__device__ inline void let_next_launch_begin() {
#if defined(HEARTH_CUDA_SHIM) || defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
/// Both, for kernels that have nothing to do before.
__device__ inline void after_previous_launch() {
  let_next_launch_begin();
  wait_for_previous_launch();
}

/// Queues a kernel; what HEARTH_LAUNCH calls. `early`: it may begin early. Returns the driver's
/// error.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
                   void (*kernel)(Parameters...), bool early, Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute begins{};
  begins.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  begins.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &begins;
  // Grids have a block per row, or a row of blocks per slice of rows, along x. With more than one
  // row, early blocks take more room from those that compute than they save.
  const bool overlaps = early && config.gridDim.x == 1 && launches_overlap();
  config.numAttrs = overlaps ? 1 : 0;
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

/// Which cache keeps what is copied: the multiprocessor's too, for other blocks, or the device's
/// alone. The second is for 16 bytes only.
enum class Through { kFirstLevel, kSecondLevel };
/// Starts a copy of 4, 8 or 16 bytes from global to shared memory. The thread may read them after a
/// wait for copies, other threads after a barrier that follows it. Before compute capability 8.0,
/// and in the tests, the copy has ended on return.
template <int kBytes, Through kThrough = Through::kFirstLevel>
__device__ inline void start_copy(void* shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  static_assert(kThrough == Through::kFirstLevel || kBytes == 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (kThrough == Through::kFirstLevel) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  }
#else
  using Word =
      std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, uint32_t>>;
  *static_cast<Word*>(shared) = load_as<Word>(global);
#endif
}
/// Waits for all copies that this thread started, whether in a group or not.
__device__ inline void wait_for_all_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
/// Ends a group of copies.
__device__ inline void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for the thread's copies but those of the latest kPending groups.
template <int kPending>
__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

/// e^x within 2 + |x| units in the last place; results below 2^-126 are 0.
__device__ inline float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
  return result;
#else
  return expf(x);
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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, value);
#else
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
#endif
}
/// Sum over the warp, in every lane.
__device__ inline int warp_sum(int value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAllLanes, value);
#else
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
#endif
}

}  // namespace hearth::kernels
