#include "kernels/cuda/op_table.h"

#include <fmt/core.h>

#include "kernels/base/check.h"
#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/elastic.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/host/state.h"
#include "kernels/cuda/host/written.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"
#include "kernels/ops/recurrent_kernels.h"
#include "kernels/ops/wkv_ops.h"

namespace hearth::kernels {
namespace {

/// Quantized copies of rows that an op is about to write are of no use any more.
template <typename Args>
void drop_overwritten(void* state, const Args& args) {
  HeldRows& held = cuda_state(state).held;
  written(args, [&held](const auto&... memory) { held.overwrite(memory...); });
}

/// Checks the shapes of an op, or of several that run as one, against the step's upper bounds, then
/// runs it: the exact counts are in device memory, which the host cannot read.
template <auto op, typename... Args>
void checked(void* state, const Args&... args) {
  const auto check = [](auto with_bounds) {
    BatchIndex bounds = *with_bounds.batch;
    bounds.counts = nullptr;
    with_bounds.batch = &bounds;
    check_args(with_bounds);
  };
  (check(args), ...);
  (drop_overwritten(state, args), ...);
  op(state, args...);
}

void checked_copy_blocks(void* state, const CopyBlocksArgs& args) {
  check_args(args);
  cuda::copy_blocks(state, args);
}

constexpr EncoderOps kEncoderOps = {checked<cuda::layer_norm, LayerNormArgs>,
                                    checked<cuda::gelu, GeluArgs>,
                                    checked<cuda::attention_to_all, AttentionArgs>,
                                    checked<cuda::scale_by_position, ScaleByPositionArgs>,
                                    checked<cuda::sigmoid_gate, SigmoidGateArgs>,
                                    checked<cuda::relu_squared, ReluSquaredArgs>,
                                    checked<cuda::rotate_and_store, RopeArgs, KvStoreArgs>};
constexpr EncoderOps kUnconfirmedEncoderOps = [] {
  EncoderOps ops = kEncoderOps;
  ops.multiply_and_gate = checked<cuda::multiply_and_gate, MatmulArgs, GatedActivationArgs>;
  return ops;
}();

constexpr RecurrentOps kRecurrentOps = {
    checked<cuda::short_conv, ShortConvArgs>, checked<cuda::head_scan, HeadScanArgs>,
    checked<cuda::channel_scan, ChannelScanArgs>, checked<cuda::wkv_inputs, WkvInputsArgs>,
    checked<cuda::wkv_output, WkvOutputArgs>};

void feed(void* state, const FeedArgs& args) {
  drop_overwritten(state, args);
  cuda::feed(state, args);
}
constexpr DrawOps kDrawOps = {checked<cuda::draw, DrawArgs>,
                              checked<cuda::best_logits, BestLogitsArgs>, feed};

void set_ops(OpTable& table) {
  table.embed = checked<cuda::embed, EmbedArgs>;
  table.rms_norm = checked<cuda::rms_norm, RmsNormArgs>;
  table.matmul = checked<cuda::matmul, MatmulArgs>;
  table.add_bias = checked<cuda::add_bias, AddBiasArgs>;
  table.add_scaled = checked<cuda::add_scaled, AddScaledArgs>;
  table.soft_cap = checked<cuda::soft_cap, SoftCapArgs>;
  table.rope_table = checked<cuda::rope_table, RopeTableArgs>;
  table.rope = checked<cuda::rope, RopeArgs>;
  table.copy_heads = checked<cuda::copy_heads, CopyHeadsArgs>;
  table.times_rms = checked<cuda::times_rms, TimesRmsArgs>;
  table.keep_peaks = checked<cuda::keep_peaks, KeepPeaksArgs>;
  table.kv_store = checked<cuda::kv_store, KvStoreArgs>;
  table.attention = checked<cuda::attention, AttentionArgs>;
  table.gated_activation = checked<cuda::gated_activation, GatedActivationArgs>;
  table.gather_rows = checked<cuda::gather_rows, GatherRowsArgs>;
  table.copy_blocks = checked_copy_blocks;
  table.moe_route = checked<cuda::moe_route, MoeRouteArgs>;
  table.moe_matmul = checked<cuda::moe_matmul, MoeMatmulArgs>;
  table.encoder = &kEncoderOps;
  table.recurrent = &kRecurrentOps;
  table.moe_combine = checked<cuda::moe_combine, MoeCombineArgs>;
}

/// The device uses no CPU threads that could be given up.
void set_num_threads(void*, int32_t num_threads) {
  HEARTH_CHECK(num_threads == 1, "{}", num_threads);
}

DeviceInfo device_info(const CudaDevice& device) {
  DeviceInfo info;
  info.kind = "cuda";
  info.name = device.name;
  info.variant = fmt::format("sm_{}{}", device.compute_major, device.compute_minor);
  info.memory_bytes = device.memory_bytes;
  info.memory_free_bytes = device.memory_free_bytes;
  return info;
}

Error no_scratch(const CudaDevice& device, int64_t bytes, cudaError_t error) {
  std::string text = fmt::format("{}: {} bytes of scratch, {} are free: {}", device.name, bytes,
                                 device.memory_free_bytes, cuda_reason(error));
  if (error == cudaErrorMemoryAllocation) return Error::out_of_memory(std::move(text));
  return Error::unavailable(std::move(text));
}

Result<void> take(const CudaDevice& device, int64_t bytes, CudaMemory* to) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error != cudaSuccess) return no_scratch(device, bytes, error);
  to->reset(memory);
  return {};
}

