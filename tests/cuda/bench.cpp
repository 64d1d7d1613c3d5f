// hearth-cuda-bench: what share of the device's copy bandwidth matrix products and attention reach.
// Decode shapes of an 8 B model (width 4096, 8 KV heads of 128, 32 heads), made in memory. Needs
// nothing but the C++ runtime, so it can be carried to any machine with a GPU.
//   hearth-cuda-bench [--device N] [--small]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cuda_ops.h"

namespace {

using namespace hearth;           // NOLINT
using namespace hearth::kernels;  // NOLINT

struct Sizes {
  int64_t width = 4096;
  int64_t hidden = 14336;
  int32_t context = 8192;
  int64_t copy_bytes = int64_t{1} << 30;
  int64_t resident_bytes = int64_t{1} << 28;  // of weights in turn: more than any cache holds
  double seconds = 0.5;                       // per measurement
};
constexpr Sizes kSmall = {256, 512, 700, 1 << 16, 1, 0};

DeviceBuffer allocate(const OpTable& ops, int64_t bytes) {
  auto buffer = DeviceBuffer::allocate(ops, static_cast<size_t>(bytes), "bench");
  if (!buffer.ok()) {
    std::fprintf(stderr, "%s\n", buffer.error().message.c_str());
    std::exit(1);
  }
  return std::move(buffer).value();
}

/// Mean seconds of one call of `op(i)`, i ascending, over about `seconds`; warmed up before.
double time_of(const OpTable& ops, double seconds, const std::function<void(int64_t)>& op) {
  using Clock = std::chrono::steady_clock;
  op(0);
  ops.synchronize(ops.state.get());
  for (int64_t count = 1;; count *= 4) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < count; ++i) op(i);
    ops.synchronize(ops.state.get());
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    if (took >= seconds / 4) return took / static_cast<double>(count);
  }
}

/// Bytes read and written per second by copies inside the device.
double copy_rate(const OpTable& ops, const Sizes& sizes) {
  const DeviceBuffer pool = allocate(ops, 2 * sizes.copy_bytes);
  const std::vector<int32_t> src = {0};
  const std::vector<int32_t> dst = {1};
  const double took = time_of(ops, sizes.seconds, [&](int64_t) {
    ops.copy_blocks(ops.state.get(), {pool.data(), sizes.copy_bytes, src, dst});
  });
  return 2.0 * static_cast<double>(sizes.copy_bytes) / took;
}

/// A decode step's index: `rows` sequences of `context` tokens, one row each.
struct Index {
  Index(const OpTable& ops, int32_t rows, int32_t context) {
    const int32_t blocks = (context + 15) / 16;
    std::vector<int32_t> numbers = {rows, rows, rows};
    counts = put(ops, numbers);
    numbers.assign(static_cast<size_t>(rows), context - 1);
    positions = put(ops, numbers);
    for (int32_t i = 0; i < rows; ++i) numbers[static_cast<size_t>(i)] = i;
    seq_idx = put(ops, numbers);
    numbers.resize(static_cast<size_t>(rows) * static_cast<size_t>(blocks));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    table = put(ops, numbers);
    group.block_table = table.as<int32_t>();
    group.max_blocks = blocks;
    batch.num_tokens = batch.num_seqs = batch.num_outputs = rows;
    batch.counts = counts.as<int32_t>();
    batch.positions = positions.as<int32_t>();
    batch.seq_idx = seq_idx.as<int32_t>();
    batch.groups = {&group, 1};
  }
  static DeviceBuffer put(const OpTable& ops, const std::vector<int32_t>& values) {
    DeviceBuffer buffer = allocate(ops, static_cast<int64_t>(values.size() * sizeof(int32_t)));
    ops.copy_to_device(ops.state.get(), buffer.data(), values.data(), buffer.size());
    return buffer;
  }
  DeviceBuffer counts, positions, seq_idx, table;
  GroupIndex group;
  BatchIndex batch;
};

TensorView view_of(const DeviceBuffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::kF32, rows, cols, cols};
}

void report(const std::string& what, double took, double bytes, double peak) {
  fmt::print("{:<44} {:>9.1f} us {:>8.1f} GB/s {:>6.1f} % of copy\n", what, took * 1e6,
             bytes / took / 1e9, 100 * bytes / took / peak);
  std::fflush(stdout);
}

