// Tests of the shim itself: which faults of kernels it detects, and the fragments of the tensor
// cores, which it imitates.

#include "tests/cuda/shim/shim.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/mma.cuh"

using namespace hearth;  // NOLINT

namespace {

constexpr int kThreads = 96;

/// The error of queue(stream), or of what it has queued.
template <typename Queue>
cudaError_t on_stream(const Queue& queue) {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  cudaError_t error = queue(stream);
  const cudaError_t ran = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) error = ran;
  (void)cudaStreamDestroy(stream);
  return error;
}

template <typename... Parameters, typename... Arguments>
cudaError_t run(dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(Parameters...),
                Arguments... arguments) {
  return on_stream([&](cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  });
}

/// Each thread reads what its neighbour wrote.
template <bool barrier>
__global__ void neighbour(float* out) {
  HEARTH_DYN_SHARED(float, shared);
  const unsigned thread = threadIdx.x;
  shared[thread] = static_cast<float>(thread);
  if (barrier) __syncthreads();
  out[blockIdx.x * blockDim.x + thread] = shared[(thread + 1) % blockDim.x];
}

template <bool barrier>
bool neighbours_agree(uint64_t seed) {
  shim::set_order(seed);
  std::vector<float> out(2 * kThreads, -1);
  REQUIRE(run(2, kThreads, kThreads * sizeof(float), neighbour<barrier>, out.data()) ==
          cudaSuccess);
  shim::set_order(0);
  for (int i = 0; i < 2 * kThreads; ++i) {
    if (out[static_cast<size_t>(i)] != static_cast<float>((i + 1) % kThreads)) return false;
  }
  return true;
}

__global__ void half_at_barrier(int) {
  if (threadIdx.x < 16) __syncthreads();
  __syncwarp();
}

__global__ void waits(int) { kernels::after_previous_launch(); }

__global__ void half_waits(int) {
  if (threadIdx.x < 32) kernels::after_previous_launch();
}

__global__ void different_barriers(int) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void early_exit(int* out) {
  if (threadIdx.x >= 32) return;  // whole warps may end before a barrier
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void half_warp(int* out) {
  if (threadIdx.x % 2 == 0) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 2);
}

__global__ void different_exchanges(int* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
  } else {
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 2, 1);
  }
}

__global__ void partial_mask(int* out) { out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1, 1); }

__global__ void warp_operations(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int* to = out + 6 * threadIdx.x;
  to[0] = __shfl_sync(0xffffffffu, lane, 5);
  to[1] = __shfl_xor_sync(0xffffffffu, lane, 16);
  to[2] = __shfl_up_sync(0xffffffffu, lane, 3);
  to[3] = __shfl_down_sync(0xffffffffu, lane, 3);
  to[4] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
  to[5] = __dp4a(lane << 8 | 0xff, 0x7f8002, lane);  // bytes (-1, lane, 0, 0) . (2, -128, 127, 0)
}

template <bool exchanged>
__global__ void bf16_product(const uint32_t* operands, float* out) {
  const uint32_t* own = operands + 6 * threadIdx.x;
  const uint32_t a[4] = {own[0], own[1], own[2], own[3]};
  float c[4];
  for (int i = 0; i < 4; ++i) c[i] = out[4 * threadIdx.x + i];
  if (exchanged) {
    kernels::mma_bf16_exchanged(c, a, own[4], own[5]);
  } else {
    kernels::mma_k16<kernels::BFloat16>(c, a, own[4], own[5]);
  }
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = c[i];
}

/// One product of the tensor cores by the layout of PTX ISA's section on mma.m16n8k16, element by
/// element, in f32: the values are small integers, so every order of sums gives the same result.
std::vector<float> fragment_product(bool exchanged) {
  const auto a_of = [](int row, int k) { return (row * 7 + k * 3) % 11 - 5; };
  const auto b_of = [](int k, int column) { return (k * 5 + column * 2) % 13 - 6; };
  std::vector<uint32_t> operands(32 * 6);
  const auto bits = [](int value) {
    return std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16;
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 8;
         ++i) {  // element a_i: row g + 8 where i % 4 is 2 or 3, column + 8 from i = 4
      const int row = g + i % 4 / 2 * 8;
      const int k = 2 * t + i % 2 + i / 4 * 8;
      operands[static_cast<size_t>(lane * 6 + i / 2)] |= bits(a_of(row, k)) << 16 * (i % 2);
    }
    for (int i = 0; i < 4; ++i) {
      const int k = 2 * t + i % 2 + i / 2 * 8;
      operands[static_cast<size_t>(lane * 6 + 4 + i / 2)] |= bits(b_of(k, g)) << 16 * (i % 2);
    }
  }
  std::vector<float> c(32 * 4, 1.0f);
  REQUIRE(run(1, 32, 0, exchanged ? bf16_product<true> : bf16_product<false>, operands.data(),
              c.data()) == cudaSuccess);
  std::vector<float> out(16 * 8);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int column = lane % 4 * 2 + i % 2;
      float want = 1.0f;
      for (int k = 0; k < 16; ++k) want += static_cast<float>(a_of(row, k) * b_of(k, column));
      CHECK(c[static_cast<size_t>(lane * 4 + i)] == want);
    }
  }
  return c;
}

}  // namespace

