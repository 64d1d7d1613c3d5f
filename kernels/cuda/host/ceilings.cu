#include "kernels/cuda/device.cuh"
#include "kernels/cuda/host/ceilings.cuh"
#include "kernels/cuda/mma.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kChains = 8;  // independent results per thread: more than the depth of a unit

/// Reads every word once. The sum is stored only for one unlikely value, so the loads are not
/// optimized away.
__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* from, int64_t count, uint32_t* out) {
  after_previous_launch();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  uint32_t sum = 0;
#pragma unroll 8
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 words = from[i];
    sum += words.x ^ words.y ^ words.z ^ words.w;
  }
  if (sum == 0x12345678u) *out = sum;
}

__global__ void __launch_bounds__(kThreads) fma_kernel(int rounds, float* out) {
  after_previous_launch();
  float chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = static_cast<float>(threadIdx.x + i);
  const float factor = 1.0f + static_cast<float>(blockIdx.x) * 1e-9f;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) chain[i] = fmaf(chain[i], factor, 1e-9f);
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += chain[i];
  if (sum == 0.12345f) *out = sum;
}

/// Random bits: a multiplier runs faster on zeros than on real data.
struct Bits {
  uint32_t seed = threadIdx.x * 2654435761u + blockIdx.x * 40503u + 1;
  __device__ uint32_t next() {
    seed ^= seed << 13;
    seed ^= seed >> 17;
    return seed ^= seed << 5;
  }
};

__global__ void __launch_bounds__(kThreads) mma_int8_kernel(int rounds, int* out) {
  after_previous_launch();
  Bits bits;
  uint32_t a[4];
  for (int i = 0; i < 4; ++i) a[i] = bits.next();
  const uint32_t b0 = bits.next();
  const uint32_t b1 = bits.next();
  int chain[kChains][4] = {};
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) mma_s8_k32(chain[i], a, b0, b1);
  }
  int sum = 0;
  for (int i = 0; i < kChains; ++i) sum += chain[i][0] ^ chain[i][1] ^ chain[i][2] ^ chain[i][3];
  if (sum == 0x12345678) *out = sum;
}

__global__ void __launch_bounds__(kThreads) mma_half_kernel(int rounds, float* out) {
  after_previous_launch();
  // Below 1 in size: the second highest bit of each exponent is clear.
  constexpr uint32_t kSmall = 0xbbffbbffu;
  Bits bits;
  uint32_t a[4];
  for (int i = 0; i < 4; ++i) a[i] = bits.next() & kSmall;
  const uint32_t b0 = bits.next() & kSmall;
  const uint32_t b1 = bits.next() & kSmall;
  float chain[kChains][4] = {};
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) mma_k16<Half>(chain[i], a, b0, b1);
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += chain[i][0] + chain[i][1] + chain[i][2] + chain[i][3];
  if (sum == 0.12345f) *out = sum;
}

}  // namespace

void launch_read(cudaStream_t stream, int blocks, const void* from, size_t bytes, void* out) {
  HEARTH_LAUNCH(stream, read_kernel, blocks, kThreads, 0, static_cast<const uint4*>(from),
                static_cast<int64_t>(bytes / sizeof(uint4)), static_cast<uint32_t*>(out));
}

double launch_fma(cudaStream_t stream, int blocks, int rounds, void* out) {
  HEARTH_LAUNCH(stream, fma_kernel, blocks, kThreads, 0, rounds, static_cast<float*>(out));
  return 2.0 * kChains * rounds * kThreads * blocks;
}

double launch_mma_int8(cudaStream_t stream, int blocks, int rounds, void* out) {
  HEARTH_LAUNCH(stream, mma_int8_kernel, blocks, kThreads, 0, rounds, static_cast<int*>(out));
  return 2.0 * 16 * 8 * 32 * kChains * rounds * (kThreads / kWarp) * blocks;
}

double launch_mma_half(cudaStream_t stream, int blocks, int rounds, void* out) {
  HEARTH_LAUNCH(stream, mma_half_kernel, blocks, kThreads, 0, rounds, static_cast<float*>(out));
  return 2.0 * 16 * 8 * 16 * kChains * rounds * (kThreads / kWarp) * blocks;
}

}  // namespace hearth::kernels
