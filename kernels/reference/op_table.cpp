#include "kernels/reference/op_table.h"

#include <cstring>

#include "kernels/host/host_memory.h"
#include "kernels/ops/encoder_kernels.h"
#include "kernels/ops/recurrent_kernels.h"

namespace hearth::kernels {

OpTable reference_ops(bool super_inputs) {
  OpTable table;
  const HostMemoryInfo memory = host_memory_info();
  table.device = {.kind = "reference",
                  .name = "reference",
                  .variant = "reference",
                  .num_threads = 1,
                  .memory_bytes = memory.total_bytes,
                  .memory_free_bytes = memory.available_bytes};
  table.numerics_id = "reference/3";
  table.any_kv_shape = true;
  table.any_kv_type = true;
  table.allocate = [](void*, size_t bytes) { return allocate_host(bytes); };
  table.release = [](void*, void* p, size_t bytes) { release_host(p, bytes); };
  table.elastic = &reference::kElasticMemory;
  table.copy_to_device = [](void*, void* dst, const void* src, size_t bytes) {
    std::memcpy(dst, src, bytes);
  };
  table.copy_to_host = table.copy_to_device;
  table.synchronize = [](void*) {};
  table.set_num_threads = [](void*, int32_t) {};
  table.pack_weights = reference::pack_weights;
  table.embed = reference::embed;
  table.rms_norm = reference::rms_norm;
  table.matmul = super_inputs ? reference::matmul_super : reference::matmul;
  table.add_bias = reference::add_bias;
  table.add_scaled = reference::add_scaled;
  table.soft_cap = reference::soft_cap;
  table.rope_table = reference::rope_table;
  table.rope = reference::rope;
  table.kv_store = reference::kv_store;
  table.attention = super_inputs ? reference::attention_exact : reference::attention;
  table.encoder = super_inputs ? &reference::kExactEncoderOps : &reference::kEncoderOps;
  table.recurrent = &reference::kRecurrentOps;
  table.gated_activation = reference::gated_activation;
  table.gather_rows = reference::gather_rows;
  table.copy_heads = reference::copy_heads;
  table.times_rms = reference::times_rms;
  table.keep_peaks = reference::keep_peaks;
  table.copy_blocks = reference::copy_blocks;
  table.draw = &reference::kDrawOps;
  table.moe_route = reference::moe_route;
  table.moe_matmul = super_inputs ? reference::moe_matmul_super : reference::moe_matmul;
  table.moe_combine = reference::moe_combine;
  return table;
}

}  // namespace hearth::kernels
