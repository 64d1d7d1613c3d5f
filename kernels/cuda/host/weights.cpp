// Packs a file's tensors into panels on the device, with a bounded amount of host memory.

#include "kernels/cuda/host/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/fast_shapes.h"
#include "kernels/cuda/matmul/quant_layout.cuh"
#include "kernels/cuda/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/quant/quant_types.h"

namespace hearth::kernels {
namespace {

/// Host bytes that are packed before each copy to the device.
constexpr size_t kStagingBytes = size_t{64} << 20;
/// With fewer bytes per thread, starting another thread is not worth it.
constexpr size_t kThreadBytes = size_t{1} << 20;
/// Limit for a mixture: per-expert lists are kept in a block's shared memory.
constexpr int32_t kMaxExperts = 4096;
/// Limit for joined tensors of one type: kernels count their 16 bytes with 31 bits (WarpShare).
constexpr size_t kMaxSegmentBytes = size_t{1} << 35;

/// How outputs of a type are grouped: `outputs` of them in `bytes`.
struct Unit {
  DType dtype;
  int64_t cols;
  int outputs;
  size_t bytes;
};

Unit unit_of(DType dtype, int64_t cols) {
  if (info(dtype).block_elements > 1) {
    const size_t chunk = quant_form(dtype).chunk_bytes();
    return {dtype, cols, kGroupOutputs, static_cast<size_t>(num_chunks(cols)) * chunk};
  }
  const auto element = static_cast<int>(bytes_of(dtype, 1));
  if (element == 2) {
    return {dtype, cols, kHalfOutputs, static_cast<size_t>(half_chunks(cols)) * kHalfChunkBytes};
  }
  const auto shares = static_cast<size_t>(num_shares(cols, kShareBytes / element));
  return {dtype, cols, kPanelOutputs, shares * kPanelOutputs * kShareBytes};
}

void put_half(uint16_t bits, std::byte* to) { std::memcpy(to, &bits, sizeof bits); }

/// Stores the codes of 32 inputs in the planes of their chunk, which must be zero there.
void put_codes(const QuantForm& form, const uint8_t* q, int b, int output, std::byte* planes) {
  const auto put = [planes](int plane, int at, int bits) {
    std::byte& byte = planes[plane * kPlaneBytes + at];
    byte |= static_cast<std::byte>(bits);
  };
  for (int i = 0; i < 32; ++i) {
    const int at = share_byte(output, i);
    int code = q[i];
    if (form.bytes) put(b, at, code);
    if (form.nibbles) {
      put(b / 2, at, (code & 15) << 4 * (b % 2));
      code >>= 4;
    }
    if (form.twos) {
      put(form.first_two() + b / 4, at, (code & 3) << 2 * (b % 4));
      code >>= 2;
    }
    if (form.ones) put(form.first_one(), at, (code & 1) << b);
  }
}

/// Stores a block's scales and mins in their chunk; `b` counts blocks of 32 in the chunk.
void put_scales(DType dtype, const QuantForm& form, const QuantCodes& codes, int b, int output,
                std::byte* chunk) {
  std::byte* scales = chunk + form.scales_at() + std::min(form.scale_bytes, 16) * output;
  if (dtype == DType::kMXFP4) {
    scales[b] = static_cast<std::byte>(codes.d);
    return;
  }
  if (dtype == DType::kNVFP4) {  // 64 inputs
    std::memcpy(scales + 2 * b, codes.scale, 4);
    return;
  }
  if (form.of_32) {
    put_half(codes.d, scales + 2 * b);
    if (form.has_min) put_half(codes.dmin, scales + 16 * kGroupOutputs + 2 * b);
    return;
  }
  std::byte* head = chunk + form.head_bytes * output;
  put_half(codes.d, head);
  if (form.has_min) put_half(codes.dmin, head + 2);
  for (int s = 0; s < 8 * form.subs; ++s) {
    int scale = codes.scale[s];
    if (dtype == DType::kQ2_K) scale |= codes.min[s] << 4;
    if (dtype == DType::kQ3_K || dtype == DType::kIQ4_XS) scale -= 32;
    if (has_odd_scales(dtype)) scale = 2 * scale + 1;
    if (packed_as(dtype) == DType::kTQ2_0) scale = 1;
    scales[s] = static_cast<std::byte>(scale);
    if (form.has_min && form.subs == 1) scales[8 + s] = static_cast<std::byte>(codes.min[s]);
  }
}

void place_quantized(const Unit& unit, const std::byte* row, int output, std::byte* group) {
  const QuantForm form = quant_form(unit.dtype);
  const DTypeInfo& type = info(unit.dtype);
  for (int64_t first = 0; first < unit.cols; first += type.block_elements) {
    std::byte* chunk = group + first / kChunkInputs * form.chunk_bytes();
    const auto b = static_cast<int>(first % kChunkInputs / 32);
    QuantCodes codes{};
    if (unit.dtype == DType::kQ8_0) {
      std::memcpy(&codes.d, row, 2);
      std::memcpy(codes.q, row + 2, 32);
    } else {
      codes = take_apart(unit.dtype, row);
    }
    put_scales(unit.dtype, form, codes, b, output, chunk);
    for (int i = 0; i < type.block_elements / 32; ++i) {
      put_codes(form, codes.q + 32 * i, b + i, output, chunk + form.planes_at());
    }
    row += type.block_bytes;
  }
}

/// Places one output's row from the file in its unit.
void place_row(const Unit& unit, const std::byte* row, int output, std::byte* to) {
  if (info(unit.dtype).block_elements > 1) return place_quantized(unit, row, output, to);
  const auto element = static_cast<int>(bytes_of(unit.dtype, 1));
  if (element == 2) {
    for (int64_t k = 0; k < unit.cols; ++k) {
      std::memcpy(to + half_element(output, k, unit.cols) * 2, row + k * 2, 2);
    }
    return;
  }
  const int share = kShareBytes / element;
  for (int64_t k = 0; k < unit.cols; k += share) {
    const int64_t count = std::min<int64_t>(share, unit.cols - k);
    std::memcpy(to + panel_element(output, k, unit.cols, share) * element, row + k * element,
                count * element);
  }
}

/// The rows of one expert over several tensors of one type, as one sequence.
class ExpertRows {
 public:
  ExpertRows(std::span<const HostTensor> tensors, int32_t expert)
      : tensors_(tensors), expert_(expert) {}
  const std::byte* at(int64_t row) const {
    for (const HostTensor& tensor : tensors_) {
      const int64_t own = tensor.rows / tensor.num_experts;
      if (row < own) {
        const auto bytes = bytes_of(tensor.dtype, tensor.cols);
        return tensor.bytes.data() + (expert_ * own + row) * bytes;
      }
      row -= own;
    }
    return nullptr;
  }

