#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/half.h"
#include "kernels/op_checks.h"
#include "kernels/ops_cpu.h"
#include "kernels/packed_bytes.h"
#include "kernels/quant/quant_group.h"

namespace hearth::kernels::cpu {
namespace {

constexpr int64_t kStoredBlockBytes = 34;  // Q8_0 in a file: scale f16, 32 signed bytes

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Groups begin on cache lines.
int64_t packed_group_bytes(DType dtype, int64_t cols) {
  if (dtype == DType::kQ8_0) return round_up(cols / kQuantBlock, 2) / 2 * kQ8PairBytes;
  if (quant_index(dtype) >= 0) return quant_layout(dtype).group_bytes(cols);
  const auto bytes = static_cast<int64_t>(bytes_of(dtype, static_cast<uint64_t>(cols * kGroup)));
  return round_up(bytes, 64);
}

/// One stored row into its lane of a group.
template <typename T>
void place_plain_row(const std::byte* row, int64_t cols, int64_t lane, std::byte* group) {
  std::byte* to = group + static_cast<size_t>(lane) * sizeof(T);
  for (int64_t k = 0; k < cols; ++k) {
    std::memcpy(to + static_cast<size_t>(k) * kGroup * sizeof(T),
                row + static_cast<size_t>(k) * sizeof(T), sizeof(T));
  }
}

void place_q8_0_row(const std::byte* row, int64_t cols, int64_t lane, std::byte* group) {
  for (int64_t b = 0; b < cols / kQuantBlock; ++b, row += kStoredBlockBytes) {
    std::memcpy(group + q8_scales_at(b) + lane * 2, row, 2);
    for (int64_t j = 0; j < kQuantBlock / 4; ++j) {
      uint32_t four;
      std::memcpy(&four, row + 2 + 4 * j, 4);
      four ^= 0x80808080u;  // adds 128 to each byte
      std::memcpy(group + q8_bytes_at(b) + (j * kGroup + lane) * 4, &four, 4);
    }
  }
}

/// Rows [first, first + rows) of the tensor, at most a group of them.
void pack_group(const HostTensor& tensor, int64_t first, int64_t rows, std::byte* packed) {
  const auto row_bytes =
      static_cast<int64_t>(bytes_of(tensor.dtype, static_cast<uint64_t>(tensor.cols)));
  for (int64_t lane = 0; lane < rows; ++lane) {
    const std::byte* row = tensor.bytes.data() + (first + lane) * row_bytes;
    switch (tensor.dtype) {
      case DType::kF32: place_plain_row<float>(row, tensor.cols, lane, packed); break;
      case DType::kF16:
      case DType::kBF16: place_plain_row<uint16_t>(row, tensor.cols, lane, packed); break;
      case DType::kQ8_0: place_q8_0_row(row, tensor.cols, lane, packed); break;
      default: place_row(tensor.dtype, row, tensor.cols, static_cast<int>(lane), packed);
    }
  }
}

Error no_memory(const HostTensor& first, size_t bytes) {
  return Error{ErrorCode::kOutOfMemory,
               fmt::format("{}: no memory for {} bytes of packed weights", first.name, bytes), ""};
}

uint64_t segment_bytes(const HostTensor& tensor) {
  const int64_t groups = round_up(tensor.rows / tensor.num_experts, kGroup) / kGroup;
  return static_cast<uint64_t>(groups * packed_group_bytes(tensor.dtype, tensor.cols) *
                               tensor.num_experts);
}

}  // namespace

bool HostBuffer::reset(size_t bytes) {
  if (data_ != nullptr) release_host(data_, size_);
  data_ = bytes > 0 ? static_cast<std::byte*>(allocate_host(bytes)) : nullptr;
  size_ = data_ != nullptr ? bytes : 0;
  return size_ == bytes;
}

std::byte* HostBuffer::at_least(size_t bytes) {
  if (bytes > size_) HEARTH_CHECK(reset(bytes), "no {} bytes of scratch memory", bytes);
  return data_;
}

Result<std::unique_ptr<Weight>> pack_weights(void* state, std::span<const HostTensor> tensors,
                                             WeightRole role) {
  HEARTH_TRY(check_tensors(tensors, role));
  auto weight = std::make_unique<PackedWeight>();
  if (role == WeightRole::kVector) {
    const std::vector<float> values = vector_values(tensors);
    const size_t bytes = values.size() * sizeof(float);
    if (!weight->memory.reset(bytes)) return no_memory(tensors[0], bytes);
    std::memcpy(weight->memory.data(), values.data(), bytes);
    weight->rows = 1;
    weight->cols = static_cast<int64_t>(values.size());
    weight->bytes = bytes;
    weight->vector = reinterpret_cast<const float*>(weight->memory.data());
    return std::unique_ptr<Weight>(std::move(weight));
  }

  weight->cols = tensors[0].cols;
  weight->num_experts = tensors[0].num_experts;
  int64_t offset = 0;
  for (const HostTensor& tensor : tensors) {
    const int64_t rows = tensor.rows / tensor.num_experts;
    const int64_t groups = round_up(rows, kGroup) / kGroup;
    const int64_t group_bytes = packed_group_bytes(tensor.dtype, tensor.cols);
    weight->segments.push_back({tensor.dtype, weight->rows, rows, groups, group_bytes, nullptr});
    weight->rows += rows;
    offset += groups * group_bytes * tensor.num_experts;
  }
  weight->bytes = static_cast<size_t>(offset);
  if (!weight->memory.reset(weight->bytes)) return no_memory(tensors[0], weight->bytes);

  // All threads take part, a huge page at a time: packing alone, two of them would often wait for
  // the same one, or clear it twice.
  std::byte* packed = weight->memory.data();
  auto& cpu = *static_cast<CpuState*>(state);
  const auto pages = static_cast<int64_t>(weight->bytes / kHugePage);
  cpu.for_each(pages, offset, [packed](int64_t page, int32_t) {
    *static_cast<volatile std::byte*>(packed + page * static_cast<int64_t>(kHugePage)) =
        std::byte{0};
  });
  for (size_t i = 0; i < tensors.size(); ++i) {
    PackedWeight::Segment& segment = weight->segments[i];
    segment.data = packed;
    const int64_t groups = segment.num_groups * tensors[i].num_experts;
    const int64_t bytes = groups * segment.group_bytes;
    cpu.for_each(groups, bytes, [&](int64_t item, int32_t) {
      const int64_t first = item % segment.num_groups * kGroup;
      pack_group(tensors[i], item / segment.num_groups * segment.rows + first,
                 std::min<int64_t>(kGroup, segment.rows - first),
                 packed + item * segment.group_bytes);
    });
    packed += bytes;
  }
  return std::unique_ptr<Weight>(std::move(weight));
}

void unpack_row(const PackedWeight& weight, int64_t row, float scale, float* out) {
  size_t s = 0;
  while (row >= weight.segments[s].first_row + weight.segments[s].rows) ++s;
  const PackedWeight::Segment& segment = weight.segments[s];
  const int64_t group = (row - segment.first_row) / kGroup;
  const int64_t lane = (row - segment.first_row) % kGroup;
  const std::byte* packed = segment.data + group * segment.group_bytes;
  const auto* floats = reinterpret_cast<const float*>(packed) + lane;
  const auto* halves = reinterpret_cast<const uint16_t*>(packed) + lane;
  switch (segment.dtype) {
    case DType::kF32:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = floats[k * kGroup] * scale;
      return;
    case DType::kF16:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = f32_from_f16(halves[k * kGroup]) * scale;
      return;
    case DType::kBF16:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = f32_from_bf16(halves[k * kGroup]) * scale;
      return;
    case DType::kQ8_0: {
      const int64_t blocks = weight.cols / kQuantBlock;
      for (int64_t b = 0; b < blocks; ++b) {
        const float d =
            f32_from_f16(reinterpret_cast<const uint16_t*>(packed + q8_scales_at(b))[lane]);
        for (int64_t i = 0; i < kQuantBlock; ++i) {
          const auto byte =
              static_cast<int32_t>(packed[q8_bytes_at(b) + (i / 4 * kGroup + lane) * 4 + i % 4]);
          out[b * kQuantBlock + i] = d * static_cast<float>(byte - 128) * scale;
        }
      }
      return;
    }
    default:
      lane_values(segment.dtype, packed, weight.cols, static_cast<int>(lane), out);
      for (int64_t k = 0; k < weight.cols; ++k) out[k] *= scale;
  }
}

}  // namespace hearth::kernels::cpu

namespace hearth::kernels {

uint64_t cpu_packed_bytes(std::span<const HostTensor> tensors, WeightRole role) {
  uint64_t bytes = 0;
  for (const HostTensor& tensor : tensors) {
    bytes += role == WeightRole::kVector ? static_cast<uint64_t>(tensor.cols) * sizeof(float)
                                         : cpu::segment_bytes(tensor);
  }
  return bytes;
}

}  // namespace hearth::kernels
