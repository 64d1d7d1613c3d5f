#include "daemon/worker/load/measuring_ops.h"

#include <utility>

#include "kernels/base/check.h"

namespace hearth::worker {
namespace {

/// An op that is present, so that a model which needs it opens, but that is never called.
template <typename Args>
void never(void*, const Args&) {
  HEARTH_CHECK(false, "a measuring table computes nothing");
}

}  // namespace

kernels::OpTable measuring_ops(PackedBytes packed_bytes, uint64_t most_packed_bytes) {
  kernels::OpTable table;
  table.device = {.kind = "none",
                  .name = "none",
                  .variant = "none",
                  .num_threads = 1,
                  .memory_bytes = 0,
                  .memory_free_bytes = 0};
  table.numerics_id = "none";
  table.any_kv_shape = true;
  table.any_kv_type = true;
  table.most_packed_bytes = most_packed_bytes;
  // The table's functions are plain pointers, so their data is in the table's state.
  table.state = std::make_shared<PackedBytes>(std::move(packed_bytes));
  table.allocate = [](void*, size_t) -> void* { return nullptr; };
  table.release = [](void*, void*, size_t) {};
  table.pack_weights = [](void* state, std::span<const kernels::HostTensor> tensors,
                          kernels::WeightRole role) -> Result<std::unique_ptr<kernels::Weight>> {
    if (role == kernels::WeightRole::kVector) {
      return kernels::reference_ops().pack_weights(nullptr, tensors, role);
    }
    auto weight = std::make_unique<kernels::Weight>();
    weight->cols = tensors.front().cols;
    for (const kernels::HostTensor& tensor : tensors) weight->rows += tensor.rows;
    const bool stays = tensors.front().owner != nullptr;
    weight->bytes = stays ? 0 : (*static_cast<PackedBytes*>(state))(tensors, role);
    return weight;
  };
  // Ops that only some families need and that a loader checks for. Without `embed`, an encoder
  // recognizes the table as a measuring one and requires no ops of its own.
  table.add_scaled = never<kernels::AddScaledArgs>;
  table.soft_cap = never<kernels::SoftCapArgs>;
  table.copy_heads = never<kernels::CopyHeadsArgs>;
  table.times_rms = never<kernels::TimesRmsArgs>;
  table.keep_peaks = never<kernels::KeepPeaksArgs>;
  table.moe_route = never<kernels::MoeRouteArgs>;
  table.moe_matmul = never<kernels::MoeMatmulArgs>;
  table.moe_combine = never<kernels::MoeCombineArgs>;
  return table;
}

}  // namespace hearth::worker
