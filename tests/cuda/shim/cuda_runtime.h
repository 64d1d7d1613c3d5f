#pragma once
// The parts of CUDA's language and runtime API that hearth's kernels use, for the CPU. The test
// programs compile the same .cu files as C++ and find this file as `<cuda_runtime.h>` instead of
// the toolkit's. Names and meanings are CUDA's; shim.h describes what is included and how it runs.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <tuple>
#include <utility>

#define HEARTH_CUDA_SHIM 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// One block runs at a time in the process, so the block's shared memory can be static; as a plain
// global it has AddressSanitizer's red zones.
#define __shared__ static

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

/// The running thread and block; set by block.cpp.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace hearth::shim {

void* dynamic_shared_memory();
void sync_threads(const std::source_location& where);
/// A barrier that `threads` of the block reach, some of which do not wait.
void named_barrier(int index, unsigned threads, bool waits, const std::source_location& where);
/// Counts the thread: where a launch has attributes, as all of hearth's have, each thread must wait
/// once for the launch before, also in launches that do not overlap it.
void wait_for_previous();
/// Deposits `value` and returns, once all lanes of the warp have arrived at the same line, the
/// 32 deposited values (valid until this lane's next exchange).
const uint64_t* exchange(unsigned mask, uint64_t value, const std::source_location& where);

template <typename T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
inline int lane() { return static_cast<int>(threadIdx.x % 32); }

}  // namespace hearth::shim

#define HEARTH_DYN_SHARED(type, name) \
  type* name = static_cast<type*>(::hearth::shim::dynamic_shared_memory())

// ---- Device functions -----------------------------------------------------------------------

inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void cudaGridDependencySynchronize() { hearth::shim::wait_for_previous(); }

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  hearth::shim::sync_threads(where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       std::source_location where = std::source_location::current()) {
  hearth::shim::exchange(mask, 0, where);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source,
              std::source_location where = std::source_location::current()) {
  const uint64_t* all = hearth::shim::exchange(mask, hearth::shim::to_bits(value), where);
  return hearth::shim::from_bits<T>(all[source & 31]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask,
                  std::source_location where = std::source_location::current()) {
  const uint64_t* all = hearth::shim::exchange(mask, hearth::shim::to_bits(value), where);
  return hearth::shim::from_bits<T>(all[(hearth::shim::lane() ^ lane_mask) & 31]);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta,
                 std::source_location where = std::source_location::current()) {
  const uint64_t* all = hearth::shim::exchange(mask, hearth::shim::to_bits(value), where);
  const int source = hearth::shim::lane() - static_cast<int>(delta);
  return hearth::shim::from_bits<T>(all[source < 0 ? hearth::shim::lane() : source]);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta,
                   std::source_location where = std::source_location::current()) {
  const uint64_t* all = hearth::shim::exchange(mask, hearth::shim::to_bits(value), where);
  const int source = hearth::shim::lane() + static_cast<int>(delta);
  return hearth::shim::from_bits<T>(all[source > 31 ? hearth::shim::lane() : source]);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  const uint64_t* all = hearth::shim::exchange(mask, predicate != 0 ? 1 : 0, where);
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) votes |= static_cast<unsigned>(all[i]) << i;
  return votes;
}

/// Blocks run one after the other, so stores are seen in their order.
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* to, unsigned value) { return std::exchange(*to, *to + value); }

template <typename T>
unsigned __match_any_sync(unsigned mask, T value,
                          std::source_location where = std::source_location::current()) {
  const uint64_t own = hearth::shim::to_bits(value);
  const uint64_t* all = hearth::shim::exchange(mask, own, where);
  unsigned equal = 0;
  for (int i = 0; i < 32; ++i) equal |= (all[i] == own ? 1u : 0u) << i;
  return equal;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }

inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int8_t>(static_cast<unsigned>(a) >> (8 * i)) *
         static_cast<int8_t>(static_cast<unsigned>(b) >> (8 * i));
  }
  return c;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const auto byte = static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff);
    const bool sign = (selector >> 4 * i & 8) != 0;  // then the byte's sign bit, eight times
    out |= (sign ? (byte >> 7) * 0xff : byte) << 8 * i;
  }
  return out;
}
namespace hearth::shim {
/// mma.m16n8k16 of 8 bits, those of A signed or not: lane 4 g + t holds rows g (a0) and g + 8 (a1)
/// of A at columns 4 t .. + 3, column g of B at rows 4 t .. + 3, and C at rows g, g + 8 and columns
/// 2 t, 2 t + 1.
template <typename A>
void mma_8(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b,
           std::source_location where = std::source_location::current()) {
  const auto a = exchange(0xffffffffu, uint64_t{a1} << 32 | a0, where);
  const int g = lane() / 4;
  const int t = lane() % 4;
  uint32_t rows[2][4];
  for (int i = 0; i < 4; ++i) {
    rows[0][i] = static_cast<uint32_t>(a[4 * g + i]);
    rows[1][i] = static_cast<uint32_t>(a[4 * g + i] >> 32);
  }
  const auto all_b = exchange(0xffffffffu, b, where);
  for (int i = 0; i < 4; ++i) {
    int sum = c[i];
    for (int k = 0; k < 4; ++k) {
      const auto column = static_cast<uint32_t>(all_b[4 * (2 * t + i % 2) + k]);
      for (int byte = 0; byte < 4; ++byte) {
        sum += static_cast<A>(rows[i / 2][k] >> 8 * byte) * static_cast<int8_t>(column >> 8 * byte);
      }
    }
    c[i] = sum;
  }
}
/// mma.m16n8k16 of 16-bit floats, whose value `decode` returns: lane 4 g + t holds rows g
/// (a[0], a[2]) and g + 8 (a[1], a[3]) of A at columns 2 t, 2 t + 1 (a[0], a[1]) and those eight
/// further, column g of B likewise, and C as above. The sum is rounded once.
template <typename Decode>
void mma_16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Decode& decode,
            std::source_location where = std::source_location::current()) {
  const int g = lane() / 4;
  const int t = lane() % 4;
  float rows[2][4][4];
  float columns[2][4][4];
  const auto put = [&decode](float(&to)[4], uint64_t bits) {
    for (int i = 0; i < 4; ++i) to[i] = decode(static_cast<uint16_t>(bits >> 16 * i));
  };
  for (int r = 0; r < 2; ++r) {
    const auto all = exchange(0xffffffffu, uint64_t{a[r + 2]} << 32 | a[r], where);
    for (int i = 0; i < 4; ++i) put(rows[r][i], all[4 * g + i]);
  }
  const auto all = exchange(0xffffffffu, uint64_t{b1} << 32 | b0, where);
  for (int i = 0; i < 4; ++i) {
    put(columns[0][i], all[8 * t + i]);
    put(columns[1][i], all[8 * t + 4 + i]);
  }
  for (int i = 0; i < 4; ++i) {
    double sum = static_cast<double>(c[i]);
    for (int k = 0; k < 16; ++k) {
      sum += static_cast<double>(rows[i / 2][k / 4][k % 4]) * columns[i % 2][k / 4][k % 4];
    }
    c[i] = static_cast<float>(sum);
  }
}
}  // namespace hearth::shim
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

// ---- Runtime --------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorHardwareStackError = 714,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorSystemNotReady = 802,
  cudaErrorSystemDriverMismatch = 803,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorUnknown = 999,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1
};
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major;
  int minor;
  int multiProcessorCount;
  int pciDomainID;
  int pciBusID;
  int pciDeviceID;
};
struct cudaFuncAttributes {
  int numRegs;
};
struct cudaStreamImpl;
using cudaStream_t = cudaStreamImpl*;
struct cudaGraphImpl;
using cudaGraph_t = cudaGraphImpl*;
using cudaGraphExec_t = cudaGraphImpl*;
struct cudaEventImpl;
using cudaEvent_t = cudaEventImpl*;
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

namespace hearth::shim {
cudaError_t function_attributes();
cudaError_t enqueue_launch(const void* kernel, const cudaLaunchConfig_t& config,
                           std::function<void()> thread);
/// Without it a kernel may have 48 KiB of dynamic shared memory.
void set_most_shared(const void* kernel, int bytes);
}  // namespace hearth::shim

template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)(Parameters...)) {
  attributes->numRegs = 0;
  return hearth::shim::function_attributes();
}

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int value) {
  hearth::shim::set_most_shared(reinterpret_cast<const void*>(kernel), value);
  return cudaSuccess;
}

/// Parameters are converted and copied during the call, as in a launch.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<Parameters...> packed(std::forward<Arguments>(arguments)...);
  return hearth::shim::enqueue_launch(reinterpret_cast<const void*>(kernel), *config,
                                      [kernel, packed] { std::apply(kernel, packed); });
}