void bench_matmul(const OpTable& ops, const Sizes& sizes, DType type, int64_t outputs,
                  int64_t inputs, int32_t rows, double peak) {
  // Values do not matter to the time, except that they be numbers: all zero.
  const std::vector<std::byte> zeros(bytes_of(type, static_cast<uint64_t>(outputs * inputs)));
  const HostTensor tensor = {"bench", type, outputs, inputs, zeros};
  std::vector<std::unique_ptr<Weight>> weights;
  int64_t resident = 0;
  while (weights.empty() || resident < sizes.resident_bytes) {
    auto weight = ops.pack_weights(ops.state.get(), {&tensor, 1}, WeightRole::kMatmul);
    HEARTH_CHECK(weight.ok(), "{}", weight.error().message);
    resident += static_cast<int64_t>((*weight)->bytes);
    weights.push_back(std::move(weight).value());
  }
  const Index index(ops, rows, 1);
  const DeviceBuffer x = allocate(ops, rows * inputs * 4);
  const DeviceBuffer out = allocate(ops, rows * outputs * 4);
  const double took = time_of(ops, sizes.seconds, [&](int64_t i) {
    const Weight* weight = weights[static_cast<size_t>(i) % weights.size()].get();
    ops.matmul(ops.state.get(), {&index.batch, Rows::kTokens, view_of(x, rows, inputs), weight,
                                 nullptr, view_of(out, rows, outputs)});
  });
  report(fmt::format("matmul {} {} x {}, rows {}", info(type).name, outputs, inputs, rows), took,
         static_cast<double>(weights[0]->bytes), peak);
}

void bench_attention(const OpTable& ops, const Sizes& sizes, int32_t rows, int32_t context,
                     double peak) {
  constexpr int32_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
  const Index index(ops, rows, context);
  const int64_t block_bytes = kv_layer_bytes(DType::kF16, 16, kKvHeads, kHeadDim);
  const DeviceBuffer pool = allocate(ops, rows * index.group.max_blocks * block_bytes);
  const DeviceBuffer q = allocate(ops, int64_t{rows} * kHeads * kHeadDim * 4);
  const DeviceBuffer out = allocate(ops, int64_t{rows} * kHeads * kHeadDim * 4);
  AttentionArgs args{};
  args.batch = &index.batch;
  args.q = view_of(q, rows, kHeads * kHeadDim);
  args.kv = {pool.data(), block_bytes, 0, DType::kF16, 16, kKvHeads, kHeadDim};
  args.num_heads = kHeads;
  args.scale = 0.088f;
  args.out = view_of(out, rows, kHeads * kHeadDim);
  const double took =
      time_of(ops, sizes.seconds, [&](int64_t) { ops.attention(ops.state.get(), args); });
  const double bytes = 2.0 * rows * context * kKvHeads * kHeadDim * 2;
  report(fmt::format("attention decode f16, rows {}, context {}", rows, context), took, bytes,
         peak);
}

int run(const CudaOptions& options, const Sizes& sizes) {
  const auto table = cuda_ops(options);
  if (!table.ok()) {
    std::fprintf(stderr, "hearth-cuda-bench: %s\n", table.error().message.c_str());
    return 77;  // skipped
  }
  const OpTable& ops = *table;
  fmt::print("{} ({}), {:.1f} of {:.1f} GiB free\n", ops.device.name, ops.device.variant,
             static_cast<double>(ops.device.memory_free_bytes) / (1 << 30),
             static_cast<double>(ops.device.memory_bytes) / (1 << 30));
  const double peak = copy_rate(ops, sizes);
  fmt::print("copy: {:.1f} GB/s read and written\n", peak / 1e9);
  for (const DType type : {DType::kF16, DType::kQ8_0}) {
    for (const int32_t rows : {1, 8}) {
      bench_matmul(ops, sizes, type, sizes.width, sizes.width, rows, peak);
      bench_matmul(ops, sizes, type, 2 * sizes.hidden, sizes.width, rows, peak);
      bench_matmul(ops, sizes, type, sizes.width, sizes.hidden, rows, peak);
    }
  }
  for (const int32_t rows : {1, 8}) {
    bench_attention(ops, sizes, rows, sizes.context / 16, peak);
    bench_attention(ops, sizes, rows, sizes.context, peak);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CudaOptions options;
  Sizes sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      sizes = kSmall;
    } else if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
      options.device = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: hearth-cuda-bench [--device N] [--small]\n");
      return 2;
    }
  }
  return run(options, sizes);
}
