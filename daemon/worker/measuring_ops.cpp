#include "daemon/worker/measuring_ops.h"

#include <utility>

namespace hearth::worker {

kernels::OpTable measuring_ops(PackedBytes packed_bytes) {
  kernels::OpTable table;
  table.device = {.kind = "none",
                  .name = "none",
                  .variant = "none",
                  .num_threads = 1,
                  .memory_bytes = 0,
                  .memory_free_bytes = 0};
  table.numerics_id = "none";
  // The table's functions are plain pointers: what they need is the state behind it.
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
    weight->bytes = (*static_cast<PackedBytes*>(state))(tensors, role);
    return weight;
  };
  return table;
}

}  // namespace hearth::worker
