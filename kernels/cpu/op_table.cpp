#include "kernels/cpu/op_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/cpu/matmul/file_weights.h"
#include "kernels/host/cpu_features.h"
#include "kernels/host/cpu_topology.h"
#include "kernels/ops/encoder_kernels.h"
#include "kernels/ops/recurrent_kernels.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels {
namespace {

struct Variant {
  std::string_view name;
  /// Variants with the same id compute the same bits.
  std::string_view numerics_id;
  bool (*supported)(const CpuFeatures&);
  const MatmulKernels* matmul;
  const AttentionKernels* attention;
  const RowKernels* rows;
  const StateKernels* states;
};

constexpr Variant kVariants[] = {
    // slowest first
    {"plain", "cpu-plain/5", [](const CpuFeatures&) { return true; }, &kMatmulPlain,
     &kAttentionPlain, &kRowPlain, &kStatePlain},
#if defined(__x86_64__)
    {"avx2", "cpu-fma/5", [](const CpuFeatures& f) { return f.avx2; }, &kMatmulAvx2,
     &kAttentionAvx2, &kRowAvx2, &kStateAvx2},
    {"avx2vnni", "cpu-fma/5", [](const CpuFeatures& f) { return f.avx2vnni; }, &kMatmulAvx2Vnni,
     &kAttentionAvx2Vnni, &kRowAvx2, &kStateAvx2},
    {"avx512", "cpu-fma/5", [](const CpuFeatures& f) { return f.avx512; }, &kMatmulAvx512,
     &kAttentionAvx512, &kRowAvx512, &kStateAvx512},
    {"avx512vnni", "cpu-fma/5", [](const CpuFeatures& f) { return f.avx512vnni; },
     &kMatmulAvx512Vnni, &kAttentionAvx512Vnni, &kRowAvx512, &kStateAvx512},
#elif defined(__aarch64__)
    {"neon", "cpu-fma/5", [](const CpuFeatures& f) { return f.neon; }, &kMatmulNeon,
     &kAttentionNeon, &kRowNeon, &kStateNeon},
    {"neondot", "cpu-fma/5", [](const CpuFeatures& f) { return f.neondot; }, &kMatmulNeonDot,
     &kAttentionNeon, &kRowNeon, &kStateNeon},
#endif
};

Result<const Variant*> choose(const std::string& name) {
  const CpuFeatures features = cpu_features();
  const Variant* chosen = nullptr;
  for (const Variant& variant : kVariants) {
    const bool wanted = name.empty() || variant.name == name;
    if (wanted && variant.supported(features)) chosen = &variant;
  }
  if (chosen != nullptr) return chosen;
  return Error::unsupported(fmt::format("CPU variant '{}' cannot run here, want one of: {}", name,
                                        fmt::join(cpu_variants(), ", ")));
}

}  // namespace

std::vector<std::string> cpu_variants() {
  const CpuFeatures features = cpu_features();
  std::vector<std::string> names;
  for (const Variant& variant : kVariants) {
    if (variant.supported(features)) names.emplace_back(variant.name);
  }
  return names;
}

Result<OpTable> cpu_ops(const CpuOptions& options, Packing packing) {
  constexpr int32_t kMostThreads = 1024;
  if (options.num_threads < 0 || options.num_threads > kMostThreads) {
    return Error::invalid(
        fmt::format("{} threads, want 0 .. {}", options.num_threads, kMostThreads), "threads");
  }
  HEARTH_ASSIGN_OR_RETURN(const Variant* variant, choose(options.variant));
  const int32_t threads =
      options.num_threads > 0 ? options.num_threads : std::min(usable_cores(), kMostThreads);

  OpTable table;
  const HostMemoryInfo memory = host_memory_info();
  table.device = {.kind = "cpu",
                  .name = cpu_name(""),
                  .variant = std::string(variant->name),
                  .num_threads = threads,
                  .memory_bytes = memory.total_bytes,
                  .memory_free_bytes = memory.available_bytes};
  table.numerics_id = variant->numerics_id;
  table.any_kv_shape = true;
  table.any_kv_type = true;
  std::shared_ptr<cpu::FileWeights> in_file;
  if (options.most_packed_bytes < UINT64_MAX) {
    table.most_packed_bytes = options.most_packed_bytes;
    in_file = std::make_shared<cpu::FileWeights>();
  }
  table.state = std::make_shared<cpu::CpuState>(threads, *variant->matmul, *variant->attention,
                                                *variant->rows, *variant->states, packing,
                                                std::move(in_file));
  table.allocate = [](void*, size_t bytes) { return allocate_host(bytes); };
  table.release = [](void*, void* p, size_t bytes) { release_host(p, bytes); };
  table.elastic = &reference::kElasticMemory;
  table.copy_to_device = [](void*, void* dst, const void* src, size_t bytes) {
    std::memcpy(dst, src, bytes);
  };
  table.copy_to_host = table.copy_to_device;
  table.synchronize = [](void*) {};
  table.set_num_threads = [](void* state, int32_t num_threads) {
    static_cast<cpu::CpuState*>(state)->pool.set_active(num_threads);
  };
  table.pack_weights = cpu::pack_weights;
  if (packing == Packing::kLate) {
    table.pack_more = cpu::pack_more;
    table.put_off = cpu::put_off;
  }
  table.embed = cpu::embed;
  table.rms_norm = cpu::rms_norm;
  table.matmul = cpu::matmul;
  table.matmuls = cpu::matmuls;
  table.add_bias = cpu::add_bias;
  table.add_scaled = cpu::add_scaled;
  table.soft_cap = cpu::soft_cap;
  table.rope_table = cpu::rope_table;
  table.rope = cpu::rope;
  table.times_rms = cpu::times_rms;
  table.keep_peaks = cpu::keep_peaks;
  table.kv_store = cpu::kv_store;
  table.attention = cpu::attention;
  table.encoder = &cpu::kEncoderOps;
  table.recurrent = &cpu::kRecurrentOps;
  table.gated_activation = cpu::gated_activation;
  table.moe_route = cpu::moe_route;
  table.moe_matmul = cpu::moe_matmul;
  table.moe_combine = cpu::moe_combine;
  // These only copy memory: the reference is as fast as any other way.
  table.gather_rows = reference::gather_rows;
  table.copy_heads = reference::copy_heads;
  table.copy_blocks = reference::copy_blocks;
  return table;
}

}  // namespace hearth::kernels
