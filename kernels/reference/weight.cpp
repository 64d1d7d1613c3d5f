#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

const StoredWeight::Tensor& StoredWeight::tensor_of(int64_t row) const {
  for (const Tensor& tensor : tensors) {
    if (row >= tensor.first_row && row < tensor.first_row + tensor.rows) return tensor;
  }
  HEARTH_CHECK(false, "row {} of {}", row, rows);
  return tensors.front();
}

std::span<const std::byte> StoredWeight::row_bytes(int64_t row, int32_t expert) const {
  const Tensor& tensor = tensor_of(row);
  const size_t row_size = bytes_of(tensor.dtype, cols);
  const size_t index = expert * tensor.rows + row - tensor.first_row;
  return std::span(tensor.bytes).subspan(index * row_size, row_size);
}

float StoredWeight::outliers_from() const {
  float from = 0;
  for (const Tensor& tensor : tensors) from = std::max(from, tensor.outliers_from);
  return from;
}

Result<std::unique_ptr<Weight>> pack_weights(void*, std::span<const HostTensor> tensors,
                                             WeightRole role) {
  HEARTH_TRY(check_tensors(tensors, role));
  auto weight = std::make_unique<StoredWeight>();
  if (role == WeightRole::kVector) {
    weight->values = vector_values(tensors);
    weight->rows = 1;
    weight->cols = weight->values.size();
    weight->bytes = weight->values.size() * sizeof(float);
    weight->vector = weight->values.data();
    return std::unique_ptr<Weight>(std::move(weight));
  }
  weight->cols = tensors[0].cols;
  weight->num_experts = tensors[0].num_experts;
  for (const HostTensor& tensor : tensors) {
    const int64_t rows = tensor.rows / tensor.num_experts;
    weight->tensors.push_back({tensor.dtype,
                               weight->rows,
                               rows,
                               {tensor.bytes.begin(), tensor.bytes.end()},
                               tensor.scales,
                               tensor.outliers_from});
    weight->rows += rows;
    weight->bytes += tensor.bytes.size();
  }
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace hearth::kernels::reference
