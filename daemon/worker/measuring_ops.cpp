#include "daemon/worker/measuring_ops.h"

#include <utility>

#include "kernels/packed_bytes.h"

namespace hearth::worker {

kernels::OpTable measuring_ops() {
  kernels::OpTable table;
  table.device = {.kind = "none",
                  .name = "none",
                  .variant = "none",
                  .num_threads = 1,
                  .memory_bytes = 0,
                  .memory_free_bytes = 0};
  table.numerics_id = "none";
  table.allocate = [](void*, size_t) -> void* { return nullptr; };
  table.release = [](void*, void*, size_t) {};
  table.pack_weights = [](void*, std::span<const kernels::HostTensor> tensors,
                          kernels::WeightRole role) -> Result<std::unique_ptr<kernels::Weight>> {
    if (role == kernels::WeightRole::kVector) {
      return kernels::reference_ops().pack_weights(nullptr, tensors, role);
    }
    auto weight = std::make_unique<kernels::Weight>();
    weight->cols = tensors.front().cols;
    for (const kernels::HostTensor& tensor : tensors) weight->rows += tensor.rows;
    weight->bytes = kernels::cpu_packed_bytes(tensors, role);
    return weight;
  };
  return table;
}

}  // namespace hearth::worker