 private:
  std::span<const HostTensor> tensors_;
  int32_t expert_;
};

/// Packs units [first, end) of an expert into `staging`, on as many threads as pay off.
void place_units(const Unit& unit, const ExpertRows& rows, int64_t num_rows, int64_t first,
                 int64_t end, std::span<std::byte> staging) {
  std::ranges::fill(staging, std::byte{0});
  const auto place = [&](int64_t from, int64_t to) {
    for (int64_t row = from * unit.outputs; row < std::min(to * unit.outputs, num_rows); ++row) {
      place_row(unit, rows.at(row), static_cast<int>(row % unit.outputs),
                staging.data() + (row / unit.outputs - first) * unit.bytes);
    }
  };
  const int64_t most =
      std::min<size_t>(std::thread::hardware_concurrency(), staging.size() / kThreadBytes);
  const int64_t count = std::clamp<int64_t>(most, 1, end - first);
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < count; ++i) {
    others.emplace_back(place, first + (end - first) * i / count,
                        first + (end - first) * (i + 1) / count);
  }
  place(first, first + (end - first) / count);
}

Error no_memory(const HostTensor& tensor, size_t bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  HEARTH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  return Error::out_of_memory(fmt::format("{}: {} bytes on a device with {} of {} free",
                                          tensor.name, bytes, free_bytes, total_bytes));
}

/// The leading tensors that share the first one's type.
std::span<const HostTensor> same_type(std::span<const HostTensor> tensors) {
  size_t count = 1;
  while (count < tensors.size() && tensors[count].dtype == tensors[0].dtype) ++count;
  return tensors.first(count);
}

/// The segment that these tensors, all of one type, will form.
WeightSegment measure_segment(std::span<const HostTensor> tensors) {
  WeightSegment segment;
  segment.dtype = tensors[0].dtype;
  for (const HostTensor& tensor : tensors) segment.rows += tensor.rows / tensor.num_experts;
  const Unit unit = unit_of(segment.dtype, tensors[0].cols);
  segment.expert_bytes = ceil_div(segment.rows, unit.outputs) * unit.bytes;
  segment.bytes = segment.expert_bytes * tensors[0].num_experts;
  return segment;
}

Result<WeightSegment> pack_segment(CudaState& state, std::span<const HostTensor> tensors) {
  WeightSegment segment = measure_segment(tensors);
  const Unit unit = unit_of(segment.dtype, tensors[0].cols);
  segment.data = cuda_malloc(segment.bytes);
  if (segment.data == nullptr) return no_memory(tensors[0], segment.bytes);

  const int64_t units = ceil_div(segment.rows, unit.outputs);
  const auto at_once = static_cast<int64_t>(std::max<size_t>(kStagingBytes / unit.bytes, 1));
  std::vector<std::byte> staging(std::min(at_once, units) * unit.bytes);
  for (int32_t expert = 0; expert < tensors[0].num_experts; ++expert) {
    const ExpertRows rows(tensors, expert);
    std::byte* to = static_cast<std::byte*>(segment.data.get()) + expert * segment.expert_bytes;
    for (int64_t first = 0; first < units; first += at_once) {
      const int64_t end = std::min(first + at_once, units);
      const auto bytes = (end - first) * unit.bytes;
      place_units(unit, rows, segment.rows, first, end, std::span(staging).first(bytes));
      cuda::copy_to_device(&state, to + first * unit.bytes, staging.data(), bytes);
    }
  }
  return segment;
}

size_t quant_value_bytes(int64_t chunks) { return kQuantRows * chunks * kChunkInputs; }
size_t quant_block_bytes(int64_t chunks) {
  return quant_value_bytes(chunks) / 32 * sizeof(ActivationBlock);
}
constexpr size_t kChoiceBytes = kQuantRows * sizeof(int32_t);
size_t slice_list_bytes(int32_t experts) {
  return (kQuantRows / 8 + experts) * sizeof(ExpertSlice);
}

/// The most that an allocation takes beyond its size: large ones occupy whole pages, small ones
/// share pages.
size_t rounding(size_t bytes) {
  constexpr size_t kPage = size_t{2} << 20;
  return bytes < kPage / 2 ? 0 : (kPage - bytes % kPage) % kPage;
}

/// Makes room for the quantized activations of a weight with `cols` inputs, and for the lists of
/// its experts.
Result<void> grow_scratch(CudaState& state, const HostTensor& tensor) {
  QuantScratch& quant = state.quant;
  const int64_t chunks = num_chunks(tensor.cols);
  if (info(tensor.dtype).block_elements > 1 && chunks > quant.max_chunks) {
    const size_t bytes = quant_value_bytes(chunks);
    const size_t block_bytes = quant_block_bytes(chunks);
    CudaMemory values = cuda_malloc(bytes);
    CudaMemory blocks = cuda_malloc(block_bytes);
    if (values == nullptr || blocks == nullptr) return no_memory(tensor, bytes + block_bytes);
    CudaMemory few;
    if (state.unconfirmed) {
      const size_t few_bytes = (bytes + block_bytes) / kQuantRows * kFewQuantRows;
      few = cuda_malloc(few_bytes);
      if (few == nullptr) return no_memory(tensor, few_bytes);
      HEARTH_CUDA_CHECK(cudaMemsetAsync(few.get(), 0, few_bytes, state.stream.get()));
    }
    // The padding of a last chunk is loaded but does not affect results.
    HEARTH_CUDA_CHECK(cudaMemsetAsync(values.get(), 0, bytes, state.stream.get()));
    HEARTH_CUDA_CHECK(cudaMemsetAsync(blocks.get(), 0, block_bytes, state.stream.get()));
    quant = {std::move(values), std::move(blocks), std::move(few), chunks};
    state.held.drop();
    ++state.scratch_moves;
  }
  MoeScratch& moe = state.moe;
  if (tensor.num_experts > std::max(moe.max_experts, 1)) {
    const size_t slice_bytes = slice_list_bytes(tensor.num_experts);
    CudaMemory choices = cuda_malloc(kChoiceBytes);
    CudaMemory slices = cuda_malloc(slice_bytes);
    if (choices == nullptr || slices == nullptr) {
      return no_memory(tensor, kChoiceBytes + slice_bytes);
    }
    moe = {std::move(choices), std::move(slices), tensor.num_experts};
    ++state.scratch_moves;
  }
  return {};
}

/// Done now, not within a step: the library may load kernels.
void pin_algorithms(CudaState& state, const WeightSegment& segment, int64_t cols) {
  if (state.fast.products == nullptr) return;
  const FastPieces pieces(segment.dtype, segment.rows, cols, state.fast.weight_bytes);
  for (int64_t i = 0; i < pieces.count; ++i) {
    for (const int64_t rows : kFastBuckets) {
      state.fast.products->pin(pieces.shape(i, rows), kFastWorkspaceBytes);
    }
  }
}

Result<std::unique_ptr<Weight>> pack_vector(CudaState& state, std::span<const HostTensor> tensors) {
  const std::vector<float> values = vector_values(tensors);
  auto weight = std::make_unique<CudaWeight>();
  weight->rows = 1;
  weight->cols = values.size();
  weight->bytes = values.size() * sizeof(float);
  weight->vector_data = cuda_malloc(weight->bytes);
  if (weight->vector_data == nullptr) return no_memory(tensors[0], weight->bytes);
  cuda::copy_to_device(&state, weight->vector_data.get(), values.data(), weight->bytes);
  weight->vector = static_cast<const float*>(weight->vector_data.get());
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace

uint64_t cuda_packed_bytes(std::span<const HostTensor> tensors, WeightRole role) {
  uint64_t bytes = 0;
  while (!tensors.empty()) {
    if (role == WeightRole::kVector) {
      bytes += (tensors[0].rows * tensors[0].cols) * sizeof(float);
      tensors = tensors.subspan(1);
    } else {
      const auto segment = same_type(tensors);
      bytes += measure_segment(segment).bytes;
      tensors = tensors.subspan(segment.size());
    }
  }
  return bytes;
}

CudaPacking cuda_packing(std::span<const HostTensor> tensors, WeightRole role) {
  CudaPacking out;
  while (role != WeightRole::kVector && !tensors.empty()) {
    const auto segment = same_type(tensors);
    tensors = tensors.subspan(segment.size());
    out.rounding_bytes += rounding(measure_segment(segment).bytes);
    const HostTensor& first = segment[0];
    if (info(first.dtype).block_elements > 1) {
      const int64_t chunks = num_chunks(first.cols);
      const size_t values = quant_value_bytes(chunks), blocks = quant_block_bytes(chunks);
      out.activation_scratch_bytes = std::max<uint64_t>(
          out.activation_scratch_bytes, values + rounding(values) + blocks + rounding(blocks));
    }
    if (first.num_experts > 1) {
      out.expert_scratch_bytes = std::max<uint64_t>(
          out.expert_scratch_bytes, kChoiceBytes + slice_list_bytes(first.num_experts));
    }
  }
  return out;
}

Result<std::unique_ptr<Weight>> cuda::pack_weights(void* opaque,
                                                   std::span<const HostTensor> tensors,
                                                   WeightRole role) {
  HEARTH_TRY(check_tensors(tensors, role));
  for (const HostTensor& tensor : tensors) {
    if (!tensor.scales.empty()) {
      return Error::unsupported(
          fmt::format("{}: a scale of the whole matrix, on this device", tensor.name));
    }
    if (tensor.num_experts <= kMaxExperts) continue;
    return Error::unsupported(fmt::format("{}: {} experts, want at most {} on this device",
                                          tensor.name, tensor.num_experts, kMaxExperts));
  }
  CudaState& state = cuda_state(opaque);
  if (role == WeightRole::kVector) return pack_vector(state, tensors);

  auto weight = std::make_unique<CudaWeight>();
  weight->cols = tensors[0].cols;
  weight->num_experts = tensors[0].num_experts;
  while (!tensors.empty()) {
    const auto run = same_type(tensors);
    if (const size_t bytes = measure_segment(run).bytes; bytes > kMaxSegmentBytes) {
      return Error::unsupported(fmt::format("{}: {} bytes, want at most {} on this device",
                                            run[0].name, bytes, kMaxSegmentBytes));
    }
    HEARTH_TRY(grow_scratch(state, run[0]));
    HEARTH_ASSIGN_OR_RETURN(WeightSegment segment, pack_segment(state, run));
    if (role != WeightRole::kExperts) pin_algorithms(state, segment, weight->cols);
    segment.first_row = weight->rows;
    weight->rows += segment.rows;
    weight->bytes += segment.bytes;
    weight->segments.push_back(std::move(segment));
    tensors = tensors.subspan(run.size());
  }
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace hearth::kernels
