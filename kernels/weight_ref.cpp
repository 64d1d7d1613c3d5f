#include <cstring>

#include "kernels/base/check.h"
#include "kernels/half.h"
#include "kernels/op_checks.h"
#include "kernels/ops_ref.h"

namespace hearth::kernels::reference {

const StoredWeight::Tensor& StoredWeight::tensor_of(int64_t row) const {
  for (const Tensor& tensor : tensors) {
    if (row >= tensor.first_row && row < tensor.first_row + tensor.rows) return tensor;
  }
  HEARTH_CHECK(false, "row {} of {}", row, rows);
  return tensors.front();
}

float StoredWeight::at(int64_t row, int64_t col) const {
  const Tensor& tensor = tensor_of(row);
  const int64_t index = (row - tensor.first_row) * cols + col;
  const std::byte* data = tensor.bytes.data();
  uint16_t half;
  switch (tensor.dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, data + 4 * index, 4);
      return value;
    }
    case DType::kF16: std::memcpy(&half, data + 2 * index, 2); return f32_from_f16(half);
    case DType::kBF16: std::memcpy(&half, data + 2 * index, 2); return f32_from_bf16(half);
    case DType::kQ8_0: {  // a block: scale f16, then 32 signed bytes
      const std::byte* block = data + index / 32 * 34;
      std::memcpy(&half, block, 2);
      return f32_from_f16(half) * static_cast<float>(static_cast<int8_t>(block[2 + index % 32]));
    }
    default: HEARTH_CHECK(false, "weight type {}", info(tensor.dtype).name);
  }
  return 0;
}

Result<std::unique_ptr<Weight>> pack_weights(void*, std::span<const HostTensor> tensors,
                                             WeightRole role) {
  HEARTH_TRY(check_tensors(tensors, role));
  auto weight = std::make_unique<StoredWeight>();
  if (role == WeightRole::kVector) {
    weight->values = vector_values(tensors);
    weight->rows = 1;
    weight->cols = static_cast<int64_t>(weight->values.size());
    weight->bytes = weight->values.size() * sizeof(float);
    weight->vector = weight->values.data();
    return std::unique_ptr<Weight>(std::move(weight));
  }
  weight->cols = tensors[0].cols;
  for (const HostTensor& tensor : tensors) {
    weight->tensors.push_back(
        {tensor.dtype, weight->rows, tensor.rows, {tensor.bytes.begin(), tensor.bytes.end()}});
    weight->rows += tensor.rows;
    weight->bytes += tensor.bytes.size();
  }
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace hearth::kernels::reference
