#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/half.h"
#include "kernels/op_checks.h"
#include "kernels/ops_cpu.h"

namespace hearth::kernels::cpu {
namespace {

constexpr int64_t kStoredBlockBytes = 34;  // Q8_0 in a file: scale f16, 32 signed bytes

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Groups begin on cache lines.
int64_t packed_group_bytes(DType dtype, int64_t cols) {
  if (dtype == DType::kQ8_0) return round_up(cols / kQuantBlock, 2) / 2 * kQ8PairBytes;
  const auto bytes = static_cast<int64_t>(bytes_of(dtype, static_cast<uint64_t>(cols * kGroup)));
  return round_up(bytes, 64);
}

template <typename T>
void pack_plain_group(const HostTensor& tensor, int64_t group, std::byte* packed) {
  const int64_t rows = std::min<int64_t>(kGroup, tensor.rows - group * kGroup);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row =
        tensor.bytes.data() + static_cast<size_t>((group * kGroup + r) * tensor.cols) * sizeof(T);
    std::byte* lane = packed + static_cast<size_t>(r) * sizeof(T);
    for (int64_t k = 0; k < tensor.cols; ++k) {
      std::memcpy(lane + static_cast<size_t>(k) * kGroup * sizeof(T),
                  row + static_cast<size_t>(k) * sizeof(T), sizeof(T));
    }
  }
}

void pack_q8_0_group(const HostTensor& tensor, int64_t group, std::byte* packed) {
  const int64_t blocks = tensor.cols / kQuantBlock;
  const int64_t rows = std::min<int64_t>(kGroup, tensor.rows - group * kGroup);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* stored =
        tensor.bytes.data() + (group * kGroup + r) * blocks * kStoredBlockBytes;
    for (int64_t b = 0; b < blocks; ++b, stored += kStoredBlockBytes) {
      std::memcpy(packed + q8_scales_at(b) + r * 2, stored, 2);
      for (int64_t j = 0; j < kQuantBlock / 4; ++j) {
        uint32_t four;
        std::memcpy(&four, stored + 2 + 4 * j, 4);
        four ^= 0x80808080u;  // adds 128 to each byte
        std::memcpy(packed + q8_bytes_at(b) + (j * kGroup + r) * 4, &four, 4);
      }
    }
  }
}

void pack_group(const HostTensor& tensor, int64_t group, std::byte* packed) {
  switch (tensor.dtype) {
    case DType::kF32: return pack_plain_group<float>(tensor, group, packed);
    case DType::kF16:
    case DType::kBF16: return pack_plain_group<uint16_t>(tensor, group, packed);
    case DType::kQ8_0: return pack_q8_0_group(tensor, group, packed);
    default: HEARTH_CHECK(false, "weight type {}", info(tensor.dtype).name);
  }
}

Error no_memory(const HostTensor& first, size_t bytes) {
  return Error{ErrorCode::kOutOfMemory,
               fmt::format("{}: no memory for {} bytes of packed weights", first.name, bytes), ""};
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
  int64_t offset = 0;
  for (const HostTensor& tensor : tensors) {
    const int64_t groups = round_up(tensor.rows, kGroup) / kGroup;
    const int64_t group_bytes = packed_group_bytes(tensor.dtype, tensor.cols);
    weight->segments.push_back(
        {tensor.dtype, weight->rows, tensor.rows, groups, group_bytes, nullptr});
    weight->rows += tensor.rows;
    offset += groups * group_bytes;
  }
  weight->bytes = static_cast<size_t>(offset);
  if (!weight->memory.reset(weight->bytes)) return no_memory(tensors[0], weight->bytes);

  std::byte* packed = weight->memory.data();
  for (size_t i = 0; i < tensors.size(); ++i) {
    PackedWeight::Segment& segment = weight->segments[i];
    segment.data = packed;
    const int64_t work = segment.num_groups * segment.group_bytes;
    static_cast<CpuState*>(state)->for_each(segment.num_groups, work, [&](int64_t group, int32_t) {
      pack_group(tensors[i], group, packed + group * segment.group_bytes);
    });
    packed += segment.num_groups * segment.group_bytes;
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
    default: HEARTH_CHECK(false, "weight type {}", info(segment.dtype).name);
  }
}

}  // namespace hearth::kernels::cpu
