#include "kernels/cuda/host/ceilings.h"

#include <algorithm>
#include <chrono>

#include "kernels/base/numbers.h"
#include "kernels/cuda/host/ceilings.cuh"
#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/state.h"

namespace hearth::kernels {
namespace {

constexpr int kBlocksPerUnit = 8;  // of 256 threads, per multiprocessor: as many as run at once
constexpr int kRounds = 1 << 14;
constexpr int kRuns = 5;

/// The best rate of a few runs of `work`, which returns how much work it has queued.
template <typename Work>
double best_rate(const OpTable& ops, const Work& work) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    ops.synchronize(ops.state.get());
    const auto start = Clock::now();
    const double done = work();
    ops.synchronize(ops.state.get());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (run > 0 && seconds > 0) best = std::max(best, done / seconds);
  }
  return best;
}

}  // namespace

Result<Ceilings> measure_cuda_ceilings(const OpTable& ops, size_t read_bytes) {
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer buffer,
                          DeviceBuffer::allocate(ops, read_bytes, "measuring the bandwidth"));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer out, DeviceBuffer::allocate(ops, 64, "measuring"));
  cudaStream_t stream = cuda_state(ops.state.get()).stream.get();
  int device = 0;
  cudaDeviceProp properties{};
  HEARTH_CUDA_CHECK(cudaGetDevice(&device));
  HEARTH_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  const int blocks = properties.multiProcessorCount * kBlocksPerUnit;
  // Long enough that the time of the launch is negligible.
  const auto times = static_cast<int>((size_t{64} << 30) / std::max<size_t>(read_bytes, 1));
  const int reads = std::clamp(times, 1, 64);
  Ceilings ceilings;
  ceilings.read_bytes_per_s = best_rate(ops, [&] {
    for (int i = 0; i < reads; ++i) {
      launch_read(stream, blocks, buffer.data(), buffer.size(), out.data());
    }
    return as_double(buffer.size()) * reads;
  });
  ceilings.f32_ops_per_s =
      best_rate(ops, [&] { return launch_fma(stream, blocks, kRounds, out.data()); });
  ceilings.int8_ops_per_s =
      best_rate(ops, [&] { return launch_mma_int8(stream, blocks, kRounds, out.data()); });
  ceilings.half_ops_per_s =
      best_rate(ops, [&] { return launch_mma_half(stream, blocks, kRounds, out.data()); });
  return ceilings;
}

}  // namespace hearth::kernels