TEST_CASE("tensor cores: the stand-in and the replacement for bf16 equal PTX's product") {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    shim::set_order(seed);
    CHECK(fragment_product(false) == fragment_product(true));
  }
  shim::set_order(0);
}

TEST_CASE("layout: every 16-bit element has its own place, and a lane's inputs are adjacent") {
  constexpr int64_t kCols = 100;
  constexpr int64_t kOutputs = 35;
  std::vector<int> taken(static_cast<size_t>(3 * 16 * 2 * 64));
  for (int64_t o = 0; o < kOutputs; ++o) {
    for (int64_t k = 0; k < kCols; ++k) {
      const int64_t at = kernels::half_element(o, k, kCols);
      REQUIRE(at >= 0);
      REQUIRE(at < static_cast<int64_t>(taken.size()));
      CHECK(taken[static_cast<size_t>(at)]++ == 0);
      CHECK(at / 1024 == o / 16 * 2 + k / 64);
      CHECK(at % 256 / 8 == o % 8 * 4 + k % 64 / 16);  // lane
    }
  }
}

TEST_CASE("shim: a missing barrier is detected") {
  bool shown = false;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    CHECK(neighbours_agree<true>(seed));
    shown = shown || !neighbours_agree<false>(seed);
  }
  CHECK(shown);
}

TEST_CASE("shim: barriers that only a part of the block reaches are reported") {
  CHECK(run(1, 32, 0, half_at_barrier, 0) == cudaErrorLaunchFailure);
  CHECK(shim::last_failure().find("__syncthreads at shim_test.cpp") != std::string::npos);
  CHECK(shim::last_failure().find("16 of 32 threads") != std::string::npos);
  shim::reset();
  CHECK(run(1, 64, 0, different_barriers, 0) == cudaErrorLaunchFailure);
  CHECK(shim::last_failure().find("different __syncthreads") != std::string::npos);
  shim::reset();
  std::vector<int> out(32);
  CHECK(run(1, 96, 0, early_exit, out.data()) == cudaSuccess);
  CHECK(out == std::vector<int>(32, 1));
}

TEST_CASE("shim: a kernel that does not wait for the launch before is reported") {
  shim::reset();
  const auto begin = [](void (*kernel)(int)) {
    return on_stream([kernel](cudaStream_t stream) {
      return kernels::launch(stream, 1, 64, 0, kernel, true, 0);
    });
  };
  CHECK(begin(waits) == cudaSuccess);
  CHECK(begin(half_waits) == cudaErrorLaunchFailure);
  CHECK(shim::last_failure().find("32 of 64 threads waited") != std::string::npos);
  shim::reset();
}

TEST_CASE("shim: warp operations without all lanes are reported") {
  std::vector<int> out(64);
  CHECK(run(1, 64, 0, half_warp, out.data()) == cudaErrorLaunchFailure);
  CHECK(shim::last_failure().find("lanes 0x55555555 of warp 0") != std::string::npos);
  shim::reset();
  CHECK(run(1, 32, 0, different_exchanges, out.data()) == cudaErrorLaunchFailure);
  CHECK(shim::last_failure().find("lanes of a warp meet at shim_test.cpp") != std::string::npos);
  shim::reset();
  CHECK(run(1, 32, 0, partial_mask, out.data()) == cudaErrorLaunchFailure);
  CHECK(shim::last_failure().find("want all lanes") != std::string::npos);
  shim::reset();
}

TEST_CASE("shim: warp operations") {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    shim::set_order(seed);
    std::vector<int> out(64 * 6);
    REQUIRE(run(1, 64, 0, warp_operations, out.data()) == cudaSuccess);
    for (int thread = 0; thread < 64; ++thread) {
      const int lane = thread % 32;
      const int* got = out.data() + 6 * thread;
      CHECK(got[0] == 5);
      CHECK(got[1] == (lane ^ 16));
      CHECK(got[2] == (lane < 3 ? lane : lane - 3));
      CHECK(got[3] == (lane > 28 ? lane : lane + 3));
      CHECK(got[4] == 0x49249249);
      CHECK(got[5] == lane - 2 - 128 * lane);
    }
  }
  shim::set_order(0);
}

TEST_CASE("shim: launches that a device would refuse are refused") {
  int* none = nullptr;
  CHECK(run(0, 32, 0, early_exit, none) == cudaErrorInvalidConfiguration);
  CHECK(run(dim3(1, 65536), 32, 0, early_exit, none) == cudaErrorInvalidConfiguration);
  CHECK(run(1, 1056, 0, early_exit, none) == cudaErrorInvalidConfiguration);
  CHECK(run(1, 32, 49 * 1024, early_exit, none) == cudaErrorInvalidConfiguration);
  shim::reset();
}
