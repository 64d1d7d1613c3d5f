// hearth-cuda-bench: what share of the device's read bandwidth matrix products and attention reach.
// Decode shapes of an 8 B model (width 4096, 8 KV heads of 128, 32 heads), made in memory. Needs
// nothing but the C++ runtime, so it can be carried to any machine with a GPU.
//   hearth-cuda-bench [--device N] [--small] [--numerics exact|fast] [--only PARTS] [--row-bits]
//                     [--no-wgmma] [--unconfirmed]
// PARTS: ceilings, few (products of at most 32 rows), many, types, attention, layer (few rows
// through the products of a layer that have launches in common); joined by commas. The ceilings are
// measured always. Lines end with the share of what was measured: of the read rate,
// and of the tensor cores' rate for the numbers multiplied (int8, or f16 by the better of mma.sync
// and cuBLASLt).
// --row-bits measures no time: whether cuBLASLt's bits depend on the row count (row_bits.h).
// --no-wgmma measures the kernels of devices without it, --unconfirmed those that no device has run
// yet, on any device.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cuda/host/ceilings.h"
#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/state.h"
#include "kernels/cuda/op_table.h"
#include "kernels/ops/encoder_ops.h"
#include "tests/cuda/row_bits.h"
#include "tests/skip.h"

namespace {

using namespace hearth;           // NOLINT
using namespace hearth::kernels;  // NOLINT

struct Sizes {
  int64_t width = 4096;
  int64_t hidden = 14336;
  int32_t context = 8192;
  int64_t copy_bytes = int64_t{1} << 30;
  int64_t resident_bytes = int64_t{160} << 20;  // of weights in rotation: more than any cache holds
  int32_t long_context = 32768;
  int64_t prefill_rows = 512;
  int64_t calls = 40;  // in one captured run
  int rounds = 7;
  bool captured = true;  ///< calls of one run as a graph, where launch time would matter
};
constexpr Sizes kSmall = {256, 512, 300, 1 << 16, 1, 600, 70, 1, 1, true};

DeviceBuffer allocate(const OpTable& ops, int64_t bytes) {
  auto buffer = DeviceBuffer::allocate(ops, static_cast<size_t>(bytes), "bench");
  if (!buffer.ok()) {
    std::fprintf(stderr, "%s\n", buffer.error().message.c_str());
    std::exit(1);
  }
  return std::move(buffer).value();
}

/// Seconds of one call of `op(i)`, i ascending: the median of captured runs of so many calls that
/// launch time does not matter.
double time_of(const OpTable& ops, const Sizes& sizes, const std::function<void(int64_t)>& op) {
  using Clock = std::chrono::steady_clock;
  cudaStream_t stream = cuda_state(ops.state.get()).stream.get();
  op(0);  // outside the capture: what grows or loads at the first call does it here
  ops.synchronize(ops.state.get());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t run = nullptr;
  const auto all = [&] {
    for (int64_t i = 0; i < sizes.calls; ++i) op(i);
  };
  if (sizes.captured) {
    HEARTH_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    all();
    HEARTH_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    HEARTH_CUDA_CHECK(cudaGraphInstantiate(&run, graph, 0));
  }
  std::vector<double> seconds;
  for (int round = 0; round <= sizes.rounds; ++round) {  // the first one warms up
    const auto start = Clock::now();
    if (sizes.captured) {
      HEARTH_CUDA_CHECK(cudaGraphLaunch(run, stream));
    } else {
      all();
    }
    ops.synchronize(ops.state.get());
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    if (round > 0) seconds.push_back(took / static_cast<double>(sizes.calls));
  }
  if (sizes.captured) {
    HEARTH_CUDA_CHECK(cudaGraphExecDestroy(run));
    HEARTH_CUDA_CHECK(cudaGraphDestroy(graph));
  }
  std::ranges::nth_element(seconds, seconds.begin() + sizes.rounds / 2);
  return seconds[static_cast<size_t>(sizes.rounds / 2)];
}

/// Bytes read and written per second by copies on the device.
double copy_rate(const OpTable& ops, const Sizes& sizes) {
  const DeviceBuffer pool = allocate(ops, 2 * sizes.copy_bytes);
  const std::vector<int32_t> src = {0};
  const std::vector<int32_t> dst = {1};
  const double took = time_of(ops, sizes, [&](int64_t) {
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
  /// One sequence's last `rows` rows.
  void make_prefill(const OpTable& ops, int32_t rows, int32_t context) {
    std::vector<int32_t> numbers(static_cast<size_t>(rows));
    for (int32_t i = 0; i < rows; ++i) numbers[static_cast<size_t>(i)] = context - rows + i;
    positions = put(ops, numbers);
    numbers.assign(static_cast<size_t>(rows), 0);
    seq_idx = put(ops, numbers);
    batch.positions = positions.as<int32_t>();
    batch.seq_idx = seq_idx.as<int32_t>();
    batch.num_seqs = 1;
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

/// Numbers in [-1, 1]; zeros would make a device look faster.
DeviceBuffer random_rows(const OpTable& ops, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t seed = 1;
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
  }
  DeviceBuffer buffer = allocate(ops, count * 4);
  ops.copy_to_device(ops.state.get(), buffer.data(), values.data(), buffer.size());
  return buffer;
}

/// Random bytes whose second highest bit is clear: halves and floats below 2 in size.
std::vector<std::byte> random_bytes(int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  uint32_t seed = 7;
  for (std::byte& byte : bytes) {
    seed = seed * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(seed >> 24 & 0xbfu);
  }
  return bytes;
}

/// Blocks of KV. One MiB of random bytes is repeated: what matters is that nothing is zero.
DeviceBuffer random_pool(const OpTable& ops, int64_t bytes) {
  const std::vector<std::byte> some = random_bytes(std::min<int64_t>(bytes, 1 << 20));
  DeviceBuffer pool = allocate(ops, bytes);
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(some.size())) {
    const auto count = std::min(static_cast<int64_t>(some.size()), bytes - at);
    ops.copy_to_device(ops.state.get(), pool.as<std::byte>() + at, some.data(),
                       static_cast<size_t>(count));
  }
  return pool;
}

/// Bytes of a stored tensor: random codes, and small scales because bit 6 of every byte is clear
/// (the second highest bit of a half's exponent).
std::vector<std::byte> random_bytes(DType type, int64_t count) {
  return random_bytes(static_cast<int64_t>(bytes_of(type, static_cast<uint64_t>(count))));
}

/// `peak`: operations per second of the tensor cores; 0: not measured.
void report(const std::string& what, double took, double bytes, double operations, double peak,
            const Ceilings& best) {
  const std::string share =
      peak > 0 ? fmt::format("{:>5.1f} % of peak", 100 * operations / took / peak) : "";
  fmt::print("{:<44} {:>10.1f} us {:>7.0f} GB/s {:>6.1f} % of read {:>8.2f} Top/s {}\n", what,
             took * 1e6, bytes / took / 1e9, 100 * bytes / took / best.read_bytes_per_s,
             operations / took / 1e12, share);
  std::fflush(stdout);
}

void bench_matmul(const OpTable& ops, const Sizes& sizes, DType type, int64_t outputs,
                  int64_t inputs, const std::vector<int64_t>& row_counts, bool fast,
                  const Ceilings& best) {
  const bool quantized = info(type).block_elements > 1;
  const double peak = quantized && !fast ? best.int8_ops_per_s : best.half_ops_per_s;
  const std::vector<std::byte> bytes = random_bytes(type, outputs * inputs);
  const HostTensor tensor = {"bench", type, outputs, inputs, bytes};
  std::vector<std::unique_ptr<Weight>> weights;
  int64_t resident = 0;
  while (weights.empty() || resident < sizes.resident_bytes) {
    auto weight = ops.pack_weights(ops.state.get(), {&tensor, 1}, WeightRole::kMatmul);
    HEARTH_CHECK(weight.ok(), "{}", weight.error().message);
    resident += static_cast<int64_t>((*weight)->bytes);
    weights.push_back(std::move(weight).value());
  }
  for (const int64_t rows : row_counts) {
    const Index index(ops, static_cast<int32_t>(rows), 1);
    const DeviceBuffer x = random_rows(ops, rows * inputs);
    const DeviceBuffer out = allocate(ops, rows * outputs * 4);
    Sizes own = sizes;
    // As in a model's steps; the additional work of fast numerics is not included.
    own.captured = rows <= 64;
    const double took = time_of(ops, own, [&](int64_t i) {
      const Weight* weight = weights[static_cast<size_t>(i) % weights.size()].get();
      ops.matmul(ops.state.get(), {&index.batch, Rows::kTokens, view_of(x, rows, inputs), weight,
                                   nullptr, view_of(out, rows, outputs)});
    });
    // Counts the file's bytes, not the packed ones.
    report(fmt::format("matmul {} {} x {}, rows {}", info(type).name, outputs, inputs, rows), took,
           static_cast<double>(bytes.size()), 2.0 * static_cast<double>(outputs * inputs * rows),
           peak, best);
  }
}

std::unique_ptr<Weight> random_weight(const OpTable& ops,
                                      const std::vector<std::pair<DType, int64_t>>& outputs,
                                      int64_t inputs) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<HostTensor> tensors;
  for (const auto& [type, count] : outputs) {
    bytes.push_back(random_bytes(type, count * inputs));
    tensors.push_back({"bench", type, count, inputs, bytes.back()});
  }
  auto weight = ops.pack_weights(ops.state.get(), tensors, WeightRole::kMatmul);
  HEARTH_CHECK(weight.ok(), "{}", weight.error().message);
  return std::move(weight).value();
}

/// A norm with q, k and v, of which V has type `v_type`; then a norm with gates, activation and
/// down. Of several layers in turn.
void bench_layer(const OpTable& ops, const Sizes& sizes, DType type, DType v_type, int64_t rows,
                 const Ceilings& best) {
  struct Layer {
    std::unique_ptr<Weight> qkv, gate_up, down;
  };
  std::vector<Layer> layers;
  const int64_t width = sizes.width, hidden = sizes.hidden, kv = width / 4;
  for (int64_t resident = 0; layers.empty() || resident < sizes.resident_bytes;) {
    const Layer& made =
        layers.emplace_back(random_weight(ops, {{type, width + kv}, {v_type, kv}}, width),
                            random_weight(ops, {{type, 2 * hidden}}, width),
                            random_weight(ops, {{type, width}}, hidden));
    resident += static_cast<int64_t>(made.qkv->bytes + made.gate_up->bytes + made.down->bytes);
  }
  const std::vector<float> ones(static_cast<size_t>(width), 1.0f);
  const HostTensor norm_tensor = {"bench", DType::kF32, 1, width, std::as_bytes(std::span(ones))};
  auto norm = ops.pack_weights(ops.state.get(), {&norm_tensor, 1}, WeightRole::kVector);
  HEARTH_CHECK(norm.ok(), "{}", norm.error().message);
  const Index index(ops, static_cast<int32_t>(rows), 1);
  const DeviceBuffer x = random_rows(ops, rows * width);
  const DeviceBuffer in = allocate(ops, rows * width * 4);
  const DeviceBuffer many = allocate(ops, rows * 2 * hidden * 4);
  const DeviceBuffer gated = allocate(ops, rows * hidden * 4);
  void* state = ops.state.get();
  const auto multiply = [&](const DeviceBuffer& from, const Weight& w, const DeviceBuffer& to) {
    ops.matmul(state, {&index.batch, Rows::kTokens, view_of(from, rows, w.cols), &w, nullptr,
                       view_of(to, rows, w.rows)});
  };
  const auto norm_for = [&](const Weight& reader) {
    ops.rms_norm(state, {&index.batch, Rows::kTokens, view_of(x, rows, width), norm->get(), 1e-5f,
                         view_of(in, rows, width), &reader});
  };
  const auto what = fmt::format("{} and {}, rows {}", info(type).name, info(v_type).name, rows);
  const auto bytes = [](const auto&... weights) {
    return static_cast<double>((weights->bytes + ...));
  };
  double took = time_of(ops, sizes, [&](int64_t i) {
    const Layer& layer = layers[static_cast<size_t>(i) % layers.size()];
    norm_for(*layer.qkv);
    multiply(in, *layer.qkv, many);
  });
  report("layer: norm, q k v of " + what, took, bytes(layers[0].qkv), 0, 0, best);
  took = time_of(ops, sizes, [&](int64_t i) {
    const Layer& layer = layers[static_cast<size_t>(i) % layers.size()];
    norm_for(*layer.gate_up);
    const MatmulArgs product{&index.batch,        Rows::kTokens, view_of(in, rows, width),
                             layer.gate_up.get(), nullptr,       view_of(many, rows, 2 * hidden)};
    const GatedActivationArgs then{
        &index.batch,    product.out, Activation::kSilu, view_of(gated, rows, hidden), 1,
        layer.down.get()};
    if (ops.encoder->multiply_and_gate != nullptr) {
      ops.encoder->multiply_and_gate(state, product, then);
    } else {
      ops.matmul(state, product);
      ops.gated_activation(state, then);
    }
    multiply(gated, *layer.down, in);
  });
  report("layer: norm, gate up, down of " + what, took, bytes(layers[0].gate_up, layers[0].down), 0,
         0, best);
}

/// `rows` sequences of one row each, or if `prefill` one sequence's last `rows` rows.
void bench_attention(const OpTable& ops, const Sizes& sizes, DType type, int32_t rows,
                     int32_t context, bool prefill, const Ceilings& best) {
  constexpr int32_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
  constexpr auto shape = KvShape::even(kKvHeads, kHeadDim);
  Index index(ops, rows, context);
  const int32_t sequences = prefill ? 1 : rows;
  if (prefill) index.make_prefill(ops, rows, context);
  const int64_t block_bytes = kv_layer_bytes(type, 16, shape);
  const int64_t blocks = int64_t{sequences} * index.group.max_blocks;
  const DeviceBuffer pool = random_pool(ops, blocks * block_bytes);
  const DeviceBuffer q = random_rows(ops, int64_t{rows} * kHeads * kHeadDim);
  const DeviceBuffer out = allocate(ops, int64_t{rows} * kHeads * kHeadDim * 4);
  AttentionArgs args{};
  args.batch = &index.batch;
  args.q = view_of(q, rows, kHeads * kHeadDim);
  args.kv = {pool.data(), block_bytes, 0, type, 16, shape};
  args.num_heads = kHeads;
  args.scale = 0.088f;
  args.out = view_of(out, rows, kHeads * kHeadDim);
  Sizes own = sizes;
  own.calls = std::max<int64_t>(sizes.calls / 4, 1);
  const double took = time_of(ops, own, [&](int64_t) { ops.attention(ops.state.get(), args); });
  const double positions = prefill ? context - rows / 2.0 : context;
  report(fmt::format("attention {} {}, rows {}, context {}", prefill ? "prefill" : "decode",
                     info(type).name, rows, context),
         took, static_cast<double>(block_bytes) / 16 * sequences * context,
         4.0 * rows * positions * kHeads * kHeadDim, best.half_ops_per_s, best);
}

/// The rate of a large product of f16 by cuBLASLt, in operations per second; 0 without the library.
double cublaslt_rate(const CudaOptions& options, const Sizes& sizes) {
  CudaOptions fast = options;
  fast.numerics = Numerics::kFast;
  const auto table = cuda_ops(fast);
  if (!table.ok() || !table->device.notice.empty()) return 0;
  const OpTable& ops = *table;
  const int64_t outputs = 2 * sizes.hidden, inputs = sizes.width, rows = 8 * sizes.prefill_rows;
  const std::vector<std::byte> bytes = random_bytes(DType::kF16, outputs * inputs);
  const HostTensor tensor = {"bench", DType::kF16, outputs, inputs, bytes};
  const auto weight = ops.pack_weights(ops.state.get(), {&tensor, 1}, WeightRole::kMatmul);
  HEARTH_CHECK(weight.ok(), "{}", weight.error().message);
  const Index index(ops, static_cast<int32_t>(rows), 1);
  const DeviceBuffer x = random_rows(ops, rows * inputs);
  const DeviceBuffer out = allocate(ops, rows * outputs * 4);
  Sizes own = sizes;
  own.captured = false;
  const double took = time_of(ops, own, [&](int64_t) {
    ops.matmul(ops.state.get(), {&index.batch, Rows::kTokens, view_of(x, rows, inputs),
                                 weight->get(), nullptr, view_of(out, rows, outputs)});
  });
  return 2.0 * static_cast<double>(outputs * inputs * rows) / took;
}

struct Wanted {
  bool row_bits = false;
  std::string parts = "ceilings,few,many,types,attention,layer";
  bool has(std::string_view part) const {
    return ("," + parts + ",").find("," + std::string(part) + ",") != std::string::npos;
  }
};

int run(const CudaOptions& options, const Sizes& sizes, const Wanted& wanted) {
  const auto table = cuda_ops(options);
  if (!table.ok()) {
    std::fprintf(stderr, "hearth-cuda-bench: %s\n", table.error().message.c_str());
    return tests::device_required() ? 1 : 77;  // skipped
  }
  const OpTable& ops = *table;
  if (wanted.row_bits) return tests::print_row_bits(ops, sizes.rounds == 1) ? 0 : 77;
  fmt::print("{} ({}), {:.1f} of {:.1f} GiB free\n", ops.device.name, ops.device.variant,
             static_cast<double>(ops.device.memory_free_bytes) / (1 << 30),
             static_cast<double>(ops.device.memory_bytes) / (1 << 30));
  fmt::print("copy: {:.0f} GB/s read and written\n", copy_rate(ops, sizes) / 1e9);
  Ceilings best{.read_bytes_per_s = 1e12, .f32_ops_per_s = 0, .int8_ops_per_s = 0};
  if (sizes.rounds > 1) {  // takes minutes on the shim
    auto measured = measure_cuda_ceilings(ops, size_t{4} << 30);
    HEARTH_CHECK(measured.ok(), "{}", measured.error().message);
    best = *measured;
    const double lt = cublaslt_rate(options, sizes);
    fmt::print(
        "read: {:.0f} GB/s; Top/s: f32 {:.1f}, int8 (mma.sync) {:.1f}, f16 (mma.sync) {:.1f}, f16 "
        "(cuBLASLt) {:.1f}\n",
        best.read_bytes_per_s / 1e9, best.f32_ops_per_s / 1e12, best.int8_ops_per_s / 1e12,
        best.half_ops_per_s / 1e12, lt / 1e12);
    best.half_ops_per_s = std::max(best.half_ops_per_s, lt);
  }
  if (!ops.device.notice.empty()) fmt::print("{}\n", ops.device.notice);
  std::fflush(stdout);
  if (options.numerics == Numerics::kFast) {
    // The threshold (kFastRows), and prefill; few rows use the exact kernels.
    const std::vector<int64_t> many = {
        65, 96, 128, 256, sizes.prefill_rows, 4 * sizes.prefill_rows};
    for (const DType type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kF16, DType::kBF16}) {
      if (!wanted.has("many")) continue;
      bench_matmul(ops, sizes, type, 2 * sizes.hidden, sizes.width, many, true, best);
      bench_matmul(ops, sizes, type, sizes.width, sizes.hidden, many, true, best);
    }
    return 0;
  }
  std::vector<int64_t> rows, narrow_rows;
  if (wanted.has("few")) rows = {1, 4, 8, 16, 32}, narrow_rows = {1, 8};
  if (wanted.has("many")) {
    rows.insert(rows.end(), {128, sizes.prefill_rows, 4 * sizes.prefill_rows});
  }
  for (const DType type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kF16}) {
    if (rows.empty()) continue;
    bench_matmul(ops, sizes, type, sizes.width, sizes.width, rows, false, best);
    bench_matmul(ops, sizes, type, 2 * sizes.hidden, sizes.width, rows, false, best);
    if (narrow_rows.empty()) continue;
    bench_matmul(ops, sizes, type, sizes.width, sizes.hidden, narrow_rows, false, best);
  }
  for (const DType type : {DType::kQ4_0, DType::kQ5_K, DType::kQ3_K, DType::kQ2_K, DType::kIQ4_XS,
                           DType::kMXFP4, DType::kBF16}) {
    if (!wanted.has("types")) continue;
    bench_matmul(ops, sizes, type, 2 * sizes.hidden, sizes.width, {1, 8}, false, best);
  }
  for (const auto& [type, v_type] :
       {std::pair{DType::kQ4_K, DType::kQ6_K}, std::pair{DType::kQ8_0, DType::kQ8_0}}) {
    if (!wanted.has("layer")) continue;
    for (const int64_t count : {1, 8}) bench_layer(ops, sizes, type, v_type, count, best);
  }
  for (const DType type : {DType::kF16, DType::kQ8_0}) {
    if (!wanted.has("attention")) continue;
    for (const int32_t count : {1, 8}) {
      bench_attention(ops, sizes, type, count, sizes.context / 16, false, best);
      bench_attention(ops, sizes, type, count, sizes.context, false, best);
    }
    bench_attention(ops, sizes, type, 1, sizes.long_context, false, best);
    bench_attention(ops, sizes, type, static_cast<int32_t>(sizes.prefill_rows), sizes.context, true,
                    best);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CudaOptions options;
  Sizes sizes;
  Wanted wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      sizes = kSmall;
    } else if (std::strcmp(argv[i], "--row-bits") == 0) {
      wanted.row_bits = true;
    } else if (std::strcmp(argv[i], "--no-wgmma") == 0) {
      options.wgmma = false;
    } else if (std::strcmp(argv[i], "--unconfirmed") == 0) {
      options.unconfirmed = true;
    } else if (std::strcmp(argv[i], "--numerics") == 0 && i + 1 < argc) {
      const bool fast = std::strcmp(argv[++i], "fast") == 0;
      options.numerics = fast ? Numerics::kFast : Numerics::kExact;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      wanted.parts = argv[++i];
    } else if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
      options.device = std::atoi(argv[++i]);
    } else {
      std::fprintf(
          stderr,
          "usage: hearth-cuda-bench [--device N] [--small] [--numerics fast] [--only PARTS] "
          "[--row-bits] [--no-wgmma] [--unconfirmed]\n");
      return 2;
    }
  }
  return run(options, sizes, wanted);
}
