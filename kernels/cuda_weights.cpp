// Takes tensors of a file into panels on the device, a bounded number of host bytes at a time.

#include "kernels/cuda_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda_check.h"
#include "kernels/cuda_layout.cuh"
#include "kernels/cuda_ops_internal.h"
#include "kernels/op_checks.h"

namespace hearth::kernels {
namespace {

/// Host bytes that are re-laid out before each copy to the device.
constexpr size_t kStagingBytes = size_t{16} << 20;

size_t panel_bytes(DType dtype, int64_t cols) {
  if (dtype == DType::kQ8_0) return static_cast<size_t>(cols / kQuantBlock) * kQuantPanelBytes;
  const auto element = static_cast<int>(bytes_of(dtype, 1));
  return static_cast<size_t>(num_shares(cols, kShareBytes / element)) * kPanelOutputs * kShareBytes;
}

/// One output's row of the file into its lane of `panel`.
void place_row(DType dtype, int64_t cols, const std::byte* row, int lane, std::byte* panel) {
  if (dtype == DType::kQ8_0) {
    for (int64_t b = 0; b < cols / kQuantBlock; ++b) {
      const std::byte* block = row + b * 34;  // the file's block: scale f16, then 32 int8
      std::byte* to = panel + b * kQuantPanelBytes;
      std::memcpy(to + quant_scale_offset(lane), block, 2);
      std::memcpy(to + quant_value_offset(lane, 0), block + 2, kShareBytes);
      std::memcpy(to + quant_value_offset(lane, kShareBytes), block + 2 + kShareBytes, kShareBytes);
    }
    return;
  }
  const auto element = static_cast<int>(bytes_of(dtype, 1));
  const int share = kShareBytes / element;
  for (int64_t k = 0; k < cols; k += share) {
    const int64_t count = std::min<int64_t>(share, cols - k);
    std::memcpy(panel + panel_element(lane, k, cols, share) * element, row + k * element,
                static_cast<size_t>(count * element));
  }
}

/// The rows of several tensors of one type, as one sequence.
class Rows {
 public:
  explicit Rows(std::span<const HostTensor> tensors) : tensors_(tensors) {}
  const std::byte* next() {
    if (row_ == tensors_.front().rows) {
      tensors_ = tensors_.subspan(1);
      row_ = 0;
    }
    const HostTensor& tensor = tensors_.front();
    const auto bytes = bytes_of(tensor.dtype, static_cast<uint64_t>(tensor.cols));
    return tensor.bytes.data() + static_cast<uint64_t>(row_++) * bytes;
  }

 private:
  std::span<const HostTensor> tensors_;
  int64_t row_ = 0;
};

Error no_memory(const HostTensor& tensor, size_t bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  HEARTH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  return Error{ErrorCode::kOutOfMemory,
               fmt::format("{}: {} bytes on a device with {} of {} free", tensor.name, bytes,
                           free_bytes, total_bytes),
               ""};
}

Result<WeightSegment> pack_segment(CudaState& state, std::span<const HostTensor> tensors) {
  WeightSegment segment;
  segment.dtype = tensors[0].dtype;
  const int64_t cols = tensors[0].cols;
  for (const HostTensor& tensor : tensors) segment.rows += tensor.rows;
  const int64_t num_panels = ceil_div(segment.rows, kPanelOutputs);
  const size_t panel = panel_bytes(segment.dtype, cols);
  segment.bytes = static_cast<size_t>(num_panels) * panel;
  segment.data = cuda_malloc(segment.bytes);
  if (segment.data == nullptr) return no_memory(tensors[0], segment.bytes);

  const auto at_once = static_cast<int64_t>(std::max<size_t>(kStagingBytes / panel, 1));
  std::vector<std::byte> staging(static_cast<size_t>(std::min(at_once, num_panels)) * panel);
  Rows rows(tensors);
  for (int64_t first = 0; first < num_panels; first += at_once) {
    const int64_t end = std::min(first + at_once, num_panels);
    for (int64_t row = first * kPanelOutputs; row < std::min(end * kPanelOutputs, segment.rows);
         ++row) {
      place_row(segment.dtype, cols, rows.next(), static_cast<int>(row % kPanelOutputs),
                staging.data() + static_cast<size_t>(row / kPanelOutputs - first) * panel);
    }
    cuda::copy_to_device(
        &state, static_cast<std::byte*>(segment.data.get()) + static_cast<size_t>(first) * panel,
        staging.data(), static_cast<size_t>(end - first) * panel);
  }
  return segment;
}

/// Makes room for the quantized activations of a weight with `cols` inputs.
Result<void> grow_scratch(CudaState& state, const HostTensor& tensor) {
  QuantScratch& quant = state.quant;
  if (tensor.dtype != DType::kQ8_0 || tensor.cols <= quant.max_cols) return {};
  const auto bytes = static_cast<size_t>(kQuantRows * tensor.cols);
  CudaMemory values = cuda_malloc(bytes);
  CudaMemory scales = cuda_malloc(bytes / kQuantBlock * sizeof(float));
  if (values == nullptr || scales == nullptr) return no_memory(tensor, bytes);
  quant.values = std::move(values);
  quant.scales = std::move(scales);
  quant.max_cols = tensor.cols;
  return {};
}

Result<std::unique_ptr<Weight>> pack_vector(CudaState& state, std::span<const HostTensor> tensors) {
  const std::vector<float> values = vector_values(tensors);
  auto weight = std::make_unique<CudaWeight>();
  weight->rows = 1;
  weight->cols = static_cast<int64_t>(values.size());
  weight->bytes = values.size() * sizeof(float);
  weight->vector_data = cuda_malloc(weight->bytes);
  if (weight->vector_data == nullptr) return no_memory(tensors[0], weight->bytes);
  cuda::copy_to_device(&state, weight->vector_data.get(), values.data(), weight->bytes);
  weight->vector = static_cast<const float*>(weight->vector_data.get());
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace

Result<std::unique_ptr<Weight>> cuda::pack_weights(void* opaque,
                                                   std::span<const HostTensor> tensors,
                                                   WeightRole role) {
  HEARTH_TRY(check_tensors(tensors, role));
  for (const HostTensor& tensor : tensors) {
    if (role == WeightRole::kExperts) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: no mixture of experts on this device yet", tensor.name), ""};
    }
    if (info(tensor.dtype).block_elements > 1 && tensor.dtype != DType::kQ8_0) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: type {} is not yet computed with on this device", tensor.name,
                               info(tensor.dtype).name),
                   ""};
    }
  }
  CudaState& state = cuda_state(opaque);
  if (role == WeightRole::kVector) return pack_vector(state, tensors);

  auto weight = std::make_unique<CudaWeight>();
  weight->cols = tensors[0].cols;
  while (!tensors.empty()) {
    size_t count = 1;
    while (count < tensors.size() && tensors[count].dtype == tensors[0].dtype) ++count;
    HEARTH_TRY(grow_scratch(state, tensors[0]));
    HEARTH_ASSIGN_OR_RETURN(WeightSegment segment, pack_segment(state, tensors.first(count)));
    segment.first_row = weight->rows;
    weight->rows += segment.rows;
    weight->bytes += segment.bytes;
    weight->segments.push_back(std::move(segment));
    tensors = tensors.subspan(count);
  }
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace hearth::kernels
