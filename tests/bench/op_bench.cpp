// hearth-op-bench: speed of the CPU ops as shares of what the machine can do at most.
//
//   hearth-op-bench [--variant NAME] [--threads N] [--type NAME | --type attention] [--smoke]
//
// Both ceilings, read bandwidth and arithmetic of the variant's unit, are measured in the same run.
// With one thread, times are that thread's own, so that a busy machine disturbs them less.
// Weights and KV are larger than the caches, as a model's are: cases walk over copies of them.
// --smoke runs everything small and once, so that the program cannot rot.

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/host/ceilings.h"
#include "kernels/ops.h"

namespace hearth::bench {
namespace {

using namespace hearth::kernels;

struct Bench {
  OpTable ops;
  Ceilings ceilings;
  bool smoke = false;

  double now_s() const {
    timespec time;
    clock_gettime(ops.device.num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  size_t spread_bytes() const { return smoke ? 1 : size_t{192} << 20; }

  /// Best time of one call, over at least half a second of calls.
  double best_seconds(const std::function<void(size_t call)>& call) const {
    double best = 1e30;
    double total = 0;
    for (size_t i = 0; total < (smoke ? 0.0 : 0.5) || i < (smoke ? 1u : 3u); ++i) {
      const double start = now_s();
      call(i);
      const double seconds = now_s() - start;
      best = std::min(best, seconds);
      total += seconds;
    }
    return best;
  }

  void report(const std::string& what, double seconds, double bytes, double operations,
              double operations_per_s) const {
    const double bandwidth = bytes / seconds;
    const double rate = operations / seconds;
    fmt::print("{:42} {:10.1f} us {:7.1f} GB/s {:4.0f}% {:8.1f} Gop/s {:4.0f}%\n", what,
               seconds * 1e6, bandwidth / 1e9, 100 * bandwidth / ceilings.read_bytes_per_s,
               rate / 1e9, operations_per_s > 0 ? 100 * rate / operations_per_s : 0.0);
    std::fflush(stdout);
  }
};

DeviceBuffer take(const OpTable& ops, size_t bytes) {
  auto buffer = DeviceBuffer::allocate(ops, bytes, "bench");
  if (!buffer.ok()) {
    fmt::print(stderr, "{}\n", buffer.error().message);
    std::exit(1);
  }
  return std::move(buffer).value();
}

/// A batch of `num_seqs` sequences with one context length, `queries` rows each, blocks in order.
struct Step {
  std::vector<int32_t> positions, seq_idx, query_start{0}, context_len, blocks, slots, outputs;
  std::vector<GroupIndex> groups;
  BatchIndex index;

  Step(int32_t num_seqs, int32_t context, int32_t queries) {
    const int32_t max_blocks = (context + 15) / 16;
    for (int32_t s = 0; s < num_seqs; ++s) {
      for (int32_t b = 0; b < max_blocks; ++b) blocks.push_back(s * max_blocks + b);
      for (int32_t p = context - queries; p < context; ++p) {
        positions.push_back(p);
        seq_idx.push_back(s);
        slots.push_back(-1);
      }
      query_start.push_back(static_cast<int32_t>(positions.size()));
      context_len.push_back(context);
      outputs.push_back(query_start.back() - 1);
    }
    groups = {{blocks.data(), max_blocks, slots.data()}};
    index.num_tokens = static_cast<int32_t>(positions.size());
    index.num_seqs = num_seqs;
    index.num_outputs = num_seqs;
    index.positions = positions.data();
    index.seq_idx = seq_idx.data();
    index.query_start = query_start.data();
    index.context_len = context_len.data();
    index.output_rows = outputs.data();
    index.groups = groups;
  }
};

void bench_matmul(const Bench& bench, DType dtype, int64_t cols, int64_t rows) {
  const OpTable& ops = bench.ops;
  const size_t bytes = bytes_of(dtype, static_cast<uint64_t>(rows * cols));
  std::vector<std::byte> stored(bytes);
  // With all bytes below 61 no half is infinite or a NaN.
  for (size_t i = 0; i < bytes; ++i) stored[i] = static_cast<std::byte>(i % 61);
  // Exponents about 2^-8 instead of ones whose products are subnormal, which are slow.
  for (size_t i = 0; i < bytes && dtype == DType::kMXFP4; i += 17) stored[i] = std::byte{120};
  const HostTensor tensor{"bench", dtype, rows, cols, stored};
  std::vector<std::unique_ptr<Weight>> copies;
  for (size_t have = 0; have < bench.spread_bytes(); have += bytes) {
    auto packed = ops.pack_weights(ops.state.get(), {&tensor, 1}, WeightRole::kMatmul);
    if (!packed.ok()) {
      fmt::print(stderr, "{}\n", packed.error().message);
      std::exit(1);
    }
    copies.push_back(std::move(packed).value());
  }
  for (const int32_t tokens : {1, 4, 16, 512}) {
    const Step step(1, tokens, tokens);
    const DeviceBuffer x = take(ops, static_cast<size_t>(tokens * cols) * 4);
    const DeviceBuffer out = take(ops, static_cast<size_t>(tokens * rows) * 4);
    for (int64_t i = 0; i < tokens * cols; ++i) {
      x.as<float>()[i] = static_cast<float>(i % 37 - 18) / 18;
    }
    const double seconds = bench.best_seconds([&](size_t call) {
      ops.matmul(ops.state.get(), {.batch = &step.index,
                                   .x = {x.data(), DType::kF32, tokens, cols, cols},
                                   .w = copies[call % copies.size()].get(),
                                   .out = {out.data(), DType::kF32, tokens, rows, rows}});
    });
    const double peak = info(dtype).block_elements > 1 ? bench.ceilings.int8_ops_per_s
                                                       : bench.ceilings.f32_ops_per_s;
    bench.report(fmt::format("matmul {} {}x{} rows {}", info(dtype).name, cols, rows, tokens),
                 seconds, static_cast<double>(copies[0]->bytes),
                 2.0 * tokens * static_cast<double>(rows * cols), peak);
  }
}

/// K and V of a model, and its queries per token.
struct Heads {
  int32_t queries = 32;
  KvShape kv = KvShape::even(8, 64);
};
constexpr Heads kLatentHeads = {.queries = 16, .kv = {1, 576, 512, true}};  // DeepSeek V2 Lite

void bench_attention(const Bench& bench, KvTypes kv_type, int32_t num_seqs, int32_t context,
                     int32_t queries, const Heads& heads = {}) {
  const KvShape& shape = heads.kv;
  const OpTable& ops = bench.ops;
  const Step step(num_seqs, context, queries);
  // A block holds all layers, as a model's does: calls use one after the other.
  const size_t layers = bench.smoke ? 2 : 16;
  const int64_t layer_bytes = kv_layer_bytes(kv_type, 16, shape);
  const int64_t block_bytes = layer_bytes * static_cast<int64_t>(layers);
  const auto seen_bytes = static_cast<size_t>(layer_bytes) * step.blocks.size();
  const DeviceBuffer pool = take(ops, seen_bytes * layers);
  // Every f16 is a small normal number, and so are scales and the numbers of fp8.
  std::fill_n(pool.as<uint16_t>(), pool.size() / 2, uint16_t{0x2c2c});
  const int64_t width = int64_t{heads.queries} * shape.k_dim;
  const int64_t out_width = int64_t{heads.queries} * shape.v_dim;
  const int32_t tokens = step.index.num_tokens;
  const DeviceBuffer q = take(ops, static_cast<size_t>(tokens * width) * 4);
  const DeviceBuffer out = take(ops, static_cast<size_t>(tokens * out_width) * 4);
  for (int64_t i = 0; i < tokens * width; ++i) {
    q.as<float>()[i] = static_cast<float>(i % 37 - 18) / 18;
  }
  const double seconds = bench.best_seconds([&](size_t call) {
    const auto layer = static_cast<int64_t>(call % layers) * layer_bytes;
    ops.attention(ops.state.get(),
                  {.batch = &step.index,
                   .q = {q.data(), DType::kF32, tokens, width, width},
                   .kv = {pool.data(), block_bytes, layer, kv_type, 16, shape},
                   .num_heads = heads.queries,
                   .scale = 0.125f,
                   .out = {out.data(), DType::kF32, tokens, out_width, out_width}});
  });
  double pairs = 0;  // per query and position it attends to
  for (const int32_t position : step.positions) pairs += position + 1;
  bench.report(fmt::format("attention {}{} {}x{} queries, context {}", kv_type_name(kv_type),
                           shape.v_in_k ? ", latent," : "", num_seqs, queries, context),
               seconds, static_cast<double>(seen_bytes),
               pairs * 2 * static_cast<double>(width + out_width), bench.ceilings.f32_ops_per_s);
}

constexpr DType kTypes[] = {
    DType::kQ8_0,    DType::kQ4_0,   DType::kQ4_1,  DType::kQ5_0,    DType::kQ5_1,  DType::kIQ4_NL,
    DType::kMXFP4,   DType::kQ2_K,   DType::kQ3_K,  DType::kQ4_K,    DType::kQ5_K,  DType::kQ6_K,
    DType::kIQ4_XS,  DType::kTQ1_0,  DType::kTQ2_0, DType::kNVFP4,   DType::kIQ1_S, DType::kIQ1_M,
    DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S, DType::kF16,
    DType::kBF16,    DType::kF32};

int run(const CpuOptions& options, std::string_view only, bool smoke) {
  auto ops = cpu_ops(options);
  if (!ops.ok()) {
    fmt::print(stderr, "{}\n", ops.error().message);
    return 1;
  }
  Bench bench{.ops = std::move(ops).value(), .ceilings = {}, .smoke = smoke};
  const DeviceInfo& device = bench.ops.device;
  {
    ThreadPool pool(device.num_threads);
    bench.ceilings =
        measure_ceilings(pool, device.variant, smoke ? size_t{4} << 20 : size_t{512} << 20);
  }
  fmt::print("{} {} threads {}\n", device.name, device.variant, device.num_threads);
  fmt::print("read {:.1f} GB/s, f32 {:.0f} Gop/s, int8 {:.0f} Gop/s\n",
             bench.ceilings.read_bytes_per_s / 1e9, bench.ceilings.f32_ops_per_s / 1e9,
             bench.ceilings.int8_ops_per_s / 1e9);
  const int64_t width = smoke ? 256 : 2048;
  for (const DType dtype : kTypes) {
    if (only.empty() || only == info(dtype).name) bench_matmul(bench, dtype, width, 4 * width);
  }
  if (only.empty()) bench_matmul(bench, DType::kQ8_0, width, width);
  if (!only.empty() && only != "attention") return 0;
  for (const KvTypes kv_type :
       {KvTypes(KvType::kF16), KvTypes(KvType::kQ8_0), KvTypes(KvType::kFp8),
        KvTypes(KvType::kQ4_0), KvTypes(KvType::kQ8_0, KvType::kQ4_0)}) {
    bench_attention(bench, kv_type, 1, smoke ? 64 : 512, 1);
    bench_attention(bench, kv_type, 1, smoke ? 600 : 4096, 1);
    bench_attention(bench, kv_type, 1, smoke ? 600 : 4096, 1, {.queries = 8});  // one per KV head
    bench_attention(bench, kv_type, smoke ? 2 : 16, smoke ? 40 : 1024, 1);
    bench_attention(bench, kv_type, 1, smoke ? 32 : 512, smoke ? 32 : 512);
    bench_attention(bench, kv_type, 1, smoke ? 64 : 8192, smoke ? 16 : 512);
    if (!kv_type.alike()) continue;
    bench_attention(bench, kv_type, 1, smoke ? 64 : 4096, 1, kLatentHeads);
    bench_attention(bench, kv_type, 1, smoke ? 64 : 2048, smoke ? 16 : 128, kLatentHeads);
  }
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  hearth::kernels::CpuOptions options;
  std::string_view only;
  bool smoke = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--smoke") {
      smoke = true;
    } else if (arg == "--variant" && i + 1 < argc) {
      options.variant = argv[++i];
    } else if (arg == "--threads" && i + 1 < argc) {
      options.num_threads = std::atoi(argv[++i]);
    } else if (arg == "--type" && i + 1 < argc) {
      only = argv[++i];
    } else {
      fmt::print(stderr,
                 "usage: hearth-op-bench [--variant NAME] [--threads N] [--type NAME] [--smoke]\n");
      return 2;
    }
  }
  return hearth::bench::run(options, only, smoke);
}