Result<std::unique_ptr<LtProducts>> open_products(const CublasLtApi* api) {
  if (api != nullptr) return LtProducts::open(*api);
  HEARTH_ASSIGN_OR_RETURN(const CublasLt library, open_cublaslt());
  return LtProducts::open(library.api);
}

/// Returns why fast mode is unavailable, for the operator; empty if it is available.
Result<std::string> open_fast(const CudaDevice& device, const CublasLtApi* api,
                              FastScratch* scratch) {
  auto products = open_products(api);
  if (!products.ok()) {
    return fmt::format("numerics fast: {}; products are the exact ones", products.error().message);
  }
  HEARTH_TRY(take(device, kFastWeightBytes, &scratch->weights));
  HEARTH_TRY(take(device, kFastRowBytes, &scratch->rows));
  HEARTH_TRY(take(device, kQuantRows * int64_t{sizeof(float)}, &scratch->scales));
  HEARTH_TRY(take(device, kFastWorkspaceBytes, &scratch->workspace));
  scratch->products = std::move(products).value();
  return std::string();
}

#if defined(HEARTH_CUDA_WGMMA)
constexpr bool kWgmmaBuilt = true;
#else
constexpr bool kWgmmaBuilt = false;
#endif

}  // namespace

CudaMemoryUse cuda_memory_use(const OpTable& ops) {
  const CudaState& state = cuda_state(ops.state.get());
  return {free_device_bytes(), state.graph_bytes, state.graphs_refused};
}

Result<OpTable> cuda_ops(const CudaOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const CudaDevice device, cuda_probe(options));
  set_launches_overlap(device.compute_major >= 9);
  const auto state = std::make_shared<ElasticState>();
  state->device = options.device;
  state->wgmma =
      kWgmmaBuilt && options.wgmma && device.compute_major == 9 && device.compute_minor == 0;
  state->unconfirmed = options.unconfirmed;
  cudaError_t error = create_stream(&state->stream);
  if (error == cudaSuccess) error = create_marks(&state->marks);
  if (error == cudaSuccess) error = create_side_stream(&state->side);
  if (error != cudaSuccess) {
    return Error::unavailable(fmt::format("{}: {}", device.name, cuda_reason(error)));
  }

  HEARTH_TRY(take(device, kPartialBytes, &state->partial));
  if (options.unconfirmed) {
    constexpr int64_t kBytes = kArrivals * sizeof(uint32_t);
    HEARTH_TRY(take(device, kBytes, &state->arrival_counters));
    HEARTH_CUDA_CHECK(cudaMemsetAsync(state->arrivals(), 0, kBytes, state->stream.get()));
  }
  std::string notice;
  const bool fast = options.numerics == Numerics::kFast;
  if (fast) {
    HEARTH_ASSIGN_OR_RETURN(notice, open_fast(device, options.cublaslt, &state->fast));
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (error = cudaMemGetInfo(&free_bytes, &total_bytes); error != cudaSuccess) {
    return Error::unavailable(fmt::format("{}: {}", device.name, cuda_reason(error)));
  }

  OpTable table;
  table.device = device_info(device);
  table.device.memory_free_bytes = free_bytes;
  table.device.notice = std::move(notice);
  // Architectures share source but not machine code: expf and division may differ by a bit.
  table.numerics_id = fmt::format("cuda-8-sm{}{}", device.compute_major, device.compute_minor);
  if (state->fast.products != nullptr) {  // the bits depend on the library version
    table.numerics_id += fmt::format("-fast-{}", state->fast.products->version());
  }
  table.any_kv_shape = true;
  table.any_kv_type = true;
  if (options.unconfirmed && open_elastic(state.get())) table.elastic = &state->elastic;
  table.state = std::shared_ptr<CudaState>(state);
  table.allocate = cuda::allocate;
  table.release = cuda::release;
  table.copy_to_device = cuda::copy_to_device;
  table.copy_to_host = cuda::copy_to_host;
  table.synchronize = cuda::synchronize;
  table.mark = cuda::mark;
  table.wait = cuda::wait;
  table.allocate_host = cuda::allocate_host;
  table.release_host = cuda::release_host;
  table.side_copies = &cuda::kSideCopies;
  table.draw = &kDrawOps;
  table.clock = &cuda::kDeviceClock;
  table.begin_capture = cuda::begin_capture;
  table.end_capture = cuda::end_capture;
  table.replay = cuda::replay;
  table.pack_weights = cuda::pack_weights;
  set_ops(table);
  if (options.unconfirmed) table.encoder = &kUnconfirmedEncoderOps;
  table.set_num_threads = set_num_threads;
  return table;
}

}  // namespace hearth::kernels
